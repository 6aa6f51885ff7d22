# SPDX-License-Identifier: Apache-2.0
"""Replays a lane's recorded inputs under other configurations, side by side with its own, and collects what differs.

All lanes take the same inputs, in this process. Which blocks are complete does not depend on rules or limits, so every lane executes the
same blocks, and the verdicts of a block are the same places in the same order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.ask.plain_view import plain_view
from validator.core.execute import Intervals, execute
from validator.core.handlers.errors import HandlerFault
from validator.core.inputs import DeadLetter, Input
from validator.core.limits import U32_MAX, U64_MAX
from validator.errors import UserError
from validator.history.lane_inputs import rare_collection
from validator.history.levels import Levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from validator.core.errors import Violation
    from validator.core.execute import Executor
    from validator.core.lane import Lane
    from validator.core.outcomes import ChannelHeadroom, Executed, ParaHeadroom, Verdict
    from validator.core.rules import RuleSet
    from validator.core.types import Block, BlockNumber, ParaId
    from validator.lanes.definition import LaneDefinition
    from validator.plugin.protocol_api import ProtocolDefinition

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
    """A configuration to be compared: its name, its lane, and how it continues the lane from a block on.

    ``resume`` takes the lane after a block and a definition, and returns one under that definition with the same state and waiting records,
    apart from what the configuration changes.
    """

    name: str
    definition: LaneDefinition
    resume: Callable[[Lane, LaneDefinition], Lane]


class _Reached(Exception):
    """The next block is the one from which on configurations are compared."""


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
    left: int = 0
    """Records that are there and belong to no executed block."""


def replay(
    inputs: Iterable[Input | DeadLetter],
    own: Case,
    others: Sequence[Case],
    *,
    from_block: BlockNumber | None = None,
    to_block: BlockNumber = U32_MAX,
) -> Replayed:
    """Execute inputs under the lane's own configuration and under others, and compare the verdicts.

    All begin with the first block that their configurations give. If ``from_block`` is given, the others begin with the lane's state before
    that block, and its own continues. Ends after ``to_block``. Raises `UserError`: a handler fails, a case cannot begin with the state.
    """
    run = _Run(own, others, to_block)
    source = iter(inputs)
    with rare_collection():
        if from_block is None:
            run.begin()
        else:
            run.approach(source, from_block)
        while not run.ended and (items := list(islice(source, RECORDS_PER_STEP))):
            run.take(items)
    run.result.waits_for = run.waits_for()
    run.result.left = 0 if run.ended else run.waiting()
    return run.result


class _Run:
    def __init__(self, own: Case, others: Sequence[Case], to_block: BlockNumber) -> None:
        self._cases = [own, *others]
        self._to_block = to_block
        self._lanes: list[Lane] = []
        self.result = Replayed(own.definition.name, comparisons=[Comparison(case.name) for case in others])
        self.ended = False
        self._continues = False

    def begin(self) -> None:
        """Make the lanes, at their own beginning."""
        self._lanes = [_unlimited(case.definition, headroom=1).create() for case in self._cases]
        firsts = [lane.executed_block + 1 for lane in self._lanes]
        for case, first in zip(self._cases, firsts, strict=True):
            if first != firsts[0]:
                raise UserError(
                    f"{case.name}: expected a chain that begins with block {firsts[0]}, found block {first}"
                )

    def approach(self, source: Iterator[Input | DeadLetter], from_block: BlockNumber) -> None:
        """Execute what comes before a block under the lane's own configuration; from there this lane continues next to the others."""
        own, *others = self._cases
        lane = _unlimited(own.definition, headroom=0).create()
        if from_block <= lane.executed_block:
            raise UserError(
                f"--from-block: lane {lane.name} begins with block {lane.executed_block + 1}, found {from_block}"
            )

        def before(rules: RuleSet[Any], block: Block, intervals: Intervals) -> Executed:
            if block.record.block >= from_block:
                raise _Reached
            return execute(rules, block, intervals)

        try:
            while items := list(islice(source, RECORDS_PER_STEP)):
                _add(lane, items)
                for _ in self._executed(own, lane, before):
                    pass
        except _Reached:
            pass
        else:
            raise UserError(
                f"--from-block: the inputs do not lead to block {from_block}: block {lane.executed_block} is the last before it; "
                f"{lane.waits_for()}"
            )
        lane.settings = _unlimited(own.definition, headroom=1).settings
        self._lanes = [lane, *(case.resume(lane, _unlimited(case.definition, headroom=1)) for case in others)]
        self._continues = True
        self.result.records = lane.counters.waiting
        self.take([])

    def take(self, items: Sequence[Input | DeadLetter]) -> None:
        """Give inputs to all lanes, execute what is complete and compare."""
        result = self.result
        dead = sum(isinstance(item, DeadLetter) for item in items)
        result.dead += dead
        result.records += len(items) - dead
        for lane in self._lanes:
            _add(lane, items)
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

    def waiting(self) -> int:
        """Return how many records the lanes hold."""
        return self._lanes[0].counters.waiting

    def _compare(self, block: BlockNumber, executed: tuple[Executed, ...]) -> None:
        result = self.result
        result.blocks += 1
        result.first_block = block if result.first_block is None else result.first_block
        result.last_block = block
        own, *others = executed
        lane, *other_lanes = self._lanes
        if self._continues and result.blocks == 1:  # what has not changed since has no headroom in the block
            for case, each, levels in zip(self._cases, self._lanes, self._levels(), strict=True):
                levels.take(_headroom(case.definition.protocol, each.rules))
        result.levels.observe(block, own.headroom, lane.rules)
        for comparison, other, other_lane in zip(result.comparisons, others, other_lanes, strict=True):
            comparison.compare(block, own, other)
            comparison.levels.observe(block, other.headroom, other_lane.rules)

    def _levels(self) -> list[Levels]:
        return [self.result.levels, *(comparison.levels for comparison in self.result.comparisons)]

    def _executed(self, case: Case, lane: Lane, executor: Executor = execute) -> Iterable[Executed]:
        try:
            for executed, _ in lane.execute_ready(executor):
                yield executed
        except HandlerFault as fault:
            raise UserError(f"{case.name}: the inputs of lane {lane.name} cannot be executed: {fault}") from fault


def _add(lane: Lane, items: Iterable[Input | DeadLetter]) -> None:
    for item in items:
        if isinstance(item, Input):
            lane.add(item)


def _headroom(protocol: ProtocolDefinition, rules: RuleSet[Any]) -> Iterator[ParaHeadroom | ChannelHeadroom]:
    """Yield the headroom of every para and channel."""
    view = protocol.state_view or plain_view(protocol.traces)
    for each in (
        *map(rules.para_headroom, view.paras(rules)),
        *map(rules.channel_headroom, view.channels(rules)),
    ):
        if each is not None:
            yield each


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
