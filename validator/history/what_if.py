# SPDX-License-Identifier: Apache-2.0
"""Replays a lane's recorded inputs under other configurations, side by side with its own, and collects what differs.

All lanes take the same inputs, in this process, and execute the same blocks (`engine.Engine`). So the verdicts of a block are the same
places in the same order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.ask.plain_view import view_of
from validator.config.chain import RulesTable
from validator.config.explain import chain_of
from validator.config.limits import find_limits
from validator.core.execute import Intervals, execute
from validator.core.handlers.errors import HandlerFault
from validator.core.levels import LevelChoice
from validator.core.limits import U32_MAX
from validator.core.outcomes import ChannelHeadroom, ParaHeadroom
from validator.errors import UserError
from validator.history.engine import Engine, Replica, stopped, unlimited
from validator.lanes.configured import continued, lane_definition, limit_differences, modes_differ
from validator.lanes.processor import LaneProcessor
from validator.visible import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from validator.config import Config
    from validator.core.errors import Violation
    from validator.core.execute import Executor
    from validator.core.inputs import DeadLetter, Input
    from validator.core.lane import Lane
    from validator.core.outcomes import ChannelHeadroom, Executed, ParaHeadroom, Verdict
    from validator.core.rules import LaneRules
    from validator.core.types import Block, BlockNumber, ChannelId, ParaId
    from validator.lanes.definition import LaneDefinition
    from validator.plugin.protocol_api import ProtocolDefinition


SAMPLES_MAX: Final = 1_000
"""Samples that are kept. If there are more, every other one is dropped, and further ones are taken half as often."""


EVERYTHING: Final = LevelChoice(None, U32_MAX, U32_MAX)


class Sample(NamedTuple):
    """A lane after a block: the messages that are queued in all, and the least that is left anywhere; None where nothing has the limit.

    Upward messages and those of channels are None if the protocol does not say how many wait.
    """

    block: BlockNumber
    downward_pending: int
    upward_pending: int | None
    channel_pending: int | None
    upward_count_left_min: int | None
    upward_bytes_left_min: int | None
    channels: int
    places_left_min: int | None
    bytes_left_min: int | None


@dataclass(slots=True)
class Levels:
    """Keeps the last headroom of every para and channel, and samples of them all."""

    samples: list[Sample] = field(default_factory=list)
    _paras: dict[ParaId, ParaHeadroom] = field(default_factory=dict)
    _channels: dict[ChannelId, ChannelHeadroom] = field(default_factory=dict)
    _step: int = 1
    _blocks: int = 0

    def observe(
        self, block: BlockNumber, headroom: Iterable[ParaHeadroom | ChannelHeadroom], rules: LaneRules[Any]
    ) -> None:
        """Take what has changed in a block; ``rules`` is the rule set of the lane after it."""
        self.take(headroom)
        if self._blocks % self._step == 0:
            self.samples.append(self._sample(block, rules))
            if len(self.samples) > SAMPLES_MAX:
                del self.samples[1::2]
                self._step *= 2
        self._blocks += 1

    def take(self, headroom: Iterable[ParaHeadroom | ChannelHeadroom]) -> None:
        for each in headroom:
            if isinstance(each, ParaHeadroom):
                if each.valid:
                    self._paras[each.para_id] = each
                else:
                    self._paras.pop(each.para_id, None)
            elif each.open:
                self._channels[each.sender, each.recipient] = each
            else:
                self._channels.pop((each.sender, each.recipient), None)

    def _sample(self, block: BlockNumber, rules: LaneRules[Any]) -> Sample:
        paras, channels = self._paras.values(), self._channels.values()
        full = rules.levels(block, EVERYTHING)
        upward = [each.upward_messages for each in full.paras if each.upward_messages_max]
        in_channels = [each.messages for each in full.channels if each.messages is not None]
        return Sample(
            block,
            sum(each.downward_pending for each in paras),
            sum(upward) if upward else None,
            sum(in_channels) if in_channels or not channels else None,
            min((each.upward_count_left for each in paras), default=None),
            min((each.upward_bytes_left for each in paras), default=None),
            len(channels),
            min((each.places_left for each in channels), default=None),
            min((each.bytes_left for each in channels), default=None),
        )


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

    ``resume`` takes the lane after a block, a definition, and limits that a session change has set again; it returns a lane under that
    definition with the same state and waiting records, apart from what the configuration changes. Of the limits that are ``changed``, those
    ``held`` keep their value through recorded session changes.
    """

    name: str
    definition: LaneDefinition
    resume: Callable[[Lane, LaneDefinition, Collection[str]], Lane]
    changed: frozenset[str] = frozenset()
    held: Mapping[str, int] = MappingProxyType({})

    def holding(self, block: Block) -> Block:
        """Return a block whose session change sets no limit that is held to another value."""
        change = block.record.session_change
        if change is None or not any(name in self.held for name, _ in change.new_config):
            return block
        config = tuple((name, self.held.get(name, value)) for name, value in change.new_config)
        return replace(block, record=replace(block.record, session_change=replace(change, new_config=config)))


