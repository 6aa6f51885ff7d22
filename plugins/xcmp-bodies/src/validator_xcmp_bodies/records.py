# SPDX-License-Identifier: Apache-2.0
"""The records of the plugin's topics, and those of the lanes that it reads.

A record's key is the lane and what the topic is partitioned by: ``lane/recipient`` for bodies and what is said about them,
``lane/sender`` for what is said to senders. All records of a recipient's bodies are thus in one partition, in the order of writing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final

from validator.plugin.job_api import OutputRecord, RecordFormat, RecordUnreadable, SchemaSet, TopicForm, schemas
from validator.plugin.protocol_api import U32_MAX, Hash
from validator_xcmp_bodies.limits import BODY_RECORD_BYTES_MAX, PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX
from validator_xcmp_bodies.outcomes import (
    BodyPart,
    EventKind,
    Flow,
    Held,
    IngressEvent,
    Outcome,
    QueueStatus,
    RecordOffset,
    Refused,
    Wanted,
    Watermark,
)
from validator_xcmp_bodies.parts import BodyError, Part, condense, cut, measure, rejoin

BODIES: Final = "xcmp.bodies"
WANTED: Final = "xcmp.wanted"
FLOW: Final = "xcmp.flow"
HELD: Final = "xcmp.bodies.held"
REFUSED: Final = "xcmp.bodies.refused"
QUEUES: Final = "xcmp.queues"
INGRESS: Final = "ingress-events"
RECEIPTS: Final = "receipts"

_NAMES: Final = {
    BODIES: "Body",
    WANTED: "BodyWanted",
    FLOW: "Flow",
    HELD: "BodyHeld",
    REFUSED: "BodyRefused",
    QUEUES: "QueueStatus",
}
_OF_LANES: Final = {INGRESS: "validator.IngressEvent", RECEIPTS: "validator.Receipt"}


@cache
def formats() -> dict[str, RecordFormat]:
    """Return the format of each topic's records."""
    own = SchemaSet.read(files("validator_xcmp_bodies") / "schemas")
    return {
        **{topic: RecordFormat(own, f"validator.xcmp_bodies.{name}") for topic, name in _NAMES.items()},
        **{topic: RecordFormat(schemas(), name) for topic, name in _OF_LANES.items()},
    }


def forms(lanes: Collection[str]) -> dict[str, TopicForm]:
    """Return the forms of the job's topics, for transports: of records of these lanes, bodies with parts that the operator can take."""

    def key(topic: str, value: bytes) -> bytes:
        if topic == BODIES:
            lane, part, _ = decode_body(value)
            _check_lane(lane, lanes)
            return key_of(lane, part.recipient)
        record = decode(topic, value)
        _check_lane(record["lane"], lanes)
        return _key(topic, record)

    bytes_max = {BODIES: BODY_RECORD_BYTES_MAX}
    return {
        topic: TopicForm(formats()[topic], partial(key, topic), bytes_max.get(topic, RECORD_BYTES_MAX))
        for topic in _NAMES
    }


def _check_lane(lane: str, lanes: Collection[str]) -> None:
    if lane not in lanes:
        raise BodyError(f"lane: expected one of {', '.join(sorted(lanes))}, found {lane[:64]!r}")


def _key(topic: str, record: Mapping[str, Any]) -> bytes:
    """Return the key of a record that the operator writes."""
    lane, recipient = record["lane"], record["recipient"]
    if topic == WANTED:
        return key_of(lane, record["sender"])
    if topic == FLOW:
        return f"{lane}/{record['sender']}/{recipient}".encode()
    return str(lane).encode() if recipient is None else key_of(lane, recipient)


def decode(topic: str, value: bytes) -> dict[str, Any]:
    """Return a record of a topic. Raises `RecordUnreadable`."""
    return formats()[topic].decode(value)


def key_of(lane: str, para_id: int) -> bytes:
    """Return the key of a record that concerns a para."""
    return f"{lane}/{para_id}".encode()


# --- bodies ---


def encode_body(
    lane: str, name: tuple[int, int, int], payloads: Sequence[bytes], root: Hash | None = None
) -> list[OutputRecord]:
    """Return the records of a body's parts; ``name`` is sender, recipient, block. Raises `BodyError`.

    ``root`` saves the hashing if it is known.
    """
    sender, recipient, sent_at = name
    parts = cut(payloads)
    claim = {
        "lane": lane,
        "sender": sender,
        "recipient": recipient,
        "sent_at": sent_at,
        "root": measure(payloads).root if root is None else root,
        "size": sum(map(len, payloads)),
        "parts": len(parts),
    }
    key = key_of(lane, recipient)
    return [
        OutputRecord(
            BODIES,
            key,
            formats()[BODIES].encode(
                {
                    **claim,
                    "part": number,
                    "continued": part.continued,
                    "continues": part.continues,
                    "pieces": [bytes(piece) for piece in part.pieces],
                }
            ),
        )
        for number, part in enumerate(parts)
    ]


