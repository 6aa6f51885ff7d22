# SPDX-License-Identifier: Apache-2.0
"""Kafka value to input record, or to a dead letter that says what is wrong with it.

Bytes from Kafka are hostile until proven otherwise. What bounds the work on them: a record's size is checked first; every Avro item of our
schemas takes at least one byte, so a length or block count that lies ends at the end of the input; a large record's items are counted
before one is built (`walk`); no schema is recursive. fastavro raises a handful of exception types on broken bytes; each of them is a dead
letter here, and anything else is a bug and stops.
"""

from __future__ import annotations

from hashlib import blake2b
from io import BytesIO
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from fastavro import schemaless_reader
from fastavro.read import SchemaResolutionError

from validator.codec.schemas import HEADER_SIZE, INPUT_TOPICS, MARKER, TOPIC_OF_KIND, TOPIC_SCHEMAS, SchemaSet, schemas
from validator.codec.walk import WALK_BYTES_MIN, TooManyItems, walk
from validator.core.hashing import message_hash
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.limits import (
    LANE_NAME_LENGTH_MAX,
    MESSAGES_PER_CANDIDATE_MAX,
    PAYLOAD_BYTES_MAX,
    RECORD_BYTES_MAX,
    RECORDS_PER_BLOCK_MAX,
    U32_MAX,
)
from validator.core.types import CONFIGURATION_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from validator.codec.schemas import Json

Shaped: TypeAlias = tuple[str, int, int, tuple[Any, ...]]
"""Lane, block, index, and the fields as `Input.fields` has them."""

Row: TypeAlias = tuple[int, int, bytes | None, bytes | None]
"""Partition, offset, key and value of a Kafka record."""

_MALFORMED: Final = (EOFError, IndexError, ValueError, OverflowError, SchemaResolutionError)
"""What fastavro raises on bytes that are not of the schema (UnicodeDecodeError is a ValueError)."""


class LimitError(Exception):
    """A decoded value outside its range."""

    def __init__(self, field: str, expected: str, found: object) -> None:
        super().__init__(f"{field}: expected {expected}, found {found}")


class _Entry(NamedTuple):
    """How to read the records of one fingerprint.

    ``reader`` is None where the writer's schema is the current one. ``name_records`` asks fastavro for the name of a union's record.
    """

    kind: RecordKind
    name: str
    writer: Json
    reader: Json
    name_records: bool
    shape: Callable[[dict[str, Any]], Shaped]


def decode_record(
    kind: RecordKind, value: bytes | None, source: Source, key: bytes | None = None
) -> tuple[str, Input] | DeadLetter:
    """Return the lane and the input that a Kafka value holds, or the dead letter that it ends as.

    ``kind`` is that of the topic it was read from. Checked in this order: there is a value, its size, its marker, its fingerprint, the
    record's type against the topic, the Avro bytes to the last one, then every field in the order of its schema. Where the bytes name no
    lane the dead letter takes the ``key``'s.
    """
    entry = _ENTRIES.get(value[:HEADER_SIZE]) if value is not None else None
    if value is None or entry is None or entry.kind != kind or len(value) > RECORD_BYTES_MAX:
        return _unreadable(kind, value, source, key)
    stream = BytesIO(value)
    stream.seek(HEADER_SIZE)
    record: Any = None
    try:
        if len(value) >= WALK_BYTES_MIN:
            walk(entry.writer, value, HEADER_SIZE)
        record = schemaless_reader(stream, entry.writer, entry.reader, entry.name_records)
        if stream.tell() != len(value):
            detail = f"{entry.name}: expected the record to end at byte {stream.tell()}, found {len(value)} bytes"
            return _dead(DeadReason.UNDECODABLE, detail, source, value, key)
        lane, block, index, fields = entry.shape(record)
    except LimitError as error:
        return _dead(DeadReason.LIMIT, f"{entry.name}.{error}", source, value, key, record)
    except TooManyItems as error:
        return _dead(DeadReason.LIMIT, f"{entry.name}: expected {error}", source, value, key)
    except _MALFORMED as error:
        detail = f"{entry.name}: expected Avro binary of its schema, found {type(error).__name__}{_text(error)}"
        return _dead(DeadReason.UNDECODABLE, detail, source, value, key)
    return lane, Input(kind, block, index, blake2b(value, digest_size=8).digest(), source, value, fields)


