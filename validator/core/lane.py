# SPDX-License-Identifier: Apache-2.0
"""A lane: one relay chain as one ordered state machine, with the same outcome for every order of arrival.

Kafka orders a single partition, not four topics. So records wait here until the block record that closes their block has arrived, its
counts are met and its parent has been executed. Then the complete block executes, in the order of `execute.execute`. Hence any interleaving
of topics, any split into batches and any redelivery give the same verdicts. Every record ends as exactly one of accepted, rejected,
duplicate, dead or waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from validator.core.barrier import WaitingBlock, WaitingRecords, read_input, write_input
from validator.core.counters import COUNTERS, Counters
from validator.core.execute import Executor, Intervals, execute
from validator.core.far import FarRecords
from validator.core.handlers.errors import HandlerFault
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.limits import (
    BLOCKS_AHEAD_MAX_DEFAULT,
    DUPLICATE_WINDOW_BLOCKS_DEFAULT,
    FAR_RECORDS_MAX,
    U32_MAX,
    WAITING_BYTES_MAX_DEFAULT,
)
from validator.core.outcomes import Executed, InputKind
from validator.core.records import block_record
from validator.core.rules import LaneRules, pages
from validator.core.scale import Encoding
from validator.core.types import Block, BlockNumber, BlockRecord, DownwardMessage
from validator.core.window import DuplicateWindow, Place

_COUNTED = ((RecordKind.REQUEST, "requests"), (RecordKind.DOWNWARD, "downward"), (RecordKind.CANDIDATE, "candidates"))
_INPUT_RECORDS = (InputKind.REQUEST, InputKind.DOWNWARD, InputKind.CANDIDATE)

OWN_PAGE = Encoding("lane snapshot")


class WaitingOverflow(Exception):
    """A lane would have to hold more than its limits allow: it is parked, no input is lost, and the lane object is unusable.

    ``limit`` says which limit, ``executed_block`` and ``waits_for`` where the lane was.
    """

    def __init__(self, limit: str, executed_block: BlockNumber, waits_for: str) -> None:
        super().__init__(f"{limit}; {waits_for}")
        self.limit, self.executed_block = limit, executed_block


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """The limits of a lane."""

    blocks_ahead_max: int = BLOCKS_AHEAD_MAX_DEFAULT
    """How many blocks a record may be ahead of the last executed one; see `FarRecords`."""
    waiting_bytes_max: int = WAITING_BYTES_MAX_DEFAULT
    """Maximum bytes that waiting records occupy in memory."""
    duplicate_window_blocks: int = DUPLICATE_WINDOW_BLOCKS_DEFAULT
    """Number of executed blocks whose record fingerprints are kept."""
    intervals: Intervals = field(default_factory=Intervals)


class Lane:
    """Takes records one by one and executes blocks as they become complete."""

    def __init__(
        self, name: str, rules: LaneRules[Any], executed_block: BlockNumber, settings: LaneSettings | None = None
    ) -> None:
        self.name = name
        self.rules = rules
        self.executed_block = executed_block
        self.settings = settings or LaneSettings()
        self.counters = Counters()
        self._waiting = WaitingRecords()
        self._far = FarRecords(self.settings.blocks_ahead_max)
        self._window = DuplicateWindow(self.settings.duplicate_window_blocks)

    def add(self, item: Input) -> list[DeadLetter]:
        """Add a record, and return the dead letters that result.

        Usually there are none. The record itself is one if it is late, a fork, or in conflict with an earlier record. A block record also
        evicts earlier records whose index is out of its range. A record that is too far ahead waits apart (`core.far`). Raises
        `WaitingOverflow`.
        """
        self.counters.consumed += 1
        if item.block <= self.executed_block:
            return self._add_late(item)
        if item.block - self.executed_block > self.settings.blocks_ahead_max:
            return self._add_far(item)
        dead = self._add_near(item)
        waiting_bytes = self._waiting.raw_bytes + self._far.raw_bytes
        if waiting_bytes > self.settings.waiting_bytes_max:  # what they occupy is more
            raise self._overflow()
        return dead

    def _add_near(self, item: Input) -> list[DeadLetter]:
        waiting = self._waiting.blocks.get(item.block) or WaitingBlock()
        place = (item.kind, item.index)
        taken = waiting.places.get(place)
        if taken is not None:
            return self._add_again(item, taken.fingerprint, taken.source)
        if item.kind == RecordKind.BLOCK:
            return self._add_block_record(item, waiting)
        if waiting.record is not None and item.index >= _announced(waiting.record, item.kind):
            return [self._bury(item, DeadReason.INDEX_OUT_OF_RANGE, _out_of_range(item, waiting.record))]
        self._keep(item, waiting)
        return []

    def evict(self, condition: Callable[[Input], bool], detail: str) -> list[DeadLetter]:
        """Remove the waiting records that meet a condition, and return them as dead letters with the reason `SKIPPED`."""
        dead = [self._bury_far(item, DeadReason.SKIPPED, detail) for item in self._far.take(condition)]
        for number, waiting in list(self.waiting()):
            for place in sorted(place for place, item in waiting.places.items() if condition(item)):
                if place[0] == RecordKind.BLOCK and waiting.record is not None:
                    del self._waiting.child_of[waiting.record.parent_number]
                    waiting.record = None
                dead.append(self._evict(waiting, place, detail, DeadReason.SKIPPED))
            if not waiting.places:
                self._waiting.remove(number)
        return dead

    def count_dead(self) -> None:
        """Count a record that was a dead letter before it reached the lane."""
        self.counters.consumed += 1
        self.counters.dead += 1

    def execute_ready(self, execute: Executor = execute) -> Iterator[tuple[Executed, list[DeadLetter]]]:
        """Execute, in order, every block that is complete and whose parent has been executed.

        Yields the outcomes of each block, and the dead letters of records whose block number the chain has now passed. Raises
        `WaitingOverflow` at the end if what still waits occupies too much memory.
        """
        while (number := self._waiting.child_of.get(self.executed_block)) is not None:
            waiting = self._waiting.blocks[number]
            if waiting.missing():
                break
            block = self._assemble(waiting)
            try:
                executed = execute(self.rules, block, self.settings.intervals)
            except HandlerFault as fault:
                fault.place(number, waiting.candidates_of(fault.para, block))
                raise
            self._count(executed, len(waiting.places))
            del self._waiting.child_of[self.executed_block]
            self._waiting.remove(number)
            self._window.remember(number, {place: item.fingerprint for place, item in waiting.places.items()})
            passed = self._pass_by(number) if number - self.executed_block > 1 else []
            self.executed_block = number
            passed += self._approach()
            yield executed, passed
        self._check_memory()

    def waits_for(self) -> str:
        """Return in words what the next block lacks."""
        number = self._waiting.child_of.get(self.executed_block)
        if number is None:
            later = self.counters.waiting - len(self._far)
            others = ""
            if later:
                first, last = min(self._waiting.blocks), max(self._waiting.blocks)
                blocks = f"block {first}" if first == last else f"blocks {first} to {last}"
                others = f"; here without it: {later} record{'' if later == 1 else 's'} of {blocks}"
            if self._far.nearest is not None:
                others += f"; {len(self._far)} records are too far ahead, the nearest of block {self._far.nearest}"
            return f"waiting for the record of the block after {self.executed_block}{others}"
        waiting = self._waiting.blocks[number]
        assert waiting.record is not None
        for kind, name in _COUNTED:
            announced = _announced(waiting.record, kind)
            here = sum(1 for other, _ in waiting.places if other == kind)
            if here < announced:
                return f"waiting for {announced - here} of {announced} {name} of block {number}"
        return f"block {number} is complete"

    @property
    def waiting_blocks(self) -> int:
        """How many blocks have waiting records."""
        return len(self._waiting.blocks)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of raw records are waiting."""
        return self._waiting.raw_bytes + self._far.raw_bytes

    @property
    def far_records(self) -> int:
        """How many records wait apart because they are too far ahead."""
        return len(self._far)

    @property
    def window_bytes(self) -> int:
        """How many bytes the fingerprints of executed records occupy in memory."""
        return self._window.resident_bytes

    def resident_bytes(self) -> int:
        """Return how many bytes the waiting records occupy in memory (`core.resident`)."""
        return self._waiting.resident_bytes() + self._far.resident_bytes

    def waiting(self) -> Iterator[tuple[BlockNumber, WaitingBlock]]:
        """Yield the blocks that have waiting records, ascending, with those records."""
        yield from sorted(self._waiting.blocks.items())

    # --- adding records ---

    def _add_block_record(self, item: Input, waiting: WaitingBlock) -> list[DeadLetter]:
        record = block_record(item.fields)
        if record.parent_number >= item.block:
            detail = f"block {item.block} names parent {record.parent_number}, which does not come before it"
            return [self._bury(item, DeadReason.FORK, detail)]
        if record.parent_number < self.executed_block:
            detail = f"block {item.block} names parent {record.parent_number}, but block {self.executed_block} is executed already"
            return [self._bury(item, DeadReason.FORK, detail)]
        sibling = self._waiting.child_of.get(record.parent_number)
        if sibling is not None:
            detail = f"block {item.block} names parent {record.parent_number}, as block {sibling} does"
            return [self._bury(item, DeadReason.FORK, detail)]
        self._waiting.name_parent(record, waiting, item.block)
        self._keep(item, waiting)

        out_of_range = [
            place
            for place in waiting.places
            if place[0] != RecordKind.BLOCK and place[1] >= _announced(record, place[0])
        ]
        return [
            self._evict(waiting, place, _out_of_range(waiting.places[place], record)) for place in sorted(out_of_range)
        ]

    def _add_late(self, item: Input) -> list[DeadLetter]:
        known = self._window.of_block(item.block).get((item.kind, item.index))
        if known is not None:
            return self._add_again(item, known, None)
        detail = f"block {item.block} is passed: block {self.executed_block} is executed"
        return [self._bury(item, DeadReason.LATE, detail)]

    def _add_again(self, item: Input, known: bytes, source: Source | None) -> list[DeadLetter]:
        if item.fingerprint == known:
            self.counters.duplicate += 1
            return []
        where = f" by the record at {_at(source)}" if source else " by a record that is executed already"
        if item.kind == RecordKind.BLOCK:
            return [self._bury(item, DeadReason.FORK, f"block {item.block} is taken{where}, which differs")]
        place = f"{RecordKind(item.kind).name.lower()} {item.index} of block {item.block}"
        return [self._bury(item, DeadReason.CONFLICT, f"{place} is taken{where}, which differs")]

    def _keep(self, item: Input, waiting: WaitingBlock) -> None:
        self._waiting.keep(item, waiting)
        self.counters.waiting += 1

    def _bury(self, item: Input, reason: DeadReason, detail: str) -> DeadLetter:
        self.counters.dead += 1
        return DeadLetter(self.name, reason, detail, item.source, item.raw, item.block, item.index)

    def _evict(
        self, waiting: WaitingBlock, place: Place, detail: str, reason: DeadReason = DeadReason.INDEX_OUT_OF_RANGE
    ) -> DeadLetter:
        item = self._waiting.evict(waiting, place)
        self.counters.waiting -= 1
        return self._bury(item, reason, detail)

    # --- records that are too far ahead ---

    def _add_far(self, item: Input) -> list[DeadLetter]:
        taken = self._far.at(item)
        if taken is not None:
            return self._add_again(item, taken.fingerprint, taken.source)
        if len(self._far) == FAR_RECORDS_MAX:
            raise WaitingOverflow(
                f"lane {self.name}: more than {FAR_RECORDS_MAX} records are more than {self.settings.blocks_ahead_max} blocks "
                f"(blocks_ahead_max) ahead of the executed block {self.executed_block}, the last one of block {item.block} at "
                f"{_at(item.source)}",
                self.executed_block,
                self.waits_for(),
            )
        self._far.add(item, self.executed_block + self.settings.blocks_ahead_max)
        self.counters.waiting += 1
        return []

    def _approach(self) -> list[DeadLetter]:
        """Take in the records that are near now; bury those whose wait has ended."""
        dead = []
        for item in self._far.take_near(self.executed_block):
            self.counters.waiting -= 1
            dead += self._add_near(item) if item.block > self.executed_block else self._add_late(item)
        for item in self._far.take_expired(self.executed_block):
            detail = (
                f"block {item.block} is more than {self.settings.blocks_ahead_max} blocks (blocks_ahead_max) ahead, and was so "
                f"{self.settings.blocks_ahead_max} blocks ago"
            )
            dead.append(self._bury_far(item, DeadReason.TOO_FAR_AHEAD, detail))
        return dead

    def _bury_far(self, item: Input, reason: DeadReason, detail: str) -> DeadLetter:
        self.counters.waiting -= 1
        return self._bury(item, reason, detail)

    def _check_memory(self) -> None:
        if self.resident_bytes() > self.settings.waiting_bytes_max:
            raise self._overflow()

    def _overflow(self) -> WaitingOverflow:
        return WaitingOverflow(
            f"lane {self.name}: waiting records occupy more than {self.settings.waiting_bytes_max} bytes (waiting_bytes_max)",
            self.executed_block,
            self.waits_for(),
        )

    # --- executing blocks ---

    def _assemble(self, waiting: WaitingBlock) -> Block:
        record, places, rules = waiting.record, waiting.places, self.rules.rule_set
        assert record is not None
        return Block(
            record,
            tuple(rules.request(places[RecordKind.REQUEST, at].fields) for at in range(record.requests)),
            tuple(DownwardMessage._make(places[RecordKind.DOWNWARD, at].fields) for at in range(record.downward)),
            tuple(rules.candidate(places[RecordKind.CANDIDATE, at].fields) for at in range(record.candidates)),
        )

    def _count(self, executed: Executed, records: int) -> None:
        rejected = sum([
            verdict.kind in _INPUT_RECORDS for verdict in executed.verdicts if verdict.violation is not None
        ])  # fmt: skip
        self.counters.waiting -= records
        self.counters.rejected += rejected
        self.counters.accepted += records - rejected

    def _pass_by(self, number: BlockNumber) -> list[DeadLetter]:
        """Bury records that wait for block numbers that the chain has skipped, and block records whose parent is one of those."""
        dead = []
        for skipped in self._waiting.passed(number):
            waiting = self._waiting.blocks[skipped]
            if waiting.record is not None:
                del self._waiting.child_of[waiting.record.parent_number]
            detail = f"block {skipped} is passed: block {number}, whose parent is {self.executed_block}, is executed"
            dead += [self._evict(waiting, place, detail, DeadReason.LATE) for place in sorted(waiting.places)]
            self._waiting.remove(skipped)
        for parent, orphan in self._waiting.passed_parents(number):
            waiting = self._waiting.blocks[orphan]
            detail = f"block {orphan} names parent {parent}, but block {number} is executed already"
            dead.append(self._evict(waiting, (RecordKind.BLOCK, 0), detail, DeadReason.FORK))
            waiting.record = None
            if not waiting.places:
                self._waiting.remove(orphan)
        return dead

    # --- surviving a restart ---

    def snapshot(self) -> list[bytes]:
        """Return the lane as canonical, versioned bytes: its own page first, then the pages of its state."""
        return [self.own_page(), *pages(self.rules)]

    def own_page(self) -> bytes:
        """Return what the lane holds besides the state of its rules, as canonical, versioned bytes."""
        out = OWN_PAGE.begin()
        out.u32(self.executed_block)
        for count in self.counters.in_order():
            out.u64(count)
        self._window.write(out)
        items = list(self._waiting.in_order())
        out.compact(len(items))
        for item in items:
            write_input(out, item)
        far = list(self._far.entries())
        out.compact(len(far))
        for item, until in far:
            write_input(out, item)
            out.u32(min(until, U32_MAX))
        return bytes(out.buffer)

    @classmethod
    def restore(
        cls,
        name: str,
        snapshot: list[bytes],
        load_rules: Callable[[list[bytes]], LaneRules[Any]],
        decode: Callable[[RecordKind, bytes, Source], Input],
        settings: LaneSettings | None = None,
    ) -> Lane:
        """Return the lane that a `snapshot` describes. Raises `scale.DecodeError`."""
        reader = OWN_PAGE.read(snapshot[0])
        lane = cls(name, load_rules(snapshot[1:]), reader.u32(), settings)
        counters = Counters(**{name: reader.u64() for name in COUNTERS})
        lane._window.read(reader)
        for _ in range(reader.compact()):
            lane._add_near(decode(*read_input(reader)))
        for _ in range(reader.compact()):
            item = decode(*read_input(reader))
            lane._far.add(item, reader.u32())
        reader.end()
        lane.counters = counters
        return lane


def _announced(record: BlockRecord, kind: RecordKind) -> int:
    if kind == RecordKind.CANDIDATE:
        return record.candidates
    return record.requests if kind == RecordKind.REQUEST else record.downward


def _out_of_range(item: Input, record: BlockRecord) -> str:
    kind = RecordKind(item.kind)
    return f"{kind.name.lower()} {item.index} of block {item.block}: the block record announces {_announced(record, kind)} of them"


def _at(source: Source) -> str:
    return f"{source.topic}[{source.partition}]@{source.offset}"
