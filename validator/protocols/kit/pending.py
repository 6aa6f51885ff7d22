# SPDX-License-Identifier: Apache-2.0
"""Accepted candidates that wait for availability. Block records name those that are included or timed out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from validator.core.errors import Violation
from validator.core.rules import Effects, RuleSet, State
from validator.core.scale import Reader, Writer
from validator.core.types import BlockNumber, Enactment, ParaId, PendingRef


class PendingCandidate(NamedTuple):
    """An accepted candidate that waits for availability."""

    backed_at: BlockNumber
    candidate: Any


@dataclass(eq=False)
class InclusionCandidateNotPending(Violation):
    """A block record includes a candidate that is not pending."""

    kind: ClassVar[str] = "Inclusion/CandidateNotPending"
    clause: ClassVar[str] = "router_rules 1.1 step 1"
    para_id: ParaId


@dataclass(eq=False)
class TimeoutCandidateNotPending(Violation):
    """A block record times out a candidate that is not pending."""

    kind: ClassVar[str] = "Timeout/CandidateNotPending"
    clause: ClassVar[str] = "router_rules 1.1 step 2"
    para_id: ParaId


class StateWithPending(State, Protocol):
    """A state with pending candidates: one queue per para, oldest first, never empty."""

    pending_candidates: dict[ParaId, deque[PendingCandidate]]


S = TypeVar("S", bound=StateWithPending)

_KEPT_PENDING = Effects(enacted=False)


class PendingCandidates(RuleSet[S]):
    """A rule set that checks candidates, then enacts them at once or on inclusion, as the chain is configured."""

    def apply_candidate(self, candidate: Any) -> Effects:
        """Accept a candidate, then enact it or keep it pending. Raises the violations of `check_candidate`."""
        self.check_candidate(candidate)
        if self.settings.enactment is Enactment.IMMEDIATE:
            return self.enact_candidate(candidate)
        self.keep_pending(candidate)
        return _KEPT_PENDING

    def keep_pending(self, candidate: Any) -> None:
        """Keep an accepted candidate until it is included or times out."""
        pending = self.state.pending_candidates.setdefault(candidate.para_id, deque())
        pending.append(PendingCandidate(self.now, candidate))
        self.state.touched.pages[candidate.para_id] = None

    def apply_inclusion(self, ref: PendingRef) -> Effects:
        """Enact a pending candidate. Raises `InclusionCandidateNotPending`."""
        candidate = self._take_pending(ref, InclusionCandidateNotPending)
        return self.enact_candidate(candidate)._replace(candidate_hash=candidate.candidate_hash)

    def apply_timeout(self, ref: PendingRef) -> Effects:
        """Drop a pending candidate. Raises `TimeoutCandidateNotPending`."""
        candidate = self._take_pending(ref, TimeoutCandidateNotPending)
        return Effects(enacted=False, candidate_hash=candidate.candidate_hash)

    def _take_pending(
        self, ref: PendingRef, violation: type[InclusionCandidateNotPending | TimeoutCandidateNotPending]
    ) -> Any:
        pending = self.state.pending_candidates.get(ref.para_id, deque())
        for position, (backed_at, candidate) in enumerate(pending):
            if ref.backed_at in (None, backed_at):
                del pending[position]
                if not pending:
                    del self.state.pending_candidates[ref.para_id]
                self.state.touched.pages[ref.para_id] = None
                return candidate
        raise violation(para_id=ref.para_id)


def write_pending(
    out: Writer, state: StateWithPending, para: ParaId, write_candidate: Callable[[Writer, Any], None]
) -> None:
    """Append a para's pending candidates: a count, then for each the block it was backed at and the candidate."""
    pending = state.pending_candidates.get(para, ())
    out.compact(len(pending))
    for backed_at, candidate in pending:
        out.u32(backed_at)
        write_candidate(out, candidate)


def read_pending(
    reader: Reader, state: StateWithPending, para: ParaId, read_candidate: Callable[[Reader], Any]
) -> None:
    """Read what `write_pending` wrote into the state. Raises `DecodeError`."""
    pending = deque(reader.items(lambda: PendingCandidate(reader.u32(), read_candidate(reader))))
    if pending:
        state.pending_candidates[para] = pending