class SessionLimit(NamedTuple):
    """A recorded session change that sets a limit that a configuration changes; ``held`` if its value holds nevertheless."""

    block: BlockNumber
    limit: str
    value: int
    held: bool


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
    session_limits: list[SessionLimit] = field(default_factory=list)
    levels: Levels = field(default_factory=Levels)
    causes: Comparison | None = None
    """The same with each block judged on the own lane's state: a difference there comes from the configuration itself, and is no effect
    of an earlier one. It has no levels."""

    def count(self, change: Change) -> int:
        """Return how many verdicts differ in this way."""
        return sum(number for (each, *_), number in self.kinds.items() if each is change)

    def compare(self, block: BlockNumber, before: Executed, after: Executed) -> None:
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
    stopped: str = ""
    """Why the inputs end before the last block that was asked for, if records are left that no block has used."""
    refused: Sequence[DeadLetter] = ()
    """The first records that no block takes."""


def replay(
    inputs: Iterable[Input | DeadLetter],
    own: Case,
    others: Sequence[Case],
    *,
    from_block: BlockNumber | None = None,
    to_block: BlockNumber = U32_MAX,
    each_block: bool = False,
    live: bool = False,
) -> Replayed:
    """Execute inputs under the lane's own configuration and under others, and compare the verdicts.

    All begin with the first block that their configurations give. If ``from_block`` is given, the others begin with the lane's state before
    that block, and its own continues. Ends after ``to_block``. With ``each_block`` they also judge each block on the own lane's state
    before it (`Comparison.causes`). ``live`` inputs may end in the middle of the next block. Raises `UserError`: a handler fails, a case
    cannot begin or continue with the state.
    """
    observer = _Observer([own, *others], to_block, continues=from_block is not None)
    engine = Engine(inputs)
    if from_block is None:
        engine.replicas = _beginning([own, *others])
    else:
        engine.replicas = _continuing(engine, own, others, from_block)
    observer.replicas = engine.replicas
    engine.run(observer.observe, observer.executor(others, each_block=each_block))
    result, lane = observer.result, engine.replicas[0].lane
    result.records, result.dead, result.waits_for = engine.records, engine.dead, lane.waits_for()
    if lane.executed_block < to_block:
        result.stopped = stopped(lane, live=live)
    result.refused = [each for each in engine.refused if each.block is None or each.block <= to_block]
    return result


def _beginning(cases: Sequence[Case]) -> list[Replica]:
    """Return the lanes at their own beginning."""
    replicas = [_create(case, headroom=1) for case in cases]
    firsts = [replica.lane.executed_block + 1 for replica in replicas]
    for case, first in zip(cases, firsts, strict=True):
        if first != firsts[0]:
            raise UserError(f"{case.name}: expected a chain that begins with block {firsts[0]}, found block {first}")
    return replicas


def _continuing(engine: Engine, own: Case, others: Sequence[Case], from_block: BlockNumber) -> list[Replica]:
    """Execute what comes before a block under the lane's own configuration, and return this lane as it is then, next to the others."""
    replica = _create(own, headroom=0)
    lane = replica.lane
    if from_block <= lane.executed_block:
        raise UserError(
            f"--from-block: lane {lane.name} begins with block {lane.executed_block + 1}, found {from_block}"
        )

    def before(rules: LaneRules[Any], block: Block, intervals: Intervals) -> Executed:
        if block.record.block >= from_block:
            raise _Reached
        return execute(rules, block, intervals)

    engine.replicas = [replica]
    with suppress(_Reached):
        engine.run(lambda _: None, before)
        raise UserError(
            f"--from-block: the inputs do not lead to block {from_block}: block {lane.executed_block} is the last before it; "
            f"{lane.waits_for()}"
        )
    lane.settings = _unlimited(own.definition, headroom=1).settings
    engine.records, engine.dead = lane.counters.waiting, 0
    resumed = (
        LaneProcessor(case.resume(lane, _unlimited(case.definition, headroom=1), ()), case.definition)
        for case in others
    )
    return [replica, *(Replica(processor, _failing(case)) for case, processor in zip(others, resumed, strict=True))]


