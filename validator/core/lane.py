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
from typing import Any, TypeAlias

from validator.core.execute import Intervals, execute
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.limits import (
    BLOCKS_AHEAD_MAX_DEFAULT,
    DUPLICATE_WINDOW_BLOCKS_DEFAULT,
    WAITING_BYTES_MAX_DEFAULT,
)
from validator.core.outcomes import Executed, InputKind
from validator.core.records import block_record
from validator.core.rules import RuleSet, pages
from validator.core.scale import Upgrade, Writer, upgraded
from validator.core.types import Block, BlockNumber, BlockRecord

Place: TypeAlias = tuple[RecordKind, int]
"""A record's place in its block: kind and index."""

_COUNTED = ((RecordKind.REQUEST, "requests"), (RecordKind.DOWNWARD, "downward"), (RecordKind.CANDIDATE, "candidates"))
_INPUT_RECORDS = (InputKind.REQUEST, InputKind.DOWNWARD, InputKind.CANDIDATE)

SNAPSHOT_VERSION = 1
UPGRADES: dict[int, Upgrade] = {}
"""By version, the upgrade of a lane's own page to the next version."""
FINGERPRINT_BYTES = 8


class WaitingOverflow(Exception):
    """A lane would have to hold more than its limits allow: the query stops, no offset is lost, and the lane object is unusable."""


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """The limits of a lane."""

    blocks_ahead_max: int = BLOCKS_AHEAD_MAX_DEFAULT
    """How many blocks a record may be ahead of the last executed one."""
    waiting_bytes_max: int = WAITING_BYTES_MAX_DEFAULT
    """Maximum bytes of waiting raw records."""
    duplicate_window_blocks: int = DUPLICATE_WINDOW_BLOCKS_DEFAULT
    """Number of executed blocks whose record fingerprints are kept."""
    intervals: Intervals = field(default_factory=Intervals)


COUNTERS = ("consumed", "accepted", "rejected", "duplicate", "dead", "waiting")
"""Every counter, in storage order: another order or another counter needs another version of the stored page."""


@dataclass(slots=True)
class Counters:
    """How many records reached the lane, and how they ended. Invariant: ``consumed`` is the sum of the others."""

    consumed: int = 0
    accepted: int = 0
    rejected: int = 0
    duplicate: int = 0
    dead: int = 0
    waiting: int = 0

    def in_order(self) -> tuple[int, ...]:
        """Return the counters in the order of `COUNTERS`."""
        return tuple(getattr(self, name) for name in COUNTERS)


@dataclass(slots=True)
class WaitingBlock:
    """The records of one block that have arrived so far."""

    record: BlockRecord | None = None
    places: dict[Place, Input] = field(default_factory=dict)

    def missing(self) -> int:
        """Return how many of the block's records are missing; valid only once the block record has arrived."""
        assert self.record is not None
        return 1 + self.record.requests + self.record.downward + self.record.candidates - len(self.places)


