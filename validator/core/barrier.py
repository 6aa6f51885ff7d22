# SPDX-License-Identifier: Apache-2.0
"""The block barrier: the records of a lane that wait for their block, and what they occupy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter

from validator.core.inputs import Input, RecordKind, Source
from validator.core.resident import BLOCK_BYTES, record_bytes
from validator.core.scale import Reader, Writer
from validator.core.types import Block, BlockNumber, BlockRecord, ParaId
from validator.core.window import Place

_RAW = attrgetter("raw")


@dataclass(slots=True)
class WaitingBlock:
    """The records of one block that have arrived so far."""

    record: BlockRecord | None = None
    places: dict[Place, Input] = field(default_factory=dict)
    resident_bytes: int = 0
    """What the records that have been counted occupy in memory."""

    def missing(self) -> int:
        """Return how many of the block's records are missing; valid only once the block record has arrived."""
        assert self.record is not None
        return 1 + self.record.requests + self.record.downward + self.record.candidates - len(self.places)

    def candidates_of(self, para: ParaId | None, block: Block) -> list[str]:
        """Return where a para's candidates in the block were read from, as ``topic:partition:offset``."""
        found = (at for at, candidate in enumerate(block.candidates) if candidate.para_id == para)
        return [":".join(map(str, self.places[RecordKind.CANDIDATE, at].source)) for at in found]


@dataclass(slots=True)
class WaitingRecords:
    """The blocks that have records, and by parent the block that names it.

    The cost of a step does not depend on how many blocks wait: numbers that the chain passes are found by heaps, in which numbers that no
    longer wait stay until then. ``raw_bytes`` counts Kafka values.
    """

    blocks: dict[BlockNumber, WaitingBlock] = field(default_factory=dict)
    child_of: dict[BlockNumber, BlockNumber] = field(default_factory=dict)
    raw_bytes: int = 0
    _resident_bytes: int = 0
    _unsettled: list[Input] = field(default_factory=list)
    """Records that are not counted yet: most are executed before anybody asks what they occupy."""
    _numbers: list[BlockNumber] = field(default_factory=list)
    _parents: list[BlockNumber] = field(default_factory=list)

    def keep(self, item: Input, waiting: WaitingBlock) -> None:
        """Add a record to its block, which may be new."""
        if item.block not in self.blocks:
            self.blocks[item.block] = waiting
            heappush(self._numbers, item.block)
        waiting.places[item.kind, item.index] = item
        self.raw_bytes += len(item.raw)
        self._unsettled.append(item)

    def name_parent(self, record: BlockRecord, waiting: WaitingBlock, number: BlockNumber) -> None:
        """Let a block's record say which block it follows."""
        waiting.record = record
        self.child_of[record.parent_number] = number
        heappush(self._parents, record.parent_number)

    def evict(self, waiting: WaitingBlock, place: Place) -> Input:
        """Remove one record from its block, and return it."""
        self._settle()
        item = waiting.places.pop(place)
        cost = record_bytes(item)
        waiting.resident_bytes -= cost
        self._resident_bytes -= cost
        self.raw_bytes -= len(item.raw)
        return item

    def remove(self, number: BlockNumber) -> None:
        """Remove a block with the records that it still has."""
        waiting = self.blocks.pop(number)
        self.raw_bytes -= sum(map(len, map(_RAW, waiting.places.values())))
        self._resident_bytes -= waiting.resident_bytes
        waiting.resident_bytes = 0

    def resident_bytes(self) -> int:
        """Return what the records occupy in memory (`core.resident`)."""
        self._settle()
        return self._resident_bytes

    def in_order(self) -> Iterator[Input]:
        """Yield the records by block and place."""
        for _, waiting in sorted(self.blocks.items()):
            yield from (waiting.places[place] for place in sorted(waiting.places))

    def passed(self, number: BlockNumber) -> Iterator[BlockNumber]:
        """Yield the waiting blocks below a number, ascending. The caller removes them."""
        return (passed for passed in _popped(self._numbers, number) if passed in self.blocks)

    def passed_parents(self, number: BlockNumber) -> Iterator[tuple[BlockNumber, BlockNumber]]:
        """Yield the parents below a number, ascending, each with its child, which no longer names it."""
        for parent in _popped(self._parents, number):
            child = self.child_of.pop(parent, None)
            if child is not None:
                yield parent, child

    def _settle(self) -> None:
        for item in self._unsettled:
            waiting = self.blocks.get(item.block)
            if waiting is not None and waiting.places.get((item.kind, item.index)) is item:
                cost = record_bytes(item) + (0 if waiting.resident_bytes else BLOCK_BYTES)
                waiting.resident_bytes += cost
                self._resident_bytes += cost
        self._unsettled.clear()


def _popped(heap: list[BlockNumber], number: BlockNumber) -> Iterator[BlockNumber]:
    while heap and heap[0] < number:
        yield heappop(heap)


def write_input(out: Writer, item: Input) -> None:
    """Write a record as it came from Kafka."""
    out.u8(item.kind)
    out.bytes(item.source.topic.encode())
    out.u32(item.source.partition)
    out.u64(item.source.offset)
    out.bytes(item.raw)


def read_input(reader: Reader) -> tuple[RecordKind, bytes, Source]:
    """Read what `write_input` wrote: kind, value and source. Raises `scale.DecodeError`."""
    kind = RecordKind(reader.u8())
    source = Source(reader.bytes().decode(), reader.u32(), reader.u64())
    return kind, reader.bytes(), source
