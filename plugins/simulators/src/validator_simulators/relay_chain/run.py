# SPDX-License-Identifier: Apache-2.0
"""What `validator demo --real` runs: a mock node with recorded blocks, a lane that follows it, and what the chain accepted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from validator_relay_chain import keys
from validator_relay_chain.block import Receipt
from validator_relay_chain.channels import requests_of
from validator_relay_chain.errors import FollowError
from validator_relay_chain.header import to_hex
from validator_relay_chain.metadata import MetadataCache, Runtime
from validator_relay_chain.oracle import records
from validator_relay_chain.pool import Clock, NodePool
from validator_relay_chain.prepare import configuration, prepare
from validator_relay_chain.source import Chain
from validator_relay_chain.storage import decode_queue
from validator_relay_chain.transport import JUDGE, NAME, read_start

from validator.cli.command_api import UserError
from validator_simulators.relay_chain import MockNode, Recording, RecordingError
from validator_simulators.relay_chain.made import decoded
from validator_simulators.relay_chain.recording import SHIPPED

LANE: Final = "polkadot"
BLOCK_S: Final = 0.5
"""Seconds between two blocks once the first verdict is there: a chain takes twelve times as long."""

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A recorded run of a chain, while its node serves it."""

    lane: str
    title: str
    first_block: int
    """The first block that the lane executes, which has the candidates that were pending when it joined."""
    tables: Mapping[str, Any]
    """The tables of a `validator.toml`."""
    expected: Mapping[int, Sequence[Mapping[str, Any]]]
    """By block, the verdicts that the chain's acceptance stands for: ``kind``, ``index``, ``ok``."""
    records: int
    """How many records the lane will consume."""
    transports: tuple[str, ...]
    """The transports to run; the first one ends by itself after the last block."""
    status_topic: str
    status: Callable[[bytes], tuple[int, int, str]]
    """Of a record of ``status_topic``: the last block that was compared, disagreements that nothing explains, and a line."""
    proceed: Callable[[], None]
    """Called once the first verdict is there: the node may finalise more blocks."""


@contextmanager
def recorded_run(folder: Path | None, directory: Path) -> Iterator[RecordedRun]:
    """Yield the run of a folder of recordings, or the shipped one, while its node serves it. Raises `UserError`."""
    try:
        recording = Recording.load(SHIPPED if folder is None else folder)
    except RecordingError as error:
        raise UserError(f"--recorded: {error}") from error
    first = recording.first
    with MockNode(recording, head=first + 1) as node:
        tables = _prepared(node, directory / LANE)
        begun, _ = read_start(directory / LANE / "start.json")
        expected, count = _expected(recording, [record for topic, record in begun if topic == "candidates"])
        stop = threading.Event()
        pace = threading.Thread(target=_finalise, args=(node, stop), daemon=True)
        try:
            yield RecordedRun(
                lane=LANE,
                title=f"{recording.chain} {first + 1} to {recording.last}, recorded, from a node over JSON-RPC",
                first_block=first,
                tables=tables,
                expected=expected,
                records=count + sum(topic != records.FACTS for topic, _ in begun),
                transports=(NAME, f"{NAME}.{JUDGE}"),
                status_topic=records.AGREEMENT,
                status=_status,
                proceed=pace.start,
            )
        finally:
            stop.set()
            if pace.is_alive():
                pace.join()


def _prepared(node: MockNode, folder: Path) -> Json:
    recording = node.recording
    pool = NodePool([node.url], Clock())
    try:
        chain = Chain(pool, MetadataCache(folder / "metadata"))
        made = prepare(chain, LANE, folder, from_block=recording.first + 1, to_block=recording.last)
    except FollowError as error:
        raise UserError(f"--recorded: {error}") from error
    finally:
        pool.close()
    tables = configuration(made, [node.url], str(folder), recording.last)
    tables["transports"][NAME]["chains"][LANE]["compare_every_blocks"] = 1
    return tables


def _finalise(node: MockNode, stop: threading.Event) -> None:
    for number in range(node.head + 1, node.recording.last + 1):
        if stop.wait(BLOCK_S):
            return
        node.finalise(number)  # takes effect a moment later


def _status(value: bytes) -> tuple[int, int, str]:
    found = records.decode(records.AGREEMENT, value)
    return found["block"], found["disagreements"].get("ours", 0), records.describe(found)


def _expected(recording: Recording, pending: list[Json]) -> tuple[dict[int, list[Json]], int]:
    """Return the verdicts that the chain's acceptance stands for, by block, and how many records the blocks after the first have."""
    expected = {recording.first: _verdicts("candidate", len(pending))}
    joined = {each["para_id"] for each in pending}
    waiting: set[Receipt] = set()
    runtimes = _Runtimes(recording)
    count = 0
    for number in range(recording.first + 1, recording.last + 1):
        block = decoded(recording, runtimes.of(number), number)
        included = [each for each in block.included if each in waiting or each.para_id in joined]
        joined -= {each.para_id for each in block.included}
        requests, _ = requests_of(block.channel_events)
        downward = _sent(recording, number)
        expected[number] = [
            *_verdicts("inclusion", len(included)),
            *_verdicts("request", len(requests)),
            *_verdicts("downward", downward),
            *_verdicts("candidate", len(block.candidates)),
        ]
        waiting |= {Receipt(each.para_id, each.relay_parent, each.commitments_hash) for each in block.candidates}
        count += 1 + len(block.candidates) + len(requests) + downward
    return expected, count


def _verdicts(kind: str, count: int) -> list[Json]:
    return [{"kind": kind, "index": index, "ok": True} for index in range(count)]


def _sent(recording: Recording, number: int) -> int:
    block = recording.blocks[recording.canonical[number]]
    values = (recording.value(block, key) for key in recording.keys(block, to_hex(keys.DMP_QUEUES)))
    queues = (decode_queue(bytes.fromhex(value[2:])) for value in values if value is not None)
    return sum(each.sent_at == number for queue in queues for each in queue)


class _Runtimes:
    """The runtimes of a recording, each read once."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._read: dict[int, Runtime] = {}

    def of(self, number: int) -> Runtime:
        """Return the runtime that executed a block. Raises `UserError`."""
        version = self._recording.blocks[self._recording.canonical[number]].spec_version
        if version not in self._read:
            metadata = self._recording.metadata_of(version)
            if metadata is None:
                raise UserError(f"--recorded: expected metadata of runtime {version}, found none")
            self._read[version] = Runtime("polkadot", version, metadata)
        return self._read[version]
