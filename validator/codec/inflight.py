# SPDX-License-Identifier: Apache-2.0
"""Decoded records as bytes, between the process that decodes them and the one that executes them.

They are packed with marshal, Python's fastest format for plain tuples. marshal is made for exactly one interpreter version and for trusted
bytes. So nothing packed here is stored or sent to another program: it lives between two stages of one micro-batch of one job, whose workers
run the same Python. Stored data (journal, snapshots) has its own canonical, versioned encoding.
"""

from __future__ import annotations

import marshal
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from validator.codec.orders import InputSpan, LaneOrder
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source, Unreadable, Whole, Withheld
from validator.core.types import maker

if TYPE_CHECKING:
    from collections.abc import Sequence

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
