# SPDX-License-Identifier: Apache-2.0
"""Collects what a batch brings for one lane.

A record of 8 MiB may be a few hundred bytes compressed, so a batch of a bounded number of records may be larger than a worker's memory.
Beyond a limit the records' contents are dropped, and only their places are kept: the lane takes them from Kafka again, in shares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from validator.codec.inflight import Arrival, unpack
from validator.codec.orders import LaneOrder
from validator.lanes.parked import Place, Span, held_with


class Chunk(NamedTuple):
    """A run of one lane's packed inputs from one partition (`codec.inflight.pack`), in the order of offsets."""

    topic: str
    partition: int
    first_offset: int
    packed: bytes


class Arrived(NamedTuple):
    """A lane's inputs in a batch, by topic, partition and offset.

    If they are too large, ``items`` has only the orders, ``left`` the places of everything else, and ``too_large`` the reason.
    """

    items: list[Arrival]
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
        return Arrived(_unpacked(kept), {})
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
    left: dict[Place, Span] = {}
    orders: list[LaneOrder] = []
    dropped = (kept.pop() for _ in range(len(kept)))
    for each in chain(dropped, remaining):
        items = unpack(each.packed)
        left = held_with(left, items)
        orders += (item for item in items if isinstance(item, LaneOrder))
    return Arrived(sorted(orders, key=lambda order: order.source), left, reason)
