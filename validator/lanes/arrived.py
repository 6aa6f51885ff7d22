# SPDX-License-Identifier: Apache-2.0
"""Collects what a batch brings for one lane.

A record of 8 MiB may be a few hundred bytes compressed, so a batch of a bounded number of records may be larger than a worker's memory.
Beyond a limit the records' contents are dropped, and only their places are kept: the lane takes them from Kafka again, in shares.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from validator.codec.inflight import Arrival, has_only_inputs, unpack
from validator.codec.orders import LaneOrder
from validator.lanes.parked import Partition, Span, held_with

PART_RECORDS: Final = 10_000
"""Records of a part of a batch, about: a lane takes a larger batch in several."""


class Chunk(NamedTuple):
    """A run of one lane's packed inputs from one partition (`codec.inflight.pack`), in the order of offsets."""

    topic: str
    partition: int
    first_offset: int
    end_offset: int
    """The offset after the last one."""
    records: int
    packed: bytes


class DoesNotFit(MemoryError):
    """A part of a batch does not fit in the worker's memory."""


class Inputs:
    """A lane's inputs in a batch, here as one part that is in memory."""

    def __init__(self, items: list[Arrival]) -> None:
        self._items = items
        self.orders = [item for item in items if isinstance(item, LaneOrder)]
        """The orders among them."""

    def parts(self) -> Iterator[list[Arrival]]:
        """Yield the parts, at least one."""
        yield self._items

    def __iter__(self) -> Iterator[Arrival]:
        return iter(self._items)


class PackedInputs(Inputs):
    """Inputs in parts that are unpacked when they are taken.

    A lane that executes part by part holds little at once, and works on what the processor has in its caches. Each part is like a batch by
    itself: what a lane gives does not depend on where batches end. Parts have the same share of each partition's offsets, so they are about
    the same blocks. Borders follow from the batch alone and not from its chunks: another attempt at the batch, with other chunks, has to
    leave the same journal.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        """Raises `MemoryError`."""
        self._runs: dict[Partition, list[Chunk]] = {}
        records = 0
        super().__init__([])
        for each in sorted(chunks):
            self._runs.setdefault((each.topic, each.partition), []).append(each)
            records += each.records
            if not has_only_inputs(each.packed):
                self.orders += (item for item in unpack(each.packed) if isinstance(item, LaneOrder))
        self._count = max(1, -(-records // PART_RECORDS))

    def parts(self) -> Iterator[list[Arrival]]:
        """Yield the parts, at least one. Raises `DoesNotFit`."""
        shares = [_shares(chunks, self._count) for chunks in self._runs.values()]
        for _ in range(self._count):
            try:
                items = list(chain.from_iterable(map(next, shares)))
            except MemoryError:
                raise DoesNotFit("its records in one batch do not fit in the worker's memory") from None
            yield items

    def __iter__(self) -> Iterator[Arrival]:
        """Yield the inputs, a chunk at a time in memory."""
        for each in chain.from_iterable(self._runs.values()):
            yield from unpack(each.packed)


def _shares(chunks: Sequence[Chunk], count: int) -> Iterator[list[Arrival]]:
    """Yield the inputs of a partition in shares of its offsets."""
    first, end = chunks[0].first_offset, chunks[-1].end_offset
    unpacked: list[Arrival] = []
    taken = 0
    for number in range(1, count + 1):
        border = first + (end - first) * number // count
        while taken < len(chunks) and chunks[taken].first_offset < border:
            unpacked += unpack(chunks[taken].packed)
            taken += 1
        at = bisect_left(unpacked, border, key=_offset_of)
        share, unpacked = unpacked[:at], unpacked[at:]
        yield share


def _offset_of(item: Arrival) -> int:
    return item.source.offset


class Arrived(NamedTuple):
    """A lane's inputs in a batch.

    If they are too large, ``items`` has only the orders, ``left`` the places of everything else, and ``too_large`` the reason.
    """

    items: Inputs
    left: dict[Partition, Span]
    too_large: str = ""


def arrived(chunks: Iterable[Chunk], bytes_max: int) -> Arrived:
    """Return what the chunks hold, which come in any order; ``bytes_max`` bounds their packed bytes together."""
    kept: list[Chunk] = []
    size = 0
    remaining = iter(chunks)
    for each in remaining:
        kept.append(each)
        size += len(each.packed)
        if size > bytes_max:
            return _places(kept, remaining, f"its records in one batch have more than {bytes_max} bytes")
    try:
        return Arrived(PackedInputs(kept), {})
    except MemoryError:
        return _places(kept, iter(()), f"its records in one batch, of {size} bytes, do not fit in the worker's memory")


def runs(chunks: Iterable[Chunk], bytes_max: int) -> Iterator[list[Arrival]]:
    """Yield the same in runs of chunks with about ``bytes_max`` packed bytes, each in order."""
    kept: list[Chunk] = []
    size = 0
    for each in chunks:
        kept.append(each)
        size += len(each.packed)
        if size > bytes_max:
            yield _unpacked(kept)
            kept, size = [], 0
    yield _unpacked(kept)


def _unpacked(chunks: list[Chunk]) -> list[Arrival]:
    return list(chain.from_iterable(unpack(each.packed) for each in sorted(chunks)))


def _places(kept: list[Chunk], remaining: Iterator[Chunk], reason: str) -> Arrived:
    left: dict[Partition, Span] = {}
    orders: list[LaneOrder] = []
    dropped = (kept.pop() for _ in range(len(kept)))
    for each in chain(dropped, remaining):
        items = unpack(each.packed)
        left = held_with(left, items)
        orders += (item for item in items if isinstance(item, LaneOrder))
    return Arrived(Inputs(sorted(orders, key=lambda order: order.source)), left, reason)
