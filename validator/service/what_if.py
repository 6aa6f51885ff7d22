# SPDX-License-Identifier: Apache-2.0
"""Replays a lane's recorded inputs under other configurations, side by side with its own, and collects what differs.

All lanes take the same inputs, in this process. Which blocks are complete does not depend on rules or limits, so every lane executes the
same blocks, and the verdicts of a block are the same places in the same order.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.core.execute import Intervals
from validator.core.handlers.errors import HandlerFault
from validator.core.inputs import DeadLetter, Input, RecordKind
from validator.core.limits import U32_MAX, U64_MAX
from validator.core.records import block_record
from validator.errors import UserError
from validator.service.lane_inputs import rare_collection
from validator.service.levels import Levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from validator.core.errors import Violation
    from validator.core.lane import Lane
    from validator.core.outcomes import Executed, Verdict
    from validator.core.types import BlockNumber, ParaId
    from validator.lanes.definition import LaneDefinition

RECORDS_PER_STEP: Final = 1_000
"""Inputs that the lanes take before they execute what is complete."""

DIFFERENCES_KEPT: Final = 10_000
"""Differences of a comparison that are kept one by one; all are counted."""


class Change(StrEnum):
    """How a verdict differs under the other configuration."""

    REJECTED = "newly_rejected"
    ACCEPTED = "newly_accepted"
    ERROR = "other_error"
    EFFECT = "other_effect"


class Case(NamedTuple):
    """A configuration to be compared: its name, its lane, and how to begin with a state of the lane as it is.

    ``restate`` takes a lane after a block and returns the definition of one that begins with its state.
    """

    name: str
    definition: LaneDefinition
    restate: Callable[[Lane], LaneDefinition]


class Difference(NamedTuple):
    """One verdict under both configurations."""

    change: Change
    before: Verdict
    after: Verdict


@dataclass(slots=True)
class Comparison:
    """What a configuration changes, against the lane's own."""

    name: str
    verdicts: int = 0
    kinds: Counter[tuple[Change, str, str, str]] = field(default_factory=Counter)
    """By change, kind of input, and the errors' kinds before and after, empty if accepted."""
    paras: Counter[tuple[ParaId, Change]] = field(default_factory=Counter)
    blocks: Counter[BlockNumber] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)
    """The first `DIFFERENCES_KEPT`."""
    levels: Levels = field(default_factory=Levels)

    def count(self, change: Change) -> int:
        """Return how many verdicts differ in this way."""
        return sum(number for (each, *_), number in self.kinds.items() if each is change)

    def compare(self, block: BlockNumber, before: Executed, after: Executed) -> None:
        """Compare the verdicts of a block."""
        self.verdicts += len(before.verdicts)
        if before.verdicts == after.verdicts:
            return
        for one, other in zip(before.verdicts, after.verdicts, strict=True):
            change = _change(one, other)
            if change is None:
                continue
            self.kinds[change, one.kind.value, _kind(one.violation), _kind(other.violation)] += 1
            self.paras[one.para_id, change] += 1
            self.blocks[block] += 1
            if len(self.differences) < DIFFERENCES_KEPT:
                self.differences.append(Difference(change, one, other))


@dataclass(slots=True)
class Replayed:
    """The result of a replay."""

    lane: str
    records: int = 0
    dead: int = 0
    blocks: int = 0
    first_block: BlockNumber | None = None
    last_block: BlockNumber | None = None
    levels: Levels = field(default_factory=Levels)
    """Those of the lane as it is configured."""
    comparisons: list[Comparison] = field(default_factory=list)
    waits_for: str = ""


def replay(
    inputs: Iterable[Input | DeadLetter],
    own: Case,
    others: Sequence[Case],
    *,
    from_block: BlockNumber | None = None,
    to_block: BlockNumber = U32_MAX,
) -> Replayed:
    """Execute inputs under the lane's own configuration and under others, and compare the verdicts.

    All begin with the first block that their configurations give, or, if ``from_block`` is given, with the state before that block under
    the lane's own configuration. Ends after ``to_block``. Raises `UserError`: a handler fails, a case cannot begin with the state.
    """
    run = _Run(own, others, to_block)
    source = iter(inputs)
    with rare_collection():
        if from_block is None:
            run.begin(None)
        else:
            run.approach(source, from_block)
        while not run.ended and (items := list(islice(source, RECORDS_PER_STEP))):
            run.take(items)
    run.result.waits_for = run.waits_for()
    return run.result