class Lane:
    """Takes records one by one and executes blocks as they become complete."""

    def __init__(
        self, name: str, rules: RuleSet[Any], executed_block: BlockNumber, settings: LaneSettings | None = None
    ) -> None:
        self.name = name
        self.rules = rules
        self.executed_block = executed_block
        self.settings = settings or LaneSettings()
        self.counters = Counters()
        self._waiting: dict[BlockNumber, WaitingBlock] = {}
        self._child_of: dict[BlockNumber, BlockNumber] = {}
        self._waiting_bytes = 0
        self._executed_prints: dict[BlockNumber, dict[Place, bytes]] = {}

    def add(self, item: Input) -> list[DeadLetter]:
        """Add a record, and return the dead letters that result.

        Usually there are none. The record itself is one if it is late, a fork, or in conflict with an earlier record. A block record also
        evicts earlier records whose index is out of its range. Raises `WaitingOverflow`.
        """
        self.counters.consumed += 1
        if item.block <= self.executed_block:
            return self._add_late(item)
        if item.block - self.executed_block > self.settings.blocks_ahead_max:
            raise WaitingOverflow(
                f"lane {self.name}: a record of block {item.block} at {_at(item.source)} is more than {self.settings.blocks_ahead_max} "
                f"blocks (blocks_ahead_max) ahead of the executed block {self.executed_block}; {self.waits_for()}"
            )
        waiting = self._waiting.get(item.block) or WaitingBlock()
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

    def count_dead(self) -> None:
        """Count a record that was a dead letter before it reached the lane."""
        self.counters.consumed += 1
        self.counters.dead += 1

    def execute_ready(self) -> Iterator[tuple[Executed, list[DeadLetter]]]:
        """Execute, in order, every block that is complete and whose parent has been executed.

        Yields the outcomes of each block, and the dead letters of records whose block number the chain has now passed.
        """
        while (number := self._child_of.get(self.executed_block)) is not None:
            waiting = self._waiting[number]
            if waiting.missing():
                return
            executed = execute(self.rules, self._assemble(waiting), self.settings.intervals)
            self._count(executed, len(waiting.places))
            del self._waiting[number], self._child_of[self.executed_block]
            self._waiting_bytes -= sum(len(item.raw) for item in waiting.places.values())
            self._remember(number, {place: item.fingerprint for place, item in waiting.places.items()})
            passed = self._pass_by(number) if number - self.executed_block > 1 else []
            self.executed_block = number
            yield executed, passed

    def waits_for(self) -> str:
        """Return in words what the next block lacks."""
        number = self._child_of.get(self.executed_block)
        if number is None:
            others = f"; {self.counters.waiting} records of later blocks are here" if self.counters.waiting else ""
            return f"waiting for the record of the block after {self.executed_block}{others}"
        waiting = self._waiting[number]
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
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """How many bytes of raw records are waiting."""
        return self._waiting_bytes

    def waiting(self) -> Iterator[tuple[BlockNumber, WaitingBlock]]:
        """Yield the blocks that have waiting records, ascending, with those records."""
        yield from sorted(self._waiting.items())

    # --- adding records ---

    def _add_block_record(self, item: Input, waiting: WaitingBlock) -> list[DeadLetter]:
        record = block_record(item.fields)
        if record.parent_number >= item.block:
            detail = f"block {item.block} names parent {record.parent_number}, which does not come before it"
            return [self._bury(item, DeadReason.FORK, detail)]
        if record.parent_number < self.executed_block:
            detail = f"block {item.block} names parent {record.parent_number}, but block {self.executed_block} is executed already"
            return [self._bury(item, DeadReason.FORK, detail)]
        sibling = self._child_of.get(record.parent_number)
        if sibling is not None:
            detail = f"block {item.block} names parent {record.parent_number}, as block {sibling} does"
            return [self._bury(item, DeadReason.FORK, detail)]
        self._child_of[record.parent_number] = item.block
        waiting.record = record
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
        prints = self._executed_prints.get(item.block, {})
        known = prints.get((item.kind, item.index))
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
        self._waiting_bytes += len(item.raw)
        if self._waiting_bytes > self.settings.waiting_bytes_max:
            raise WaitingOverflow(
                f"lane {self.name}: more than {self.settings.waiting_bytes_max} bytes (waiting_bytes_max) of records wait; "
                f"{self.waits_for()}"
            )
        self._waiting[item.block] = waiting
        waiting.places[item.kind, item.index] = item
        self.counters.waiting += 1

    def _bury(self, item: Input, reason: DeadReason, detail: str) -> DeadLetter:
        self.counters.dead += 1
        return DeadLetter(self.name, reason, detail, item.source, item.raw, item.block, item.index)

    def _evict(
        self, waiting: WaitingBlock, place: Place, detail: str, reason: DeadReason = DeadReason.INDEX_OUT_OF_RANGE
    ) -> DeadLetter:
        item = waiting.places.pop(place)
        self._waiting_bytes -= len(item.raw)
        self.counters.waiting -= 1
        return self._bury(item, reason, detail)

    # --- executing blocks ---

    def _assemble(self, waiting: WaitingBlock) -> Block:
        record, places, rules = waiting.record, waiting.places, self.rules
        assert record is not None
        return Block(
            record,
            tuple(rules.request(places[RecordKind.REQUEST, at].fields) for at in range(record.requests)),
            tuple(rules.downward(places[RecordKind.DOWNWARD, at].fields) for at in range(record.downward)),
            tuple(rules.candidate(places[RecordKind.CANDIDATE, at].fields) for at in range(record.candidates)),
        )

    def _count(self, executed: Executed, records: int) -> None:
        rejected = sum(
            verdict.violation is not None and verdict.kind in _INPUT_RECORDS for verdict in executed.verdicts
        )
        self.counters.waiting -= records
        self.counters.rejected += rejected
        self.counters.accepted += records - rejected

    def _remember(self, number: BlockNumber, prints: dict[Place, bytes]) -> None:
        window = self.settings.duplicate_window_blocks
        if not window:
            return
        self._executed_prints[number] = prints
        if len(self._executed_prints) > window:
            del self._executed_prints[next(iter(self._executed_prints))]

    def _pass_by(self, number: BlockNumber) -> list[DeadLetter]:
        """Bury records that wait for block numbers that the chain has skipped, and block records whose parent is one of those."""
        dead = []
        for skipped in sorted(other for other in self._waiting if other < number):
            waiting = self._waiting.pop(skipped)
            if waiting.record is not None:
                del self._child_of[waiting.record.parent_number]
            detail = f"block {skipped} is passed: block {number}, whose parent is {self.executed_block}, is executed"
            dead += [self._evict(waiting, place, detail, DeadReason.LATE) for place in sorted(waiting.places)]
        for parent in sorted(other for other in self._child_of if other < number):
            orphan = self._child_of.pop(parent)
            waiting = self._waiting[orphan]
            detail = f"block {orphan} names parent {parent}, but block {number} is executed already"
            dead.append(self._evict(waiting, (RecordKind.BLOCK, 0), detail, DeadReason.FORK))
            waiting.record = None
            if not waiting.places:
                del self._waiting[orphan]
        return dead

    # --- surviving a restart ---

    def snapshot(self) -> list[bytes]:
        """Return the lane as canonical, versioned bytes: its own page first, then the pages of its state."""
        return [self.own_page(), *pages(self.rules)]

    def own_page(self) -> bytes:
        """Return what the lane holds besides the state of its rules, as canonical, versioned bytes."""
        out = Writer()
        out.u8(SNAPSHOT_VERSION)
        out.u32(self.executed_block)
        for count in self.counters.in_order():
            out.u64(count)
        out.compact(len(self._executed_prints))
        for number, prints in self._executed_prints.items():
            out.u32(number)
            out.compact(len(prints))
            for (kind, index), fingerprint in sorted(prints.items()):
                out.u8(kind)
                out.u32(index)
                out.buffer += fingerprint
        items = [
            waiting.places[place] for _, waiting in sorted(self._waiting.items()) for place in sorted(waiting.places)
        ]
        out.compact(len(items))
        for item in items:
            out.u8(item.kind)
            out.bytes(item.source.topic.encode())
            out.u32(item.source.partition)
            out.u64(item.source.offset)
            out.bytes(item.raw)
        return bytes(out.buffer)

    @classmethod
    def restore(
        cls,
        name: str,
        snapshot: list[bytes],
        load_rules: Callable[[list[bytes]], RuleSet[Any]],
        decode: Callable[[RecordKind, bytes, Source], Input],
        settings: LaneSettings | None = None,
    ) -> Lane:
        """Return the lane that a `snapshot` describes. Raises `scale.DecodeError`."""
        reader = upgraded(snapshot[0], SNAPSHOT_VERSION, UPGRADES, "lane snapshot")
        lane = cls(name, load_rules(snapshot[1:]), reader.u32(), settings)
        counters = Counters(**{name: reader.u64() for name in COUNTERS})
        for _ in range(reader.compact()):
            number = reader.u32()
            prints = reader.items(lambda: ((RecordKind(reader.u8()), reader.u32()), reader.take(FINGERPRINT_BYTES)))
            lane._executed_prints[number] = dict(prints)
        for _ in range(reader.compact()):
            kind = RecordKind(reader.u8())
            source = Source(reader.bytes().decode(), reader.u32(), reader.u64())
            lane.add(decode(kind, reader.bytes(), source))
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