def decode_chunk(kind: RecordKind, topic: str, rows: Iterable[Row]) -> dict[str, list[Input | DeadLetter]]:
    """Decode Kafka records of one topic and group them by lane; inside a lane the order is that of ``rows``.

    The lane of a record that names none, neither by itself nor by its key, is the empty string.
    """
    lanes: dict[str, list[Input | DeadLetter]] = {}
    for partition, offset, key, value in rows:
        decoded = decode_record(kind, value, Source(topic, partition, offset), key)
        if isinstance(decoded, DeadLetter):
            lane, item = decoded.lane, decoded
        else:
            lane, item = decoded  # type: ignore[assignment]
        there = lanes.get(lane)
        if there is None:
            lanes[lane] = [item]
        else:
            there.append(item)
    return lanes


# --- what cannot be read -----------------------------------------------------------------------------------------------------------------


def _unreadable(kind: RecordKind, value: bytes | None, source: Source, key: bytes | None) -> DeadLetter:
    expected = " or ".join(TOPIC_SCHEMAS[TOPIC_OF_KIND[kind]])
    if value is None:
        return _dead(DeadReason.UNDECODABLE, f"expected a record of {expected}, found no value", source, b"", key)
    if len(value) > RECORD_BYTES_MAX:
        detail = f"expected at most {RECORD_BYTES_MAX} bytes, found {len(value)}"
        return _dead(DeadReason.LIMIT, detail, source, value, key)
    if len(value) < HEADER_SIZE or not value.startswith(MARKER):
        found = f"{len(value)} bytes that start with {value[:HEADER_SIZE].hex() or 'nothing'}"
        detail = f"expected Avro single-object encoding (c301 and an 8-byte fingerprint), found {found}"
        return _dead(DeadReason.UNDECODABLE, detail, source, value, key)
    schema = schemas().by_header.get(value[:HEADER_SIZE])
    fingerprint = value[len(MARKER) : HEADER_SIZE].hex()
    if schema is None:
        detail = f"expected the fingerprint of a schema of {expected}, found {fingerprint}, which is of no known schema"
        return _dead(DeadReason.UNKNOWN_SCHEMA, detail, source, value, key)
    detail = f"expected a record of {expected} on topic {source.topic}, found one of {schema.name}"
    return _dead(DeadReason.UNDECODABLE, detail, source, value, key)


def _dead(
    reason: DeadReason, detail: str, source: Source, raw: bytes, key: bytes | None, record: dict[str, Any] | None = None
) -> DeadLetter:
    lane = (key or b"").decode("utf-8", "replace")
    block = index = None
    if record is not None:
        lane = record["lane"][:LANE_NAME_LENGTH_MAX] or lane
        block = record["block"] if 0 <= record["block"] <= U32_MAX else None
        index = record.get("index", 0)
        index = index if 0 <= index <= U32_MAX else None
    return DeadLetter(lane[:LANE_NAME_LENGTH_MAX], reason, detail, source, raw, block, index)


def _text(error: Exception) -> str:
    return f" ({error})" if str(error) else ""


# --- shapes: a decoded record to its fields, every range checked -------------------------------------------------------------------------


def _check_u32(field: str, value: int) -> None:
    if not 0 <= value <= U32_MAX:
        raise LimitError(field, f"0 to {U32_MAX}", value)


def _check_count(field: str, value: int, limit: int) -> None:
    if not 0 <= value <= limit:
        raise LimitError(field, f"0 to {limit}", value)


