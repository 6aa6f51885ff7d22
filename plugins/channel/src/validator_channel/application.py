# SPDX-License-Identifier: Apache-2.0
"""What a gateway and its peers say to each other on the topics of a session: JSON objects, read strictly.

On `main` a gateway sends `Welcome`, `Watching` and `RefusedMessage`; a peer sends `Watch`. On a topic of `SUBMIT_TOPICS` a peer sends
records in their JSON form, and on one of `WATCH_TOPICS` a gateway sends `Watched`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from validator_channel.errors import cut
from validator_channel.limits import INDEX_MAX, TOPIC_MAX
from validator_channel.wire import encode_json, is_integer, parse_json

SUBMIT_TOPICS: Final[Mapping[str, int]] = {
    "candidates": 1,
    "channel-requests": 2,
    "blocks": 9,
    "downward-messages": 10,
}
"""Topic ID of each Kafka topic that takes records of peers."""
WATCH_TOPICS: Final[Mapping[str, int]] = {
    "verdicts": 3,
    "dispatches": 4,
    "channel-events": 5,
    "headroom": 6,
    "receipts": 7,
    "lanes": 8,
    "dead-letters": 11,
    "ingress-events": 12,
}
"""Topic ID of each Kafka topic whose records peers may watch."""
DEAD_LETTERS: Final = "dead-letters"
"""The topic of records that no block can take; peers get those about their own records, without the bytes."""

TOPIC_NAMES: Final[Mapping[int, str]] = {
    number: name for name, number in (*SUBMIT_TOPICS.items(), *WATCH_TOPICS.items())
}
"""The name of each topic ID."""

PARTITIONS_MAX: Final = 1_024
"""Partitions that a position may name."""
MAIN_TOKENS_MAX: Final = 4 * PARTITIONS_MAX
"""Maximum strings, commas and opening brackets in a message of a peer on `main`."""
OFFSET_MAX: Final = 2**53 - 1
"""Greatest offset."""
ERROR_CHARACTERS_MAX: Final = 256
"""Maximum characters of the text of a refusal."""
ALL_PARAS: Final = "all"
"""What stands for the paras of a lane if a peer may speak for every one of them."""
END: Final = "end"
"""A position: new records only."""

Position: TypeAlias = Mapping[int, int]
"""By partition, the offset of the last record that its owner has; a partition that is not named begins at the beginning."""
After: TypeAlias = Position | Literal["end"] | None
"""Where a feed begins: after a position, with new records only, or at the beginning of what is kept (None)."""

_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,3}")


@dataclass(frozen=True, slots=True)
class Welcome:
    """What the peer may do: topic IDs by name, and the paras of each lane that it speaks for, None for all of them."""

    submit: Mapping[str, int]
    watch: Mapping[str, int]
    lanes: Mapping[str, tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class Watch:
    """The peer asks for the records of a topic; an earlier request for the topic ends."""

    topic: str
    after: After


@dataclass(frozen=True, slots=True)
class Watching:
    """The gateway sends a topic's records from now on, those after a position; ``index`` is the one of the request on `main`."""

    topic: str
    index: int
    after: Position


@dataclass(frozen=True, slots=True)
class RefusedMessage:
    """The gateway has refused the message with this topic ID and index; it acknowledges it afterwards."""

    topic: int
    index: int
    error: str


@dataclass(frozen=True, slots=True)
class Watched:
    """A record of a watched topic, at its offset.

    Without a ``record`` it says that the peer has all records up to the offset; with an ``error``, that this one cannot be sent.
    """

    partition: int
    offset: int
    record: Mapping[str, Any] | None = field(default=None, repr=False)
    error: str | None = None


MainMessage = Welcome | Watch | Watching | RefusedMessage


def write_main(message: MainMessage) -> bytes:
    """Return the payload of a message on `main`."""
    value: dict[str, Any]
    match message:
        case Welcome():
            lanes = {lane: ALL_PARAS if paras is None else list(paras) for lane, paras in message.lanes.items()}
            value = {"type": "welcome", "submit": dict(message.submit), "watch": dict(message.watch), "lanes": lanes}
        case Watch():
            after = _written(message.after) if isinstance(message.after, Mapping) else message.after
            value = {"type": "watch", "topic": message.topic, "after": after}
        case Watching():
            value = {
                "type": "watching",
                "topic": message.topic,
                "index": message.index,
                "after": _written(message.after),
            }
        case RefusedMessage():
            error = message.error[:ERROR_CHARACTERS_MAX]
            value = {"type": "refused", "topic": message.topic, "index": message.index, "error": error}
    return encode_json(value)


