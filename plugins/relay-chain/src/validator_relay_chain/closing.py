# SPDX-License-Identifier: Apache-2.0
"""The end of `validator follow`: the lane executes the last block, the judge compares it, and it is said what was found."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from validator.cli.command_api import Config, TopicReader, UserError, executed_blocks, say, working
from validator_relay_chain.errors import FollowError
from validator_relay_chain.oracle import records
from validator_relay_chain.position import Position
from validator_relay_chain.transport import NAME, read_start

LOOK_S: Final = 1.0
"""Seconds between two looks at how far the job is."""
JUDGED_S_MAX: Final = 60.0
"""Seconds that the judge may take for another block once the lane has executed the last one."""
KAFKA_S_MAX: Final = 5.0
"""Seconds that Kafka may take to answer at the end: it may be stopped at the same time."""


class Closed(Enum):
    """How following has ended."""

    WHOLE = "all that is wanted was followed, and compared unless nobody wanted that"
    NOT_COMPARED = "blocks are left that were not compared"
    RULES = "the configuration lacks rules"


class End(Enum):
    """What ended the transport."""

    LAST_BLOCK = "the last block that is wanted"
    SIGNAL = "Ctrl-C or SIGTERM"
    RULES = "rules that the configuration lacks"


def close(
    config: Config, lane: str, end: End, judged: threading.Event | None, skipped: int, *, patience_s: float
) -> Closed:
    """Say what the judge found, after the last block that is wanted once the lane has executed it and the judge has compared it.

    A block that was not compared is no success. ``skipped`` are those that an earlier run has left out.
    """
    block = config.transports[NAME]["chains"][lane].get("to_block")
    closed = Closed.RULES if end is End.RULES else Closed.WHOLE
    is_last = end is End.LAST_BLOCK and block is not None
    try:
        if is_last and _await_executed(config, lane, block, patience_s) and judged is not None:
            _await_judged(config, lane, block, judged)
        found = _agreement(config, lane)
    except UserError as error:
        say(f"lane {lane}: what the judge says cannot be read: {error}")
        return Closed.NOT_COMPARED if is_last and judged is not None else closed
    except KeyboardInterrupt:
        return closed
    say(f"lane {lane}: {'nothing is compared with the chain yet' if found is None else records.describe(found)}")
    if not is_last or judged is None:
        return closed
    left = _left(config, lane, block, found, skipped)
    if left is None:
        return closed
    why = (
        "the judge has ended, its lines say why"
        if judged.is_set()
        else "the judge continues after them when it runs again"
    )
    say(f"lane {lane}: {left}; {why}")
    return Closed.NOT_COMPARED


def _left(config: Config, lane: str, block: int, found: Mapping[str, Any] | None, skipped: int) -> str | None:
    """Say which blocks up to the last one that is wanted were not compared with the chain, or return None."""
    if found is not None and found["block"] >= block:
        left_out = found["skipped"] - skipped
        return f"{_blocks(left_out)} left out: the chain's facts of them are missing" if left_out > 0 else None
    compared = begin_of(config, lane) if found is None else found["block"]
    if compared is None:
        return f"no block up to {block} is compared with the chain"
    return f"{_blocks(block - compared)} not compared with the chain, {compared + 1} to {block}"


def skipped_blocks(config: Config, lane: str) -> int:
    """Return how many blocks of a lane the judge has left out so far."""
    try:
        found = _agreement(config, lane)
    except UserError:  # nothing was compared yet, or Kafka says it later
        return 0
    return 0 if found is None else int(found["skipped"])


def begin_of(config: Config, lane: str) -> int | None:
    """Return the block after which a lane has begun; None if its file does not say it, which the transport explains if it needs it."""
    path = Path(config.transports[NAME]["chains"][lane].get("folder", lane)) / "start.json"
    try:
        return Position.decode(read_start(path)[1]).number
    except (FollowError, ValueError):
        return None


def _await_executed(config: Config, lane: str, block: int, patience_s: float) -> bool:
    """Wait until a lane has executed a block; return False if it executes nothing for ``patience_s`` seconds: its job may not run."""
    seen, deadline = None, time.monotonic() + patience_s
    say(f"lane {lane}: waiting until block {block} is executed and compared; Ctrl-C ends this")
    with working(f"waiting until the lane has executed block {block}"):
        while time.monotonic() < deadline:
            executed = executed_blocks(config).get(lane, -1)
            if executed >= block:
                return True
            if executed != seen:
                seen, deadline = executed, time.monotonic() + patience_s
            time.sleep(LOOK_S)
    say(
        f"lane {lane}: no block was executed for {patience_s:.0f} s, so block {block} is not waited for: does the job run?"
    )
    return False


def _await_judged(config: Config, lane: str, block: int, ended: threading.Event) -> None:
    """Wait until the judge has compared a lane up to a block, as long as it continues and compares another one within `JUDGED_S_MAX`."""
    compared, deadline = None, time.monotonic() + JUDGED_S_MAX
    with working(f"waiting until block {block} is compared with the chain"):
        while time.monotonic() < deadline and not ended.is_set():
            found = _agreement(config, lane)
            if found is not None and found["block"] >= block:
                return
            if found is not None and found["block"] != compared:
                compared, deadline = found["block"], time.monotonic() + JUDGED_S_MAX
            time.sleep(LOOK_S)


def _agreement(config: Config, lane: str) -> dict[str, Any] | None:
    """Return what the judge said last of a lane, or None. Raises `UserError` if Kafka or the topic is not available."""
    found = None
    prefix, topics = config.topics.prefix, [records.AGREEMENT]
    with TopicReader(config.kafka, prefix, topics, patience_s=KAFKA_S_MAX, newest=True) as reader:
        for record in reader.read_to_end():
            if record.key == lane.encode():
                found = records.decode(records.AGREEMENT, record.value)
    return found


def _blocks(count: int) -> str:
    return f"{count} block{'' if count == 1 else 's'}"