def _check_place(lane: str, block: int, index: int) -> None:
    if not 0 < len(lane) <= LANE_NAME_LENGTH_MAX:
        raise LimitError("lane", f"1 to {LANE_NAME_LENGTH_MAX} characters", f"{len(lane)}")
    _check_u32("block", block)
    if not 0 <= index < RECORDS_PER_BLOCK_MAX:
        raise LimitError("index", f"0 to {RECORDS_PER_BLOCK_MAX - 1}", index)


def _check_payload(field: str, payload: bytes) -> None:
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LimitError(field, f"at most {PAYLOAD_BYTES_MAX} bytes", f"{len(payload)} bytes")


def _parent(field: str, block: int, value: int | None) -> int:
    if value is not None:
        return value
    if block == 0:
        raise LimitError(field, "a block number, since block 0 has none before it", "null")
    return block - 1


_CANDIDATE = itemgetter(
    "lane",
    "block",
    "index",
    "para_id",
    "relay_parent_number",
    "hrmp_watermark",
    "upward_messages",
    "processed_downward_messages",
    "horizontal_messages",
    "candidate_hash",
)


def _shape_candidate(record: dict[str, Any]) -> Shaped:
    lane, block, index, para_id, parent, watermark, upward, processed, horizontal, candidate_hash = _CANDIDATE(record)
    _check_place(lane, block, index)
    _check_u32("para_id", para_id)
    parent = _parent("relay_parent_number", block, parent)
    _check_u32("relay_parent_number", parent)
    _check_u32("hrmp_watermark", watermark)
    if len(upward) > MESSAGES_PER_CANDIDATE_MAX:
        raise LimitError("upward_messages", f"at most {MESSAGES_PER_CANDIDATE_MAX} messages", len(upward))
    for idx, data in enumerate(upward):
        _check_payload(f"upward_messages[{idx}]", data)
    _check_u32("processed_downward_messages", processed)
    if len(horizontal) > MESSAGES_PER_CANDIDATE_MAX:
        raise LimitError("horizontal_messages", f"at most {MESSAGES_PER_CANDIDATE_MAX} messages", len(horizontal))
    messages: list[tuple[int, bytes, bytes]] = []
    for message in horizontal:
        recipient, data = message["recipient"], message["data"]
        if not 0 <= recipient <= U32_MAX:
            raise LimitError(f"horizontal_messages[{len(messages)}].recipient", f"0 to {U32_MAX}", recipient)
        if len(data) > PAYLOAD_BYTES_MAX:
            _check_payload(f"horizontal_messages[{len(messages)}].data", data)
        messages.append((recipient, data, message_hash(data)))
    return lane, block, index, (para_id, parent, watermark, tuple(upward), processed, tuple(messages), candidate_hash)


def _shape_downward(record: dict[str, Any]) -> Shaped:
    lane, block, index, para_id, msg = itemgetter("lane", "block", "index", "para_id", "msg")(record)
    _check_place(lane, block, index)
    _check_u32("para_id", para_id)
    _check_payload("msg", msg)
    return lane, block, index, (para_id, msg, message_hash(msg))


_REQUEST_FIELDS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "validator.router.InitOpenChannel": (0, ("origin", "recipient", "max_places", "max_message_size")),
    "validator.router.AcceptOpenChannel": (1, ("origin", "sender")),
    "validator.router.CloseChannel": (2, ("origin", "channel")),
    "validator.router.ScheduleParaCleanup": (3, ("para_id",)),
}


def _shape_request(record: dict[str, Any]) -> Shaped:
    lane, block, index, (name, call) = itemgetter("lane", "block", "index", "request")(record)
    _check_place(lane, block, index)
    variant, names = _REQUEST_FIELDS[name]
    arguments: list[Any] = []
    for argument in names:
        value = call[argument]
        if argument == "channel":
            _check_u32("request.channel.sender", value["sender"])
            _check_u32("request.channel.recipient", value["recipient"])
            value = value["sender"], value["recipient"]
        else:
            _check_u32(f"request.{argument}", value)
        arguments.append(value)
    return lane, block, index, (variant, *arguments)


