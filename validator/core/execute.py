# SPDX-License-Identifier: Apache-2.0
"""The order of execution inside a block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from validator.core.errors import Violation
from validator.core.limits import HEADROOM_INTERVAL_BLOCKS_DEFAULT, ROOT_INTERVAL_BLOCKS_DEFAULT, U64_MAX
from validator.core.outcomes import Executed, InputKind, Receipt, Verdict
from validator.core.rules import Effects, LaneRules
from validator.core.types import Block, BlockNumber, ParaId, maker

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often a lane emits the records that not every block has, in blocks; 0 means at session changes only."""

    headroom: int = HEADROOM_INTERVAL_BLOCKS_DEFAULT
    root: int = ROOT_INTERVAL_BLOCKS_DEFAULT


Executor: TypeAlias = Callable[[LaneRules[Any], Block, Intervals], Executed]
"""Executes a complete block, as `execute` does."""


def execute(rules: LaneRules[Any], block: Block, intervals: Intervals) -> Executed:
    """Execute a complete block.

    Candidates that became available are enacted first. Requests, downward messages and candidates follow by index, then one round of upward
    dispatch, and the session change last. The rules in force are chosen once, when the block begins.
    """
    record = block.record
    now = record.block
    rules.begin_block(now, record.parent_number)

    verdicts = [
        _judge(InputKind.INCLUSION, now, at, ref.para_id, rules.apply_inclusion, ref)
        for at, ref in enumerate(record.included)
    ]
    verdicts += [
        _judge(InputKind.TIMEOUT, now, at, ref.para_id, rules.apply_timeout, ref)
        for at, ref in enumerate(record.timed_out)
    ]
    # the first field of a request is the para that sends it; one without fields is governance's, and has para 0
    verdicts += [
        _judge(InputKind.REQUEST, now, at, item[0] if item else 0, rules.apply_request, item)
        for at, item in enumerate(block.requests)
    ]
    verdicts += [
        _judge(InputKind.DOWNWARD, now, at, item.para_id, rules.apply_downward, item)
        for at, item in enumerate(block.downward)
    ]
    rule_set, env = rules.rule_set, rules.env
    rule_set.expect(rules.state, block.candidates)
    for at, candidate in enumerate(block.candidates):
        verdict = _judge(InputKind.CANDIDATE, now, at, candidate.para_id, rules.apply_candidate, candidate)
        signals = rule_set.signals(env, candidate)
        if signals or candidate.candidate_hash is not None:
            verdict = verdict._replace(candidate_hash=candidate.candidate_hash, signals=signals)
        verdicts.append(verdict)
    dispatches = rules.dispatch()
    if record.session_change is not None:
        rules.change_session(record.session_change)

    session_ends = record.session_change is not None
    headroom = rules.take_headroom() if session_ends or _is_due(now, intervals.headroom) else []
    accepted = [verdict.violation for verdict in verdicts].count(None)
    receipt = Receipt(
        block=now,
        parent_number=record.parent_number,
        session=rules.session,
        accepted=accepted,
        rejected=len(verdicts) - accepted,
        enacted=sum([verdict.enacted for verdict in verdicts if verdict.kind in _ENACTING]),
        dispatched=len(dispatches),
        weight_used=min(sum(dispatch.weight for dispatch in dispatches), U64_MAX),
        state_root=rules.state_root() if session_ends or _is_due(now, intervals.root) else None,
    )
    return Executed(verdicts, dispatches, env.events.events, headroom, receipt, env.ingress.events)


_verdict = maker(Verdict)
_AFTER_EFFECTS = tuple(
    value for name, value in Verdict._field_defaults.items() if name not in {"violation", *Effects._fields}
)
"""The fields behind a verdict's effects, which no rule fills."""
_ENACTING = (InputKind.CANDIDATE, InputKind.INCLUSION)


def _judge(
    kind: InputKind, now: BlockNumber, index: int, para: ParaId, apply: Callable[[T], Effects], item: T
) -> Verdict:
    try:
        effects = apply(item)
    except Violation as violation:
        # the verdict outlives this call; without its traceback it does not keep the frames alive
        return Verdict(kind, now, index, para, violation.with_traceback(None))
    return _verdict((kind, now, index, para, None, *effects, *_AFTER_EFFECTS))


def _is_due(now: BlockNumber, interval: int) -> bool:
    return interval > 0 and now % interval == 0
