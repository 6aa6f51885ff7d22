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

from validator.codec.record_types import RecordType, check_count, check_payload, check_u32, relay_parent
from validator.codec.schemas import (
    HEADER_SIZE,
    INPUT_TOPICS,
    MARKER,
    TOPIC_SCHEMAS,
    SchemaSet,
    learn_schemas,
    schema_of_header,
    schemas,
)
from validator.codec.walk import WALK_BYTES_MIN, TooManyItems, walk
from validator.core.errors import LimitError
from validator.core.hashing import message_hash
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.limits import (
    LANE_NAME_LENGTH_MAX,
    RECORD_BYTES_MAX,
    RECORDS_PER_BLOCK_MAX,
    U32_MAX,
)
from validator.protocols.router.configuration import CONFIGURATION_FIELDS
from validator.protocols.router.shapes import ROUTER_RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from validator.codec.schemas import Json

Shaped: TypeAlias = tuple[Any, ...]
"""Fields as `Input.fields` has them."""

Row: TypeAlias = tuple[int, int, bytes | None, bytes | None]
"""Partition, offset, key and value of a Kafka record."""

_MALFORMED: Final = (EOFError, IndexError, ValueError, OverflowError, SchemaResolutionError)
"""What fastavro raises on bytes that are not of the schema (UnicodeDecodeError is a ValueError)."""


class _Entry(NamedTuple):
    """How to read the records of one fingerprint.

    ``reader`` is None where the writer's schema is the current one. ``name_records`` asks fastavro for the name of a union's record.
    ``protocol`` is None where every protocol has this record.
    """

    kind: RecordKind
    name: str
    writer: Json
    reader: Json
    name_records: bool
    shape: Callable[[dict[str, Any]], Shaped]
    protocol: str | None


class LaneRecords(NamedTuple):
    """What the records of a lane have to be like: those of its protocol; ``maxima`` are the limits that a session change may set."""

    protocol: str
    maxima: Mapping[str, int]