def _shape_block(record: dict[str, Any]) -> Shaped:
    lane, block, change = record["lane"], record["block"], record["session_change"]
    _check_place(lane, block, 0)
    parent = _parent("parent_number", block, record["parent_number"])
    if not 0 <= parent < block:
        raise LimitError("parent_number", f"0 to {block - 1}, below the block", parent)
    for name in ("candidates", "requests", "downward"):
        _check_count(name, record[name], RECORDS_PER_BLOCK_MAX)
    fields = (
        block,
        parent,
        record["candidates"],
        record["requests"],
        record["downward"],
        _shape_pending("included", record["included"]),
        _shape_pending("timed_out", record["timed_out"]),
        None if change is None else _shape_session_change(change),
        record["block_hash"],
    )
    return lane, block, 0, fields


def _shape_pending(field: str, refs: list[dict[str, Any]]) -> tuple[tuple[int, int | None], ...]:
    _check_length(field, refs)
    for position, ref in enumerate(refs):
        _check_u32(f"{field}[{position}].para_id", ref["para_id"])
        if ref["backed_at"] is not None:
            _check_u32(f"{field}[{position}].backed_at", ref["backed_at"])
    return tuple((ref["para_id"], ref["backed_at"]) for ref in refs)


def _check_length(field: str, items: Sequence[object]) -> None:
    if len(items) > RECORDS_PER_BLOCK_MAX:
        raise LimitError(field, f"at most {RECORDS_PER_BLOCK_MAX} entries", len(items))


def _shape_session_change(change: dict[str, Any]) -> tuple[Any, ...]:
    outgoing, onboarding, config = change["outgoing"], change["onboarding"], change["new_config"]
    _check_length("session_change.outgoing", outgoing)
    _check_length("session_change.onboarding", onboarding)
    for position, para_id in enumerate(outgoing):
        _check_u32(f"session_change.outgoing[{position}]", para_id)
    for position, para in enumerate(onboarding):
        _check_u32(f"session_change.onboarding[{position}].para_id", para["para_id"])
    paras = tuple((para["para_id"], para["kind"], int.from_bytes(para["balance"])) for para in onboarding)
    if config is None:
        return tuple(outgoing), paras, ()
    return tuple(outgoing), paras, _shape_configuration(config)


def _shape_configuration(config: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    changed = []
    for name in CONFIGURATION_FIELDS:
        value = config[name]
        if value is None:
            continue
        if isinstance(value, bytes):  # a deposit, u128
            value = int.from_bytes(value)
        elif name == "preferred_dispatchable_upward_messages_step_weight":
            _check_count(f"session_change.new_config.{name}", value, 2**63 - 1)
        else:
            _check_u32(f"session_change.new_config.{name}", value)
        changed.append((name, value))
    return tuple(changed)


_SHAPES: Final[dict[str, Callable[[dict[str, Any]], Shaped]]] = {
    "validator.Block": _shape_block,
    "validator.router.Candidate": _shape_candidate,
    "validator.router.ChannelRequest": _shape_request,
    "validator.DownwardMessage": _shape_downward,
}


def _entries(known: SchemaSet) -> dict[bytes, _Entry]:
    """Return how to read every input record, by its first ten bytes."""
    entries = {}
    for topic, kind in INPUT_TOPICS.items():
        for name in TOPIC_SCHEMAS[topic]:
            current = known[name]
            for schema in (*known.versions[name], current):
                reader = None if schema.canonical == current.canonical else current.parsed
                entries[schema.header] = _Entry(
                    kind, name, schema.parsed, reader, kind == RecordKind.REQUEST, _SHAPES[name]
                )
    return entries


_ENTRIES: Final = _entries(schemas())
