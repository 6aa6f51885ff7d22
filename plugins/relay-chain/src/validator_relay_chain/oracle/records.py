# SPDX-License-Identifier: Apache-2.0
"""The topics of the comparison, their records, and those of the lanes that it reads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final

from validator.plugin.api import OutputReader, TransportContext
from validator.plugin.job_api import (
    DAY_MS,
    FOREVER,
    OwnTopic,
    RecordFormat,
    RecordUnreadable,
    SchemaSet,
    Topic,
    TopicForm,
    schemas,
)
from validator_relay_chain.limits import RECORD_BYTES_MAX

FACTS: Final = "relay-chain.facts"
DISAGREEMENTS: Final = "relay-chain.disagreements"
AGREEMENT: Final = "relay-chain.agreement"

VERDICTS: Final = "verdicts"
RECEIPTS: Final = "receipts"
CHANNEL_EVENTS: Final = "channel-events"
HEADROOM: Final = "headroom"
OF_LANES: Final = (VERDICTS, RECEIPTS, CHANNEL_EVENTS, HEADROOM)

_NAMES: Final = {FACTS: "ChainFacts", DISAGREEMENTS: "Disagreement", AGREEMENT: "Agreement"}
_COLUMNS: Final = {
    FACTS: ("lane", "block", "session_ends", "backed", "included", "timed_out"),
    DISAGREEMENTS: (
        "lane",
        "block",
        "kind",
        "para_id",
        "recipient",
        "lane_says",
        "chain_says",
        "reason",
        "follows_block",
    ),
}
_TOPICS: Final = (
    Topic(FACTS, None, "delete", 7 * DAY_MS, "what the relay chain did in each block, to compare lanes with"),
    Topic(DISAGREEMENTS, None, "delete", 30 * DAY_MS, "points in which a lane and its relay chain differ"),
    Topic(AGREEMENT, None, "compact", FOREVER, "how far each lane was compared with its relay chain"),
)


@cache
def formats() -> dict[str, RecordFormat]:
    """Return the format of the records of each topic."""
    own = SchemaSet.read(files("validator_relay_chain") / "oracle" / "schemas")
    return {topic: RecordFormat(own, f"validator.relay_chain.{name}") for topic, name in _NAMES.items()}


@cache
def formats_of_lanes() -> dict[str, tuple[RecordFormat, ...]]:
    """Return the formats of the lanes' records that are compared, by topic."""
    names = {
        VERDICTS: ("validator.Verdict",),
        RECEIPTS: ("validator.Receipt",),
        CHANNEL_EVENTS: ("validator.ChannelEvent",),
        HEADROOM: ("validator.router.ParaHeadroom", "validator.router.ChannelHeadroom"),
    }
    return {topic: tuple(RecordFormat(schemas(), name) for name in each) for topic, each in names.items()}


@cache
def own_topics() -> tuple[OwnTopic, ...]:
    """Return the topics that exist for the transports of this plugin. All records have the lane as key."""
    return tuple(
        OwnTopic(
            topic,
            TopicForm(formats()[topic.name], partial(_key, topic.name), RECORD_BYTES_MAX, _COLUMNS.get(topic.name, ())),
            _line if topic.name == AGREEMENT else None,
        )
        for topic in _TOPICS
    )


def decode(topic: str, value: bytes) -> dict[str, Any]:
    """Return a record of one of these topics. Raises `RecordUnreadable`."""
    return formats()[topic].decode(value)


def _key(topic: str, value: bytes) -> bytes:
    return str(decode(topic, value)["lane"]).encode()


def _line(value: bytes) -> tuple[str, str]:
    found = decode(AGREEMENT, value)
    return found["lane"], describe(found)


def describe(agreement: Mapping[str, Any]) -> str:
    """Return the line of `validator lanes` about a lane."""
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(agreement["disagreements"].items()) if count)
    last = "" if agreement["last_ours"] is None else f", the last of ours in block {agreement['last_ours']}"
    compared = ", ".join(
        f"{agreement[name]} {name}" for name in ("candidates", "inclusions", "heads", "counters", "channels")
    )
    skipped = f"; not compared: {agreement['skipped']}" if agreement["skipped"] else ""
    said = f"compared with the chain up to block {agreement['block']}: {compared}"
    return f"{said}; disagreements: {counted or 'none'}{last}{skipped}"


def describe_briefly(agreement: Mapping[str, Any] | None) -> str:
    """Return what the judge says of a lane by now, in a few words."""
    if agreement is None:
        return "nothing compared with the chain yet"
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(agreement["disagreements"].items()) if count)
    said = f"disagreements {counted}" if counted else f"{agreement['candidates']} candidates agree"
    return f"compared up to block {agreement['block']}: {said}"


class News:
    """Reads the judge's status, never waiting for it. Any thread may ask."""

    def __init__(self, context: TransportContext) -> None:
        self._reader: OutputReader = context.reader([AGREEMENT])
        self._lock = threading.Lock()
        self._newest: dict[str, dict[str, Any]] = {}

    def of(self, lane: str) -> str:
        """Return what the judge says of a lane, in a few words. Raises `UserError` as the context does."""
        with self._lock:
            while (record := self._reader.receive(0)) is not None:
                try:
                    found = decode(AGREEMENT, record.value)
                except RecordUnreadable:
                    continue  # of a later version
                self._newest[found["lane"]] = found
            return describe_briefly(self._newest.get(lane))
