# SPDX-License-Identifier: Apache-2.0
"""Collects what a batch brings for one lane.

A record of 8 MiB may be a few hundred bytes compressed, so a batch of a bounded number of records may be larger than a worker's memory.
Beyond a limit the records' contents are dropped, and only their places are kept: the lane takes them from Kafka again, in shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Final, NamedTuple, Self

from validator.codec.inflight import Arrival, has_only_inputs, pack, unpack
from validator.codec.orders import LaneOrder
from validator.lanes.parked import Place, Span, held_with

PART_BYTES: Final = 4 * 1024 * 1024
"""Packed bytes after which a part of a batch ends, with the chunk that exceeds them: some ten thousand small records."""


class Chunk(NamedTuple):
    """A run of one lane's packed inputs from one partition (`codec.inflight.pack`), in the order of offsets."""

    topic: str
    partition: int
    first_offset: int
    packed: bytes


class DoesNotFit(MemoryError):
    """A part of a batch does not fit in the worker's memory."""


class Inputs:
    """A lane's inputs in a batch, in parts that are unpacked when they are taken.

    A lane that executes part by part holds little at once, and works on what the processor has in its caches. Each part is like a batch by
    itself: what a lane gives does not depend on where batches end.
    """

    def __init__(self, parts: Sequence[Sequence[bytes]], orders: list[LaneOrder]) -> None:
        self._parts = parts
        self.orders = orders
        """The orders among them."""

    @classmethod
    def of(cls, items: Sequence[Arrival]) -> Self:
        """Return inputs that are in memory already, as one part."""
        return cls([[pack(items)]], [item for item in items if isinstance(item, LaneOrder)])

    def parts(self) -> Iterator[list[Arrival]]:
        """Yield the parts, at least one. Raises `DoesNotFit`."""
        for part in self._parts:
            try:
                items = list(chain.from_iterable(map(unpack, part)))
            except MemoryError:
                size = sum(map(len, part))
                raise DoesNotFit(
                    f"{size} bytes of its records in one batch do not fit in the worker's memory"
                ) from None
            yield items

    def __iter__(self) -> Iterator[Arrival]:
        """Yield the inputs, a chunk at a time in memory."""
        for part in self._parts:
            for packed in part:
                yield from unpack(packed)


class Arrived(NamedTuple):
    """A lane's inputs in a batch.

    If they are too large, ``items`` has only the orders, ``left`` the places of everything else, and ``too_large`` the reason.
    """

    items: Inputs
    left: dict[Place, Span]
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
        orders = list(chain.from_iterable(map(_orders, sorted(kept))))
    except MemoryError:
        return _places(kept, iter(()), f"its records in one batch, of {size} bytes, do not fit in the worker's memory")
    return Arrived(Inputs([[each.packed for each in sorted(part)] for part in _parts(kept)], orders), {})


def _parts(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """Divide a batch into parts of about `PART_BYTES`, each with the same share of every partition: they are about the same blocks."""
    by_place: dict[Place, list[Chunk]] = {}
    for each in sorted(chunks):
        by_place.setdefault((each.topic, each.partition), []).append(each)
    begin_at: list[tuple[float, Chunk]] = []
    for run in by_place.values():
        *before, total = accumulate((len(each.packed) for each in run), initial=0)
        begin_at += zip((size / total for size in before), run, strict=True)
    parts: list[list[Chunk]] = [[]]
    size = 0
    for _, each in sorted(begin_at):
        if size >= PART_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(each)
        size += len(each.packed)
    return parts


def _orders(chunk: Chunk) -> Iterator[LaneOrder]:
    if not has_only_inputs(chunk.packed):
        yield from (item for item in unpack(chunk.packed) if isinstance(item, LaneOrder))


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
    left: dict[Place, Span] = {}
    orders: list[LaneOrder] = []
    dropped = (kept.pop() for _ in range(len(kept)))
    for each in chain(dropped, remaining):
        items = unpack(each.packed)
        left = held_with(left, items)
        orders += (item for item in items if isinstance(item, LaneOrder))
    return Arrived(Inputs.of(sorted(orders, key=lambda order: order.source)), left, reason)
