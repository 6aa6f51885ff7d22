# SPDX-License-Identifier: Apache-2.0
"""Records that are too far ahead of their lane: they wait apart, for a time that is counted in blocks.

A job that reads a backlog may be far ahead on one topic, so such a record may be right. It waits until the lane comes near, at most for as
many executed blocks as a record may be ahead. If it is too far ahead even then, no block will want it soon, and it becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from validator.core.inputs import Input, RecordKind
from validator.core.resident import record_bytes
from validator.core.types import BlockNumber


@dataclass(slots=True)
class FarRecords:
    """The records of one lane that wait apart, by block, kind and index, each with the block at which its wait ends."""

    blocks_ahead_max: int
    raw_bytes: int = 0
    resident_bytes: int = 0
    """What the records occupy in memory (`core.resident`)."""
    _records: dict[tuple[BlockNumber, RecordKind, int], tuple[Input, BlockNumber]] = field(default_factory=dict)
    _next: BlockNumber | None = None
    """The executed block at which something may happen to one of them."""

    def __len__(self) -> int:
        return len(self._records)

    def at(self, item: Input) -> Input | None:
        """Return the record that waits in the place of another."""
        found = self._records.get((item.block, item.kind, item.index))
        return None if found is None else found[0]

    def add(self, item: Input, until: BlockNumber) -> None:
        """Keep a record until a block."""
        self._records[item.block, item.kind, item.index] = item, until
        self.raw_bytes += len(item.raw)
        self.resident_bytes += record_bytes(item)
        self._plan()

    @property
    def nearest(self) -> BlockNumber | None:
        """The lowest block that one of them belongs to."""
        return min((block for block, _, _ in self._records), default=None)

    def entries(self) -> Iterable[tuple[Input, BlockNumber]]:
        """Return the records in order of their places, each with the block at which its wait ends."""
        return [entry for _, entry in sorted(self._records.items())]

    def take(self, condition: Callable[[Input], bool]) -> list[Input]:
        """Remove the records that meet a condition, and return them."""
        return self._take(lambda item, _: condition(item))

    def take_near(self, executed_block: BlockNumber) -> list[Input]:
        """Remove the records that are no longer too far ahead, and return them."""
        if self._next is None or executed_block < self._next:
            return []
        return self._take(lambda item, _: item.block - executed_block <= self.blocks_ahead_max)

    def take_expired(self, executed_block: BlockNumber) -> list[Input]:
        """Remove the records whose wait has ended, and return them."""
        if self._next is None or executed_block < self._next:
            return []
        return self._take(lambda _, until: until <= executed_block)

    def _take(self, condition: Callable[[Input, BlockNumber], bool]) -> list[Input]:
        places = [place for place, entry in sorted(self._records.items()) if condition(*entry)]
        taken = [self._records.pop(place)[0] for place in places]
        self.raw_bytes -= sum(len(item.raw) for item in taken)
        self.resident_bytes -= sum(map(record_bytes, taken))
        self._plan()
        return taken

    def _plan(self) -> None:
        self._next = min(
            (min(until, item.block - self.blocks_ahead_max) for item, until in self._records.values()), default=None
        )
