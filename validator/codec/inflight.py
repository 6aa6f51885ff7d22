# SPDX-License-Identifier: Apache-2.0
"""What arrives for a lane: decides what a record of an input topic is to the job, and carries it between two processes.

Decoded records are packed with marshal, Python's fastest format for plain tuples. marshal is made for exactly one interpreter version and
for trusted bytes. So nothing packed here is stored or sent to another program: it lives between two stages of one micro-batch of one job,
whose workers run the same Python. Stored data (journal, snapshots) has its own canonical, versioned encoding.
"""

from __future__ import annotations

import marshal
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.codec.decode import decode_record
from validator.codec.encode import fitted
from validator.codec.orders import InputSpan, LaneOrder, decode_order
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source, Unreadable, Whole, Withheld
from validator.core.limits import LANE_NAME_LENGTH_MAX, RECORD_BYTES_MAX
from validator.core.types import maker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from validator.codec.codec import Codec, RecordChecks
    from validator.core.inputs import Input, Source


Arrival: TypeAlias = Input | DeadLetter | LaneOrder | Unreadable | Withheld
"""What arrives for a lane."""

_KINDS = tuple(RecordKind)
_REASONS = tuple(DeadReason)

_FORMAT: Final = 2
"""Version of marshal's format. Later ones look for objects that occur twice, which costs more here than it saves."""

_TUPLE: Final = marshal.dumps((), _FORMAT)[:1]
"""How a packed tuple begins, by which inputs are in columns."""


def pack(items: Sequence[Arrival]) -> bytes:
    """Return what arrives for lanes as bytes for `unpack`; marshal accepts only plain tuples and ints, hence the conversions."""
    columns = _columns(items)
    return marshal.dumps([_plain(item) for item in items] if columns is None else columns, _FORMAT)


def unpack(packed: bytes) -> list[Arrival]:
    """Return the items that `pack` was given, in order."""
    plain = marshal.loads(packed)  # noqa: S302 - see the module docstring
    return _from_columns(*plain) if isinstance(plain, tuple) else [_typed(each) for each in plain]


def has_only_inputs(packed: bytes) -> bool:
    """Return whether all packed items are inputs; false if that is not known without unpacking them."""
    return packed[:1] == _TUPLE


# --- inputs of one partition, which is nearly everything: by columns, which C code takes apart and puts together ---

_source, _input = maker(Source), maker(Input)


def _columns(items: Sequence[Arrival]) -> tuple[Any, ...] | None:
    """Return the inputs of one partition by columns, None if there is anything else among the items."""
    if set(map(type, items)) != {Input}:
        return None
    kinds, blocks, indexes, fingerprints, sources, raws, fields = zip(*items, strict=True)
    topics, partitions, offsets = zip(*sources, strict=True)
    places = set(zip(topics, partitions, strict=True))
    if len(places) > 1:
        return None
    return *places.pop(), tuple(map(int, kinds)), blocks, indexes, fingerprints, offsets, raws, fields


def _from_columns(topic: str, partition: int, kinds: tuple[int, ...], *columns: Any) -> list[Arrival]:
    blocks, indexes, fingerprints, offsets, raws, fields = columns
    sources = map(_source, zip(repeat(topic), repeat(partition), offsets))
    typed = map(_KINDS.__getitem__, kinds)
    return list(map(_input, zip(typed, blocks, indexes, fingerprints, sources, raws, fields, strict=True)))


# --- everything else, item by item ---


def _plain(item: Arrival) -> tuple[Any, ...]:
    if isinstance(item, Input):
        kind, block, index, fingerprint, source, raw, fields = item
        return int(kind), block, index, fingerprint, tuple(source), raw, fields
    if isinstance(item, LaneOrder):
        skips, inputs = [tuple(skip) for skip in sorted(item.skips)], [tuple(span) for span in item.inputs]
        return None, _ORDER, item.lane, skips, tuple(item.source), inputs, item.checkpoint
    if isinstance(item, Unreadable):
        return None, _UNREADABLE, item.lane, item.detail, tuple(item.source), item.raw
    if isinstance(item, Withheld):
        return None, _WITHHELD, item.lane, tuple(item.source)
    lane, reason, detail, source, raw, dead_block, dead_index, whole = item
    return lane, int(reason), detail, tuple(source), raw, dead_block, dead_index, whole and tuple(whole)


_ORDER, _UNREADABLE, _WITHHELD = range(3)


def _typed(plain: tuple[Any, ...]) -> Arrival:
    if plain[0] is None:
        return _typed_other(*plain[1:])
    if isinstance(plain[0], int):
        kind, block, index, fingerprint, source, raw, fields = plain
        return Input(_KINDS[kind], block, index, fingerprint, Source._make(source), raw, fields)
    lane, reason, detail, source, raw, dead_block, dead_index, whole = plain
    whole = whole and Whole._make(whole)
    return DeadLetter(lane, _REASONS[reason], detail, Source._make(source), raw, dead_block, dead_index, whole)


def _typed_other(what: int, lane: str, *parts: Any) -> Arrival:
    if what == _ORDER:
        skips, source, inputs, checkpoint = parts
        spans = tuple(map(InputSpan._make, inputs))
        return LaneOrder(lane, frozenset(map(Source._make, skips)), Source._make(source), spans, checkpoint)
    if what == _UNREADABLE:
        detail, source, raw = parts
        return Unreadable(lane, detail, Source._make(source), raw)
    return Withheld(lane, Source._make(*parts))


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