class _Observer:
    def __init__(self, cases: Sequence[Case], to_block: BlockNumber, *, continues: bool) -> None:
        self._protocols = [case.definition.protocol for case in cases]
        self._to_block, self._continues = to_block, continues
        self.replicas: Sequence[Replica] = ()
        self.result = Replayed(cases[0].definition.name, comparisons=[Comparison(case.name) for case in cases[1:]])
        self.ended = False
        self._judged: list[Executed] = []
        """What the block that the own lane has just executed gave under the other cases on the same state."""

    def executor(self, others: Sequence[Case], *, each_block: bool) -> Executor:
        """Return what executes a block under each case, and with ``each_block`` those of the own lane also under ``others``, on a copy."""
        own = self.replicas[0].lane
        case_under = {id(each.lane.rules): case for each, case in zip(self.replicas[1:], others, strict=True)}
        set_again: list[set[str]] = [set() for _ in others]
        for comparison in self.result.comparisons if each_block else ():
            comparison.causes = Comparison(comparison.name)

        def judge(rules: LaneRules[Any], block: Block, intervals: Intervals) -> Executed:
            if rules is not own.rules:
                return execute(rules, case_under[id(rules)].holding(block), intervals)
            if each_block:
                self._judged = [
                    _under(case, own, block, intervals, again) for case, again in zip(others, set_again, strict=True)
                ]
            if block.record.block <= self._to_block:
                for case, comparison, again in zip(others, self.result.comparisons, set_again, strict=True):
                    found = list(_session_limits(case, block))
                    comparison.session_limits += found
                    again.update(each.limit for each in found if not each.held)
            return execute(rules, block, intervals)

        return judge

    def observe(self, executed: Sequence[Executed]) -> bool:
        """Compare what a block gave; return whether it is after the last one."""
        block = executed[0].receipt.block
        self.ended = block > self._to_block
        if not self.ended:
            self._compare(block, executed)
        return self.ended

    def _compare(self, block: BlockNumber, executed: Sequence[Executed]) -> None:
        result = self.result
        result.blocks += 1
        result.first_block = block if result.first_block is None else result.first_block
        result.last_block = block
        own, *others = executed
        rules, *other_rules = (replica.lane.rules for replica in self.replicas)
        if self._continues and result.blocks == 1:  # what has not changed since has no headroom in the block
            for protocol, each, levels in zip(self._protocols, (rules, *other_rules), self._levels(), strict=True):
                levels.take(_headroom(protocol, each))
        result.levels.observe(block, own.headroom, rules)
        for comparison, other, each in zip(result.comparisons, others, other_rules, strict=True):
            comparison.compare(block, own, other)
            comparison.levels.observe(block, other.headroom, each)
        for comparison, judged in zip(result.comparisons, self._judged, strict=False):
            assert comparison.causes is not None
            comparison.causes.compare(block, own, judged)

    def _levels(self) -> list[Levels]:
        return [self.result.levels, *(comparison.levels for comparison in self.result.comparisons)]


def _session_limits(case: Case, block: Block) -> Iterator[SessionLimit]:
    """Yield the limits that a case changes and that the block's session change sets to another value than the case holds."""
    change = block.record.session_change
    for name, value in () if change is None else change.new_config:
        if name in case.changed and case.held.get(name) != value:
            yield SessionLimit(block.record.block, name, value, name in case.held)


def _under(case: Case, own: Lane, block: Block, intervals: Intervals, set_again: Collection[str]) -> Executed:
    """Execute a block under a case, on a copy of a lane's state. Raises `UserError` if a handler fails."""
    copy = case.resume(own, _unlimited(case.definition, headroom=1), set_again)
    try:
        return execute(copy.rules, case.holding(block), intervals)
    except HandlerFault as fault:
        raise UserError(f"{_failing(case)}: {fault}") from fault


def _create(case: Case, *, headroom: int) -> Replica:
    return Replica.create(_unlimited(case.definition, headroom=headroom), _failing(case))


def _unlimited(definition: LaneDefinition, *, headroom: int) -> LaneDefinition:
    return unlimited(definition, Intervals(headroom=headroom, root=0))


def _failing(case: Case) -> str:
    return f"{case.name}: the inputs of lane {case.definition.name} cannot be executed"