def decode_record(
    kind: RecordKind,
    value: bytes | None,
    source: Source,
    key: bytes | None = None,
    lanes: Mapping[str, LaneRecords] | None = None,
) -> tuple[str, Input] | DeadLetter:
    """Return the lane and the input that a Kafka value holds, or the dead letter that it ends as.

    ``kind`` is that of the topic it was read from. Checked in this order: there is a value, its size, its marker, its fingerprint, the
    record's type against the topic, the Avro bytes to the last one, then every field in the order of its schema, and whether it is a record
    of its lane's protocol, as far as ``lanes`` says that. Where the bytes name no lane the dead letter takes the ``key``'s.
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
        lane, block, index = record["lane"], record["block"], record.get("index", 0)
        _check_place(lane, block, index)
        fields = entry.shape(record)
        if lanes is not None and lane in lanes:
            _check_protocol(entry, record, lanes[lane])
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
    expected = " or ".join(input_schemas(kind))
    if value is None:
        return _dead(DeadReason.UNDECODABLE, f"expected a record of {expected}, found no value", source, b"", key)
    if len(value) > RECORD_BYTES_MAX:
        detail = f"expected at most {RECORD_BYTES_MAX} bytes, found {len(value)}"
        return _dead(DeadReason.LIMIT, detail, source, value, key)
    if len(value) < HEADER_SIZE or not value.startswith(MARKER):
        found = f"{len(value)} bytes that start with {value[:HEADER_SIZE].hex() or 'nothing'}"
        detail = f"expected Avro single-object encoding (c301 and an 8-byte fingerprint), found {found}"
        return _dead(DeadReason.UNDECODABLE, detail, source, value, key)
    schema = schema_of_header(value[:HEADER_SIZE])
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


def _check_place(lane: str, block: int, index: int) -> None:
    if not 0 < len(lane) <= LANE_NAME_LENGTH_MAX:
        raise LimitError("lane", f"1 to {LANE_NAME_LENGTH_MAX} characters", f"{len(lane)}")
    check_u32("block", block)
    if not 0 <= index < RECORDS_PER_BLOCK_MAX:
        raise LimitError("index", f"0 to {RECORDS_PER_BLOCK_MAX - 1}", index)


def _shape_downward(record: dict[str, Any]) -> Shaped:
    para_id, msg = record["para_id"], record["msg"]
    check_u32("para_id", para_id)
    check_payload("msg", msg)
    return para_id, msg, message_hash(msg)


def _shape_block(record: dict[str, Any]) -> Shaped:
    block, parent, change = record["block"], record["parent_number"], record["session_change"]
    if parent is None:
        parent = relay_parent("parent_number", block, None)
    if not 0 <= parent < block:
        raise LimitError("parent_number", f"0 to {block - 1}, below the block", parent)
    for name in ("candidates", "requests", "downward"):
        check_count(name, record[name], RECORDS_PER_BLOCK_MAX)
    return (
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


def _shape_pending(field: str, refs: list[dict[str, Any]]) -> tuple[tuple[int, int | None], ...]:
    _check_length(field, refs)
    for position, ref in enumerate(refs):
        check_u32(f"{field}[{position}].para_id", ref["para_id"])
        if ref["backed_at"] is not None:
            check_u32(f"{field}[{position}].backed_at", ref["backed_at"])
    return tuple((ref["para_id"], ref["backed_at"]) for ref in refs)


def _check_length(field: str, items: Sequence[object]) -> None:
    if len(items) > RECORDS_PER_BLOCK_MAX:
        raise LimitError(field, f"at most {RECORDS_PER_BLOCK_MAX} entries", len(items))


_SESSION_CHANGE = itemgetter("outgoing", "onboarding", "new_config", "limits")


def _shape_session_change(change: dict[str, Any]) -> tuple[Any, ...]:
    outgoing, onboarding, config, limits = _SESSION_CHANGE(change)
    _check_length("session_change.outgoing", outgoing)
    _check_length("session_change.onboarding", onboarding)
    for position, para_id in enumerate(outgoing):
        check_u32(f"session_change.outgoing[{position}]", para_id)
    for position, para in enumerate(onboarding):
        check_u32(f"session_change.onboarding[{position}].para_id", para["para_id"])
    paras = tuple((para["para_id"], para["kind"], int.from_bytes(para["balance"])) for para in onboarding)
    changes = () if config is None else _shape_configuration(config)
    return tuple(outgoing), paras, (*changes, *((name, int.from_bytes(limits[name])) for name in sorted(limits)))


def _shape_configuration(config: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    changed = []
    for name in CONFIGURATION_FIELDS:
        value = config[name]
        if value is None:
            continue
        if isinstance(value, bytes):  # a deposit, u128
            value = int.from_bytes(value)
        elif name == "preferred_dispatchable_upward_messages_step_weight":
            check_count(f"session_change.new_config.{name}", value, 2**63 - 1)
        else:
            check_u32(f"session_change.new_config.{name}", value)
        changed.append((name, value))
    return tuple(changed)


def _check_protocol(entry: _Entry, record: dict[str, Any], of_lane: LaneRecords) -> None:
    """Raise `LimitError` where a record is another protocol's than its lane's."""
    if entry.protocol not in (None, of_lane.protocol):
        raise LimitError("lane", f"a lane of protocol {entry.protocol}", f"one of {of_lane.protocol}")
    change = record.get("session_change")
    if change is None:
        return
    if change["new_config"] is not None and of_lane.protocol != ROUTER:
        raise LimitError(
            "session_change.new_config", f"null on a lane of protocol {of_lane.protocol}", "a configuration"
        )
    for name, value in sorted(change["limits"].items()):
        if of_lane.protocol == ROUTER:
            raise LimitError("session_change.limits", f"no entry on a lane of protocol {ROUTER}", name)
        if name not in of_lane.maxima:
            raise LimitError("session_change.limits", f"one of {', '.join(of_lane.maxima)}", name)
        check_count(f"session_change.limits.{name}", int.from_bytes(value), of_lane.maxima[name])


_COMMON: Final = {"validator.Block": _shape_block, "validator.DownwardMessage": _shape_downward}

ROUTER: Final = "router"

_ENTRIES: Final[dict[bytes, _Entry]] = {}
"""How to read every known input record, by its first ten bytes."""

_NAMES: Final[dict[tuple[RecordKind, str | None], str]] = {}
"""The record of each kind, by protocol; None where every protocol has it."""


def input_schema(kind: RecordKind, protocol: str = ROUTER) -> str:
    """Return the name of a protocol's record of a kind. Raises ``KeyError`` where this process has not learnt the protocol."""
    return _NAMES.get((kind, None)) or _NAMES[kind, protocol]


def input_schemas(kind: RecordKind) -> list[str]:
    """Return the names of all records of a kind that this process knows, the Router's first."""
    return [name for (of, _), name in _NAMES.items() if of == kind]


def _learn(
    topic: str, name: str, shape: Callable[[dict[str, Any]], Shaped], protocol: str | None, known: SchemaSet
) -> None:
    kind = INPUT_TOPICS[topic]
    current = known[name]
    _NAMES[kind, protocol] = name
    for schema in (*known.versions[name], current):
        reader = None if schema.canonical == current.canonical else current.parsed
        _ENTRIES[schema.header] = _Entry(kind, name, schema.parsed, reader, kind == RecordKind.REQUEST, shape, protocol)


def learn_records(protocol: str, records: Iterable[RecordType], known: SchemaSet) -> None:
    """Have this process read the records of a protocol from now on; again changes nothing."""
    learn_schemas(known)
    for record in records:
        _learn(record.topic, record.schema, record.shape, protocol, known)


for _topic, _names in TOPIC_SCHEMAS.items():
    for _name in _names:
        if _name in _COMMON:
            _learn(_topic, _name, _COMMON[_name], None, schemas())
learn_records(ROUTER, ROUTER_RECORDS, schemas())
