# SPDX-License-Identifier: Apache-2.0
"""Decides what a record of an input topic is to the job, and which lane gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.codec.dead_letters import fitted
from validator.codec.decode import decode_record
from validator.codec.orders import decode_order
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Unreadable, Whole
from validator.core.limits import LANE_NAME_LENGTH_MAX, RECORD_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.codec.codec import Codec, RecordChecks
    from validator.codec.inflight import Arrival
    from validator.core.inputs import Input, Source

NO_LANE = ""
"""The destination of records that belong to no configured lane."""


def arrival(
    codec: Codec,
    kind: RecordKind,
    value: bytes | None,
    source: Source,
    key: bytes | None,
    lanes: Mapping[str, RecordChecks],
) -> tuple[str, Arrival]:
    """Return a record and the configured lane that it is for, or `NO_LANE`; ``lanes`` are the configured ones.

    If decoding fails through a bug, the lane that the key names gets an `Unreadable`. Raises only `MemoryError`.
    """
    try:
        if kind == RecordKind.BLOCK and value is not None:
            value = codec.plain(value)
            if (order := decode_order(value, source)) is not None and order.lane in lanes:
                return order.lane, order
        decoded = decode_record(codec, kind, value, source, key, lanes)
    except MemoryError:  # says something of the process, not of the record
        raise
    except Exception as error:  # noqa: BLE001 - one record must not stop every lane
        return _unreadable(error, value or b"", source, key, lanes)
    if isinstance(decoded, DeadLetter):
        return (decoded.lane if decoded.lane in lanes else NO_LANE), decoded
    lane, item = decoded
    return (lane, item) if lane in lanes else (NO_LANE, _unknown_lane(item, lane))


def oversized(
    ends: bytes, size: int, source: Source, key: bytes | None, lanes: Mapping[str, RecordChecks]
) -> tuple[str, DeadLetter]:
    """Return the dead letter of a record that is too large to be handed over whole, and the configured lane that its key names."""
    lane = (key or b"").decode("utf-8", "replace")[:LANE_NAME_LENGTH_MAX]
    detail = f"expected at most {RECORD_BYTES_MAX} bytes, found {size}"
    letter = DeadLetter(lane, DeadReason.LIMIT, detail, source, ends, whole=Whole(size, None))
    return (lane if lane in lanes else NO_LANE), letter


def _unreadable(
    error: Exception, raw: bytes, source: Source, key: bytes | None, lanes: Mapping[str, RecordChecks]
) -> tuple[str, Arrival]:
    lane = (key or b"").decode("utf-8", "replace")[:LANE_NAME_LENGTH_MAX]
    detail = f"decoding fails with {type(error).__name__}: {error}"
    if lane in lanes:
        return lane, Unreadable(lane, detail, source, raw)
    return NO_LANE, fitted(DeadLetter(lane, DeadReason.UNDECODABLE, detail, source, raw))


def _unknown_lane(item: Input, lane: str) -> DeadLetter:
    detail = f"lane {lane!r} is not configured"
    return DeadLetter(lane, DeadReason.UNKNOWN_LANE, detail, item.source, item.raw, item.block, item.index)
