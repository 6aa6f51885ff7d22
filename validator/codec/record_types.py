# SPDX-License-Identifier: Apache-2.0
"""How a protocol describes its own input records, and the shapes of those that all protocols share.

A shape turns a decoded record into its fields and checks every range."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.core.errors import LimitError
from validator.core.hashing import message_hash
from validator.core.limits import PAYLOAD_BYTES_MAX, RECORDS_PER_BLOCK_MAX, U32_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from validator.codec.schemas import Json, Schema


Shaped: TypeAlias = tuple[Any, ...]
"""Fields in the form of `Input.fields`."""

Shape: TypeAlias = Callable[[dict[str, Any]], Shaped]
"""Turns a decoded record into its fields, and checks their ranges."""

RECORD_TOPICS: Final = ("candidates", "channel-requests")
"""The topics that carry protocols' own records."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """A protocol's own type of input record.

    ``topic`` is one of `RECORD_TOPICS`, ``schema`` the record's name. ``shape`` is called with the whole decoded record,
    whose fields lane, block and index have been checked. It returns the other fields as plain nested tuples of integers, bytes, strings and
    None; `RuleSet.candidate` or `RuleSet.request` builds the protocol's type from them. It raises `LimitError` for a value out of range,
    checking fields in schema order.
    """

    topic: str
    schema: str
    shape: Shape


def check_u32(field: str, value: int) -> None:
    """Raise `LimitError` if a value is not a u32."""
    if not 0 <= value <= U32_MAX:
        raise LimitError(field, f"0 to {U32_MAX}", value)


def check_count(field: str, value: int, limit: int) -> None:
    """Raise `LimitError` if a value is not from 0 to ``limit``."""
    if not 0 <= value <= limit:
        raise LimitError(field, f"0 to {limit}", value)


def check_payload(field: str, payload: bytes) -> None:
    """Raise `LimitError` if a message's payload is longer than any payload may be."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise LimitError(field, f"at most {PAYLOAD_BYTES_MAX} bytes", f"{len(payload)} bytes")


def relay_parent(field: str, block: int, value: int | None) -> int:
    """Return ``value``, or the number of the block before ``block`` if it is None. Raises `LimitError`."""
    if value is None:
        if block == 0:
            raise LimitError(field, "a block number, since block 0 has none before it", "null")
        return block - 1
    check_u32(field, value)
    return value


LONG_MAXIMA: Final = {"u8": 255, "u32": U32_MAX, "u63": 2**63 - 1, "xcm_version": 5}
"""Maximum of an Avro long by its logical type. A type has no other attribute: goavro would take another fingerprint."""


def shape_downward(record: dict[str, Any]) -> Shaped:
    """Return the fields of a downward message. Raises `LimitError`."""
    para_id, msg = record["para_id"], record["msg"]
    check_u32("para_id", para_id)
    check_payload("msg", msg)
    return para_id, msg, message_hash(msg)


def block_shape(schema: Schema) -> Shape:
    """Return the shape of a schema's block records; the schema says which limits a session change may set, and their maxima."""
    change = _record_type(_field(schema.source, "session_change"))
    limits = _limits(_record_type(_field(change, "new_config")))

    def shape_block(record: dict[str, Any]) -> Shaped:
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
            None if change is None else _shape_session_change(change, limits),
            record["block_hash"],
        )

    return shape_block


def _field(record: Json, name: str) -> Json:
    return next(field["type"] for field in record["fields"] if field["name"] == name)


def _record_type(union: Json) -> Json:
    return next(branch for branch in union if branch != "null")


def _limits(record: Json) -> tuple[tuple[str, int | None], ...]:
    """Return the names and maxima of a record's optional fields; None for a u128, whose 16 bytes hold nothing greater."""
    return tuple((field["name"], _greatest(_record_type(field["type"]))) for field in record["fields"])


def _greatest(kind: Json) -> int | None:
    if not isinstance(kind, dict) or kind["type"] != "long":
        return None
    return LONG_MAXIMA[kind["logicalType"]]


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


def _shape_session_change(change: dict[str, Any], greatest: tuple[tuple[str, int | None], ...]) -> tuple[Any, ...]:
    outgoing, onboarding, config, limits = _SESSION_CHANGE(change)
    _check_length("session_change.outgoing", outgoing)
    _check_length("session_change.onboarding", onboarding)
    for position, para_id in enumerate(outgoing):
        check_u32(f"session_change.outgoing[{position}]", para_id)
    for position, para in enumerate(onboarding):
        check_u32(f"session_change.onboarding[{position}].para_id", para["para_id"])
    paras = tuple((para["para_id"], para["kind"], int.from_bytes(para["balance"])) for para in onboarding)
    changes = () if config is None else _shape_configuration(config, greatest)
    return tuple(outgoing), paras, (*changes, *((name, int.from_bytes(limits[name])) for name in sorted(limits)))


def _shape_configuration(
    config: dict[str, Any], greatest: tuple[tuple[str, int | None], ...]
) -> tuple[tuple[str, int], ...]:
    changed = []
    for name, limit in greatest:
        value = config[name]
        if value is None:
            continue
        if limit is None:
            value = int.from_bytes(value)
        else:
            check_count(f"session_change.new_config.{name}", value, limit)
        changed.append((name, value))
    return tuple(changed)