class _Run:
    def __init__(self, own: Case, others: Sequence[Case], to_block: BlockNumber) -> None:
        self._cases = [own, *others]
        self._to_block = to_block
        self._lanes: list[Lane] = []
        self.result = Replayed(own.definition.name, comparisons=[Comparison(case.name) for case in others])
        self.ended = False

    def begin(self, after: Lane | None) -> None:
        """Make the lanes, at their own beginning or with the state of a lane."""
        for case in self._cases:
            definition = case.definition if after is None else case.restate(after)
            self._lanes.append(_unlimited(definition, headroom=1).create())
        firsts = [lane.executed_block + 1 for lane in self._lanes]
        for case, first in zip(self._cases, firsts, strict=True):
            if first != firsts[0]:
                raise UserError(
                    f"{case.name}: expected a chain that begins with block {firsts[0]}, found block {first}"
                )

    def approach(self, source: Iterable[Input | DeadLetter], from_block: BlockNumber) -> None:
        """Execute what comes before a block under the lane's own configuration, then begin."""
        own = self._cases[0]
        lane = _unlimited(own.definition, headroom=0).create()
        if from_block <= lane.executed_block:
            raise UserError(
                f"--from-block: lane {lane.name} begins with block {lane.executed_block + 1}, found {from_block}"
            )
        held: deque[Input | DeadLetter] = deque()
        parents: set[BlockNumber] = set()
        """Parents of the blocks from ``from_block`` on whose records are here."""
        items = iter(source)
        while lane.executed_block not in parents:
            chunk = list(islice(items, RECORDS_PER_STEP))
            if not chunk:
                raise UserError(
                    f"--from-block: the inputs do not lead to block {from_block}: block {lane.executed_block} is the last before it; "
                    f"{lane.waits_for()}"
                )
            for item in chunk:
                if isinstance(item, DeadLetter):
                    continue
                if item.block < from_block:
                    lane.add(item)
                    continue
                held.append(item)
                if item.kind == RecordKind.BLOCK:
                    parents.add(block_record(item.fields).parent_number)
            for _ in self._executed(own, lane):
                pass
        self.begin(lane)
        self.take(list(held))

    def take(self, items: Sequence[Input | DeadLetter]) -> None:
        """Give inputs to all lanes, execute what is complete and compare."""
        result = self.result
        dead = sum(isinstance(item, DeadLetter) for item in items)
        result.dead += dead
        result.records += len(items) - dead
        for lane in self._lanes:
            for item in items:
                if isinstance(item, Input):
                    lane.add(item)
        runs = [self._executed(case, lane) for case, lane in zip(self._cases, self._lanes, strict=True)]
        for executed in zip(*runs, strict=True):
            block = executed[0].receipt.block
            if block > self._to_block:
                self.ended = True
                return
            self._compare(block, executed)

    def waits_for(self) -> str:
        """Return what the lanes wait for."""
        return self._lanes[0].waits_for()

    def _compare(self, block: BlockNumber, executed: tuple[Executed, ...]) -> None:
        result = self.result
        result.blocks += 1
        result.first_block = block if result.first_block is None else result.first_block
        result.last_block = block
        own, *others = executed
        lane, *other_lanes = self._lanes
        result.levels.observe(block, own.headroom, lane.rules)
        for comparison, other, other_lane in zip(result.comparisons, others, other_lanes, strict=True):
            comparison.compare(block, own, other)
            comparison.levels.observe(block, other.headroom, other_lane.rules)

    def _executed(self, case: Case, lane: Lane) -> Iterable[Executed]:
        try:
            for executed, _ in lane.execute_ready():
                yield executed
        except HandlerFault as fault:
            raise UserError(f"{case.name}: the inputs of lane {lane.name} cannot be executed: {fault}") from fault


def _unlimited(definition: LaneDefinition, *, headroom: int) -> LaneDefinition:
    settings = replace(
        definition.settings,
        blocks_ahead_max=U32_MAX,
        waiting_bytes_max=U64_MAX,
        intervals=Intervals(headroom=headroom, root=0),
    )
    return replace(definition, settings=settings)


def _kind(violation: Violation | None) -> str:
    return "" if violation is None else violation.kind


def _meaning(violation: Violation) -> tuple[str, Any]:
    return violation.kind, violation.details()


def _change(before: Verdict, after: Verdict) -> Change | None:
    one, other = before.violation, after.violation
    if one is None:
        if other is not None:
            return Change.REJECTED
        return None if before == after else Change.EFFECT
    if other is None:
        return Change.ACCEPTED
    return None if _meaning(one) == _meaning(other) else Change.ERROR