def _headroom(protocol: ProtocolDefinition, rules: LaneRules[Any]) -> Iterator[ParaHeadroom | ChannelHeadroom]:
    """Yield the headroom of every para and channel."""
    view = view_of(protocol)
    for each in (
        *map(rules.para_headroom, view.paras(rules.state)),
        *map(rules.channel_headroom, view.channels(rules.state)),
    ):
        if each is not None:
            yield each


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


# --- cases -------------------------------------------------------------------------------------------------------------------------------


class Sweep(NamedTuple):
    """A limit of the chain, and the values to try."""

    limit: str
    values: tuple[int, ...]


_NUMBER: Final = re.compile("[0-9]{1,20}")


def read_sweep(text: str) -> Sweep:
    """Return the sweep that ``limit=value,value`` describes. Raises `UserError`."""
    name, equals, values = text.partition("=")
    parts = values.split(",")
    if not name or not equals or not all(_NUMBER.fullmatch(part) for part in parts):
        raise UserError(f"--sweep: expected LIMIT=NUMBER,NUMBER,..., found {shown(text)}")
    return Sweep(name, tuple(map(int, parts)))


def case_of(
    name: str, config: Config, lane: str, own: Config | None = None, held: Mapping[str, int] = MappingProxyType({})
) -> Case:
    """Return a configuration as a case, next to the ``own`` one; the limits ``held`` count as changed.

    Raises `UserError` if its chain is not usable.
    """
    definition = lane_definition(config, lane)
    chain, before = config.chains[lane], (own or config).chains[lane]
    changed = limit_differences(before, chain, definition.protocol) | held.keys()

    def resume(after: Lane, under: LaneDefinition, set_again: Collection[str]) -> Lane:
        return continued(config, under, after, changed.difference(set_again), modes=modes_differ(before, chain))

    return Case(name, definition, resume, changed, held)


class Changes(NamedTuple):
    """What is changed in the other configuration: rules by the name of a profile, and limits."""

    rules: str | None = None
    limits: Mapping[str, int] = MappingProxyType({})

    def __str__(self) -> str:
        rules = [] if self.rules is None else [f"rules {self.rules}"]
        return ", ".join([*rules, *(f"{limit}={value}" for limit, value in self.limits.items())])

    def made(self, config: Config, lane: str) -> Config:
        """Return a configuration with the changes. Raises `UserError` for rules that the protocol does not have."""
        for limit, value in self.limits.items():
            config = _with_limit(config, lane, limit, value)
        if self.rules is None:
            return config
        chain = config.chains[lane]
        changed = chain.model_copy(
            update={"rules": [RulesTable.model_validate({"from_block": 1, "profile": self.rules})]}
        )
        return config.model_copy(update={"chains": {**config.chains, lane: changed}})


UNCHANGED: Final = Changes()


def read_limits(texts: Iterable[str]) -> dict[str, int]:
    """Return the limits that texts of the form ``limit=value`` set. Raises `UserError`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals or not _NUMBER.fullmatch(value):
            raise UserError(f"--set: expected LIMIT=NUMBER, found {shown(text)}")
        found[name] = int(value)
    return found


def other_cases(
    own: Config, other: Config | None, name: str, lane: str, sweep: Sweep | None, changes: Changes = UNCHANGED
) -> Sequence[Case]:
    """Return the cases to compare with the lane's own: the other configuration with ``changes``, or that with each value of the sweep.

    ``other`` None means the lane's own. Raises `UserError`: the chain is not configured, has another protocol, or another value is wrong.
    """
    if other is not None:
        chain = chain_of(other.chains, lane, f"{name}: ")
        if chain.protocol != own.chains[lane].protocol:
            raise UserError(
                f"{name}: chains.{lane}.protocol: expected {own.chains[lane].protocol}, which the records are of, found {chain.protocol}"
            )
    # imported states lie in the folder of the lane's own job
    config = changes.made(own if other is None else other.model_copy(update={"job": own.job}), lane)
    name = ", ".join(filter(None, (name if other is not None else "", str(changes)))) or name
    if sweep is None:
        return [case_of(name, config, lane, own, changes.limits)]
    return [
        case_of(
            f"{sweep.limit}={value}",
            _with_limit(config, lane, sweep.limit, value),
            lane,
            own,
            {**changes.limits, sweep.limit: value},
        )
        for value in sweep.values
    ]


def _with_limit(config: Config, lane: str, limit: str, value: int) -> Config:
    chain = config.chains[lane]
    key = find_limits(chain.protocol).key
    table: dict[str, Any] = {**chain.limit_tables().get(key, {}), limit: value}
    changed = chain.model_copy(update={key: table})
    return config.model_copy(update={"chains": {**config.chains, lane: changed}})
