# SPDX-License-Identifier: Apache-2.0
"""What a lane needs of every protocol's state: its session, the candidates that wait for availability, and what has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from validator.core.errors import Violation
from validator.core.scale import Reader, Writer
from validator.core.types import BlockNumber, ChannelId, ParaId, PendingRef, SessionIndex

OrderedSet: TypeAlias = dict[ParaId, None]
"""A set that iterates in order of insertion."""


@dataclass(slots=True)
class Touched:
    """Change marks since the last read. They are derived, not part of the state."""

    pages: OrderedSet = field(default_factory=dict)
    """Paras whose page of the state encoding has changed."""
    paras: OrderedSet = field(default_factory=dict)
    """Paras whose own headroom has changed."""
    channels: dict[ChannelId, None] = field(default_factory=dict)
    """Channels whose headroom has changed."""
    round: int = 0
    """How often headroom was taken. A channel that remembers the round of its mark need not be marked, and looked up, again in it."""


class PendingCandidate(NamedTuple):
    """An accepted candidate that waits for availability."""

    backed_at: BlockNumber
    candidate: Any


class State(Protocol):
    """What a lane needs of a protocol's state."""

    session_index: SessionIndex
    pending_candidates: dict[ParaId, deque[PendingCandidate]]
    """One queue per para, oldest first, never empty."""

    @property
    def touched(self) -> Touched:
        """Return what has changed."""


class InclusionCandidateNotPending(
    Violation,
    kind="Inclusion/CandidateNotPending",
    clause="router_rules 1.1 step 1",
    rule="L-13",
    says="The block says that a candidate of para {para_id} was included, but none is pending here.",
    then="The feeder left out the candidate, or the lane began after it was backed.",
):
    """A block record lists a candidate as included that is not pending."""

    para_id: ParaId


class TimeoutCandidateNotPending(
    Violation,
    kind="Timeout/CandidateNotPending",
    clause="router_rules 1.1 step 2",
    rule="L-14",
    says="The block says that a candidate of para {para_id} timed out, but none is pending here.",
    then="The feeder left out the candidate, or the lane began after it was backed.",
):
    """A block record lists a candidate as timed out that is not pending."""

    para_id: ParaId


def keep_pending(state: State, para: ParaId, backed_at: BlockNumber, candidate: Any) -> None:
    """Keep an accepted candidate until it is included or times out."""
    state.pending_candidates.setdefault(para, deque()).append(PendingCandidate(backed_at, candidate))
    state.touched.pages[para] = None


def find_pending(state: State, ref: PendingRef) -> int | None:
    """Return the position, among its para's pending candidates, of the first one that a reference names; None if there is none."""
    pending = state.pending_candidates.get(ref.para_id, ())
    return next((at for at, (backed_at, _) in enumerate(pending) if ref.backed_at in (None, backed_at)), None)


def remove_pending(state: State, para: ParaId, position: int) -> Any:
    """Remove a para's pending candidate and return it."""
    pending = state.pending_candidates[para]
    candidate = pending[position].candidate
    del pending[position]
    if not pending:
        del state.pending_candidates[para]
    state.touched.pages[para] = None
    return candidate


def write_pending(out: Writer, state: State, para: ParaId, write_candidate: Callable[[Writer, Any], None]) -> None:
    """Append a para's pending candidates: a count, then for each the block it was backed at and the candidate."""
    pending = state.pending_candidates.get(para, ())
    out.compact(len(pending))
    for backed_at, candidate in pending:
        out.u32(backed_at)
        write_candidate(out, candidate)


def read_pending(reader: Reader, state: State, para: ParaId, read_candidate: Callable[[Reader], Any]) -> None:
    """Read what `write_pending` wrote into the state. Raises `DecodeError`."""
    pending = deque(reader.items(lambda: PendingCandidate(reader.u32(), read_candidate(reader))))
    if pending:
        state.pending_candidates[para] = pending