def decode_body(value: bytes) -> tuple[str, BodyPart, Part]:
    """Return the lane, what is left of a part once its payloads are hashed, and the part. Raises `RecordUnreadable`, `BodyError`."""
    record = decode(BODIES, value)
    for field, most in _RANGES.items():
        if not 0 <= record[field] <= most:
            raise BodyError(f"{field}: expected 0 to {most}, found {record[field]}")
    part = Part(tuple(record["pieces"]), record["continued"], record["continues"])
    claim = (record["root"], record["size"], record["part"], record["parts"])
    name = record["sender"], record["recipient"], record["sent_at"]
    return record["lane"], BodyPart(*name, *claim, condense(part)), part


_RANGES: Final = {
    "sender": U32_MAX,
    "recipient": U32_MAX,
    "sent_at": U32_MAX,
    "size": PAYLOAD_BYTES_MAX,
    "part": U32_MAX,
    "parts": U32_MAX,
}


# --- what the lanes emit ---


def decode_event(value: bytes) -> tuple[str, IngressEvent | None]:
    """Return the lane and a record of `ingress-events`; None for an event of a kind that does not concern bodies."""
    record = decode(INGRESS, value)
    try:
        kind = EventKind(record["event"])
    except ValueError:
        return record["lane"], None
    names = record["recipient"], record["sender"], record["sent_at"]
    return record["lane"], IngressEvent(record["block"], kind, *names, record["root"], record["size"])


# --- outcomes ---


def decode_held(value: bytes) -> tuple[str, Held]:
    """Return the lane and a record of `xcmp.bodies.held`. Raises `RecordUnreadable`."""
    record = decode(HELD, value)
    places = tuple(RecordOffset(place["partition"], place["offset"]) for place in record["places"])
    return record["lane"], Held._make((*(record[field] for field in Held._fields[:-1]), places))


def decode_wanted(value: bytes) -> Wanted:
    """Return a record of `xcmp.wanted`. Raises `RecordUnreadable`."""
    record = decode(WANTED, value)
    return Wanted(**{field: record[field] for field in Wanted._fields})


def encode_outcomes(lane: str, outcomes: Iterable[Outcome]) -> list[OutputRecord]:
    """Return the records of a batch's outcomes, in their order."""
    return [_encode(lane, outcome) for outcome in outcomes]


def _encode(lane: str, outcome: Outcome) -> OutputRecord:
    match outcome:
        case Held():
            datum = {**outcome._asdict(), "places": [place._asdict() for place in outcome.places]}
            return _record(HELD, lane, datum)
        case Refused():
            return _record(REFUSED, lane, _refused(outcome))
        case Wanted():
            return _record(WANTED, lane, outcome._asdict())
        case Flow():
            return _record(FLOW, lane, {**outcome._asdict(), "watermark": _watermark(outcome.watermark)})
        case QueueStatus():
            front = outcome.front and {
                "sent_at": outcome.front[0],
                "sender": outcome.front[1],
                "held": outcome.front_held,
            }
            datum = {**outcome._asdict(), "front": front, "watermark": _watermark(outcome.watermark)}
            return _record(QUEUES, lane, datum)


def _record(topic: str, lane: str, datum: dict[str, Any]) -> OutputRecord:
    record = {"lane": lane, **datum}
    return OutputRecord(topic, _key(topic, record), formats()[topic].encode(record))


def _refused(refused: Refused) -> dict[str, Any]:
    refusal = refused.refusal
    return {
        "kind": refusal.kind,
        "fields": [{"name": name, "value": value} for name, value in refusal.fields],
        "message": refusal.message,
        **refused.place._asdict(),
        "sender": refused.sender,
        "recipient": refused.recipient,
        "sent_at": refused.sent_at,
        "root": refused.root,
    }


def _watermark(watermark: Watermark) -> dict[str, Any]:
    return {"block": watermark.block, "acked": list(watermark.acked)}


# --- reading held bodies back ---


def read_body(lane: str, held: Held, value_at: Callable[[RecordOffset], bytes]) -> list[bytes]:
    """Return the payloads of a held body; ``value_at`` returns the record at a place, and raises if it is gone.

    Raises `BodyError`: a record that is no part, parts that cannot be joined, another root or size than the listed one.
    """
    name = f"{lane}: the body of {held.sent_at}/{held.sender} for {held.recipient}"
    parts = [_part(place, value_at(place)) for place in held.places]
    try:
        payloads = rejoin(parts)
    except BodyError as error:
        raise BodyError(f"{name} cannot be joined: {error}") from error
    found = measure(payloads)
    if (found.root, found.size) != (held.root, held.size):
        raise BodyError(f"{name}: expected root {held.root.hex()}, found {found.root.hex()}")
    return payloads


def gone(place: RecordOffset) -> str:
    """Return what to say of a record that retention has removed."""
    return f"{BODIES} {place.partition}/{place.offset}: the record is gone; bodies are kept for [jobs.xcmp-bodies] retention_hours"


def _part(place: RecordOffset, value: bytes) -> Part:
    try:
        return decode_body(value)[2]
    except (RecordUnreadable, BodyError) as error:
        raise BodyError(f"{BODIES} {place.partition}/{place.offset}: {error}") from error
