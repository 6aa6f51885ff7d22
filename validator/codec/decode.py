# SPDX-License-Identifier: Apache-2.0
"""Decodes a Kafka value into an input record, or into a dead letter that says what is wrong with it.

Bytes from Kafka are hostile until proven otherwise, so the work on them is bounded. A record's size is checked first. Every Avro item of
our schemas takes at least one byte, so a false length or block count fails at the end of the input, and items are counted before they are
built (`strict`). No schema is recursive. A value that a writer of its schema would have written with other bytes becomes a dead letter.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from validator.codec.encode import fitted
from validator.codec.framing import framed_id
from validator.codec.record_types import check_count, check_u32
from validator.codec.schemas import HEADER_SIZE, MARKER
from validator.codec.strict import NotCanonical, TooManyItems
from validator.core.errors import LimitError
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.limits import LANE_NAME_LENGTH_MAX, RECORD_BYTES_MAX, RECORDS_PER_BLOCK_MAX, U32_MAX
from validator.core.types import maker
from validator.topics import TOPIC_OF_KIND

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.codec.codec import Codec, Reading, RecordChecks


_input = maker(Input)


def decode_record(
    codec: Codec,
    kind: RecordKind,
    value: bytes | None,
    source: Source,
    key: bytes | None = None,
    lanes: Mapping[str, RecordChecks] | None = None,
) -> tuple[str, Input] | DeadLetter:
    """Return the lane and the input that a Kafka value holds, or the dead letter that it becomes.

    ``kind`` is the kind of the topic it was read from. A value in Confluent's framing is brought into its plain form first, in which the
    input or dead letter keeps it, unless the codec does not know its id. Checked in this order: the value exists, its size, its marker, its
    fingerprint, the record's type against the topic, the Avro bytes to the last one and their form, every field in schema order, and the
    record against its lane's protocol if ``lanes`` has the lane. If the bytes name no lane, the dead letter takes the lane from ``key``.
    """
    entry = codec.readings.get(value[:HEADER_SIZE]) if value is not None else None
    if value is None or entry is None or entry.kind != kind or len(value) > RECORD_BYTES_MAX:
        if value is not None and (plain := codec.plain(value)) is not value:
            return decode_record(codec, kind, plain, source, key, lanes)
        return _unreadable(codec, kind, value, source, key)
    record: Any = None
    try:
        record = entry.read(value, HEADER_SIZE)
        lane, block, index = record["lane"], record["block"], record.get("index", 0)
        _check_place(lane, block, index)
        fields = entry.shape(record)
        if lanes is not None and lane in lanes:
            _check_protocol(entry, record, lanes[lane])
    except LimitError as error:
        return _dead(DeadReason.LIMIT, f"{entry.name}.{error}", source, value, key, record)
    except NotCanonical as error:
        reason = DeadReason.LIMIT if isinstance(error, TooManyItems) else DeadReason.UNDECODABLE
        return _dead(reason, error.within(entry.name), source, value, key)
    return lane, _input((kind, block, index, blake2b(value, digest_size=8).digest(), source, value, fields))


def check_ranges(codec: Codec, value: bytes, record: dict[str, Any]) -> None:
    """Check an input record that a value is known to hold as `decode_record` does. Raises `LimitError`."""
    if len(value) > RECORD_BYTES_MAX:
        raise LimitError("value", f"at most {RECORD_BYTES_MAX} bytes", len(value))
    _check_place(record["lane"], record["block"], record.get("index", 0))
    codec.readings[value[:HEADER_SIZE]].shape(record)


# --- unreadable values --------------------------------------------------------------------------------------------------------------------


def _unreadable(codec: Codec, kind: RecordKind, value: bytes | None, source: Source, key: bytes | None) -> DeadLetter:
    expected = " or ".join(codec.names(TOPIC_OF_KIND[kind]))
    if value is None:
        return _dead(DeadReason.UNDECODABLE, f"expected a record of {expected}, found no value", source, b"", key)
    if len(value) > RECORD_BYTES_MAX:
        detail = f"expected at most {RECORD_BYTES_MAX} bytes, found {len(value)}"
        return _dead(DeadReason.LIMIT, detail, source, value, key)
    schema_id = framed_id(value)
    if schema_id is not None and codec.ids:
        detail = f"expected the id of a schema of {expected}, found {schema_id}, which the schema registry did not have when it was asked"
        return _dead(DeadReason.UNKNOWN_SCHEMA, detail, source, value, key)
    if len(value) < HEADER_SIZE or not value.startswith(MARKER):
        found = f"{len(value)} bytes that start with {value[:HEADER_SIZE].hex() or 'nothing'}"
        detail = f"expected Avro single-object encoding (c301 and an 8-byte fingerprint), found {found}"
        return _dead(DeadReason.UNDECODABLE, detail, source, value, key)
    schema = codec.by_header.get(value[:HEADER_SIZE])
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
    return fitted(DeadLetter(lane[:LANE_NAME_LENGTH_MAX], reason, detail, source, raw, block, index))


# --- checks against the lane --------------------------------------------------------------------------------------------------------------


def _check_place(lane: str, block: int, index: int) -> None:
    if not 0 < len(lane) <= LANE_NAME_LENGTH_MAX:
        raise LimitError("lane", f"1 to {LANE_NAME_LENGTH_MAX} characters", f"{len(lane)}")
    check_u32("block", block)
    if not 0 <= index < RECORDS_PER_BLOCK_MAX:
        raise LimitError("index", f"0 to {RECORDS_PER_BLOCK_MAX - 1}", index)


def _check_protocol(entry: Reading, record: dict[str, Any], of_lane: RecordChecks) -> None:
    """Raise `LimitError` if a record does not belong to its lane's protocol."""
    if entry.protocols and of_lane.protocol not in entry.protocols:
        raise LimitError("lane", f"a lane of protocol {' or '.join(entry.protocols)}", f"one of {of_lane.protocol}")
    change = record.get("session_change")
    if change is None:
        return
    if change["new_config"] is not None and not of_lane.typed_limits:
        raise LimitError(
            "session_change.new_config", f"null on a lane of protocol {of_lane.protocol}", "a configuration"
        )
    for name, value in sorted(change["limits"].items()):
        if of_lane.typed_limits:
            raise LimitError("session_change.limits", f"no entry on a lane of protocol {of_lane.protocol}", name)
        if name not in of_lane.maxima:
            raise LimitError("session_change.limits", f"one of {', '.join(of_lane.maxima)}", name)
        check_count(f"session_change.limits.{name}", int.from_bytes(value), of_lane.maxima[name])