def read_main(payload: bytes, tokens_max: int | None = MAIN_TOKENS_MAX) -> MainMessage:
    """Return a message on `main`; members that it does not need are ignored. A welcome may have any number of paras: ``tokens_max`` None.

    Raises ``ValueError`` that says what was expected: strict JSON, an object, one of the four types, then its members in their order.
    """
    value = parse_json(payload, tokens_max)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {shown(value)}")
    match value.get("type"):
        case "welcome":
            return Welcome(_topics(value, "submit"), _topics(value, "watch"), _lanes(value))
        case "watch":
            after = value.get("after")
            return Watch(_text(value, "topic"), after if after in (None, END) else _position(after))
        case "watching":
            return Watching(_text(value, "topic"), _integer(value, "index", INDEX_MAX), _position(value.get("after")))
        case "refused":
            return RefusedMessage(
                _integer(value, "topic", TOPIC_MAX), _integer(value, "index", INDEX_MAX), _text(value, "error")
            )
        case other:
            raise ValueError(f"type: expected welcome, watch, watching or refused, found {shown(other)}")


def write_watched(partition: int, offset: int, record: Mapping[str, Any] | None, error: str | None = None) -> bytes:
    """Return the payload of a record on a watched topic."""
    value: dict[str, Any] = {"at": {"partition": partition, "offset": offset}, "record": record}
    return encode_json(value if error is None else {**value, "error": error})


def read_watched(payload: bytes) -> Watched:
    """Return a record of a watched topic. Raises ``ValueError`` that says what was expected."""
    value = parse_json(payload, tokens_max=None)
    place = value.get("at") if isinstance(value, dict) else None
    if not isinstance(place, dict):
        raise ValueError(f"at: expected an object with partition and offset, found {shown(place)}")
    record, error = value.get("record"), value.get("error")
    if record is not None and not isinstance(record, dict):
        raise ValueError(f"record: expected an object or null, found {shown(record)}")
    if error is not None and not isinstance(error, str):
        raise ValueError(f"error: expected text, found {shown(error)}")
    return Watched(
        _integer(place, "partition", PARTITIONS_MAX - 1), _integer(place, "offset", OFFSET_MAX), record, error
    )


def read_record(payload: bytes) -> dict[str, Any]:
    """Return a submitted record. Raises ``ValueError`` for anything but a strict JSON object."""
    value = parse_json(payload, tokens_max=None)
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, found {shown(value)}")
    return value


def parse_position(text: str) -> After:
    """Return the position that a user has written: ``start``, ``end``, ``OFFSET`` of partition 0, or ``PARTITION:OFFSET,...``.

    Raises ``ValueError``.
    """
    if text in ("start", END):
        return None if text == "start" else END
    pairs = [part.rpartition(":") for part in text.split(",")]
    offsets = {partition or "0": int(offset) for partition, _, offset in pairs if re.fullmatch(r"[0-9]{1,16}", offset)}
    if len(offsets) != len(pairs):
        raise ValueError(f"expected start, end, OFFSET or PARTITION:OFFSET,..., found {text!r}")
    return _position(offsets)


def shown(value: object) -> str:
    """Return a peer's value for an error message, cut."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return cut(value, 40)


def _written(position: Position) -> dict[str, int]:
    return {str(partition): offset for partition, offset in sorted(position.items())}


def _position(value: Any) -> Position:
    if not isinstance(value, dict) or len(value) > PARTITIONS_MAX:
        raise ValueError(f"after: expected null, 'end' or an object of offsets by partition, found {shown(value)}")
    for partition, offset in value.items():
        if _PARTITION.fullmatch(partition) is None or int(partition) >= PARTITIONS_MAX:
            raise ValueError(
                f"after: expected partitions from 0 to {PARTITIONS_MAX - 1} as names, found {shown(partition)}"
            )
        if not is_integer(offset, 0, OFFSET_MAX):
            raise ValueError(f"after.{partition}: expected an offset from 0 to {OFFSET_MAX}, found {shown(offset)}")
    return {int(partition): offset for partition, offset in value.items()}


def _topics(value: Mapping[str, Any], name: str) -> Mapping[str, int]:
    topics = value.get(name)
    if not isinstance(topics, dict) or not all(is_integer(topic, 1, TOPIC_MAX) for topic in topics.values()):
        raise ValueError(f"{name}: expected an object of topic IDs by name, found {shown(topics)}")
    return topics


def _lanes(value: Mapping[str, Any]) -> Mapping[str, tuple[int, ...] | None]:
    lanes = value.get("lanes")
    if not isinstance(lanes, dict):
        raise ValueError(f"lanes: expected an object of paras by lane, found {shown(lanes)}")
    for lane, paras in lanes.items():
        if paras != ALL_PARAS and not (
            isinstance(paras, list) and all(is_integer(each, 0, 2**32 - 1) for each in paras)
        ):
            raise ValueError(f"lanes.{shown(lane)}: expected 'all' or an array of paras, found {shown(paras)}")
    return {lane: None if paras == ALL_PARAS else tuple(paras) for lane, paras in lanes.items()}


def _text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise ValueError(f"{name}: expected text, found {shown(text)}")
    return text


def _integer(value: Mapping[str, Any], name: str, maximum: int) -> int:
    number = value.get(name)
    if not is_integer(number, 0, maximum):
        raise ValueError(f"{name}: expected an integer from 0 to {maximum}, found {shown(number)}")
    return number
