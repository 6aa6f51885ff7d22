# SPDX-License-Identifier: Apache-2.0
"""What rule sets of relay chains have in common: candidates that wait for their inclusion, and a state kept in pages by owner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from validator.core.errors import Violation
from validator.core.events import EventLog
from validator.core.hashing import blake2b_256
from validator.core.outcomes import ChannelEvent, ChannelHeadroom, Dispatch, ParaHeadroom
from validator.core.root import merkle_root
from validator.core.rules import Effects
from validator.core.types import (
    Balance,
    BlockNumber,
    DownwardMessage,
    Enactment,
    Hash,
    ParaId,
    PendingRef,
    SessionChange,
    SessionIndex,
)

OrderedSet: TypeAlias = dict[ParaId, None]
"""A set that iterates in order of insertion."""


@dataclass(slots=True)
class Account:
    """A para's sovereign account: what it may spend and what is held back as deposits."""

    free: Balance = 0
    reserved: Balance = 0


class PendingCandidate(NamedTuple):
    """An accepted candidate that waits for availability."""

    backed_at: BlockNumber
    candidate: Any


@dataclass(eq=False)
class InclusionCandidateNotPending(Violation):
    """A block record lists a candidate as included that is not pending here."""

    kind: ClassVar[str] = "Inclusion/CandidateNotPending"
    clause: ClassVar[str] = "router_rules 1.1 step 1"
    para_id: ParaId


@dataclass(eq=False)
class TimeoutCandidateNotPending(Violation):
    """A block record lists a candidate as timed out that is not pending here."""

    kind: ClassVar[str] = "Timeout/CandidateNotPending"
    clause: ClassVar[str] = "router_rules 1.1 step 2"
    para_id: ParaId


class Touched(Protocol):
    """What has changed since somebody last looked; ``pages`` are the paras whose page of the state encoding has."""

    pages: OrderedSet


class PagedState(Protocol):
    """What `PagedRules` needs of a state; ``pending_candidates`` are oldest first, and no queue of them is empty."""

    session_index: SessionIndex
    pending_candidates: dict[ParaId, deque[PendingCandidate]]

    @property
    def touched(self) -> Touched:
        """Return what has changed."""


S = TypeVar("S", bound=PagedState)

_PENDING = Effects(enacted=False)


class PagedRules(ABC, Generic[S]):
    """A `RuleSet` that keeps its state in pages: a protocol adds its requests, its rules for candidates, and its pages.

    Every change notes the para in ``state.touched.pages``; only those pages are encoded again for the state root, and saved.
    """

    def __init__(
        self, state: S, enactment: Enactment = Enactment.IMMEDIATE, page_hashes: dict[int, Hash] | None = None
    ) -> None:
        """Take a state; ``page_hashes`` are, by owner, those of pages that are saved as the state has them."""
        self.state = state
        self._enacts_immediately = enactment is Enactment.IMMEDIATE
        self._now: BlockNumber = 0
        self._events = EventLog(0, state.session_index)
        self._page_hashes = page_hashes or {}
        unsaved = dict.fromkeys(owner for owner in self.owners() if owner not in self._page_hashes)
        self._to_hash: OrderedSet = dict(unsaved)
        self._to_save: OrderedSet = unsaved

    # --- what a protocol adds ---

    @abstractmethod
    def request(self, fields: tuple[Any, ...]) -> Any:
        """Return the channel request that a decoded record holds."""

    @abstractmethod
    def candidate(self, fields: tuple[Any, ...]) -> Any:
        """Return the candidate that a decoded record holds; it has ``para_id`` and ``candidate_hash``."""

    @abstractmethod
    def apply_request(self, request: Any) -> Effects:
        """Apply a channel request; raises its violation."""

    @abstractmethod
    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message; raises its violation."""

    @abstractmethod
    def check_candidate(self, candidate: Any) -> None:
        """Raise the violation for which a candidate is not acceptable, if there is one."""

    @abstractmethod
    def enact_candidate(self, candidate: Any) -> Effects:
        """Apply a candidate that has been accepted; cannot fail."""

    @abstractmethod
    def change_session(self, change: SessionChange) -> None:
        """Change the session."""

    @abstractmethod
    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the headroom of everything that changed since the last call: paras, then channels, each ascending."""

    @abstractmethod
    def common_page(self) -> bytes:
        """Return the canonical encoding of what no owner has."""

    @abstractmethod
    def untold_page(self) -> bytes:
        """Return the canonical encoding of whose headroom has not been told yet; it is not part of the root."""

    @abstractmethod
    def owners(self) -> list[int]:
        """Return, ascending, the owners that may have a page: paras by their id, u64 above them for whatever else there is."""

    @abstractmethod
    def page(self, owner: int) -> bytes | None:
        """Return the canonical encoding of what an owner has, None where that is nothing."""

    def touched_owners(self) -> Iterable[OrderedSet]:
        """Return the sets of owners whose pages have changed, to be emptied."""
        return (self.state.touched.pages,)

    # --- a block ---

    def downward(self, fields: tuple[Any, ...]) -> DownwardMessage:
        """Return the downward message that a decoded record holds."""
        return DownwardMessage._make(fields)

    @property
    def session(self) -> SessionIndex:
        """The current session's index."""
        return self.state.session_index

    def begin_block(self, now: BlockNumber) -> None:
        """Start block ``now``."""
        self._now = now
        self._events = EventLog(now, self.state.session_index)

    def apply_inclusion(self, ref: PendingRef) -> Effects:
        """Enact a pending candidate. Raises `InclusionCandidateNotPending`."""
        candidate = self._take_pending(ref, InclusionCandidateNotPending)
        return self.enact_candidate(candidate)._replace(candidate_hash=candidate.candidate_hash)

    def apply_timeout(self, ref: PendingRef) -> Effects:
        """Drop a pending candidate. Raises `TimeoutCandidateNotPending`."""
        candidate = self._take_pending(ref, TimeoutCandidateNotPending)
        return Effects(enacted=False, candidate_hash=candidate.candidate_hash)

    def apply_candidate(self, candidate: Any) -> Effects:
        """Accept a candidate, and enact it now or keep it until it is included; raises the violations of `check_candidate`."""
        self.check_candidate(candidate)
        if self._enacts_immediately:
            return self.enact_candidate(candidate)
        self.keep_pending(candidate)
        return _PENDING

    def keep_pending(self, candidate: Any) -> None:
        """Keep an accepted candidate until it is included or times out."""
        pending = self.state.pending_candidates.setdefault(candidate.para_id, deque())
        pending.append(PendingCandidate(self._now, candidate))
        self.state.touched.pages[candidate.para_id] = None

    def dispatch(self) -> list[Dispatch]:
        """Return nothing: a protocol that has upward messages runs its round here."""
        return []

    def end_block(self) -> list[ChannelEvent]:
        """Return the block's channel events."""
        return self._events.events

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

    # --- pages ---

    def state_root(self) -> Hash:
        """Return the state root; costs the encoding of what was touched since the last one."""
        self._note_touched()
        for owner in self._to_hash:
            page = self.page(owner)
            if page is None:
                self._page_hashes.pop(owner, None)
            else:
                self._page_hashes[owner] = blake2b_256(page)
        self._to_hash.clear()
        return merkle_root(blake2b_256(self.common_page()), self._page_hashes)

    def common_pages(self) -> list[bytes]:
        """Return the pages that nobody owns: the common page, and what headroom is untold."""
        return [self.common_page(), self.untold_page()]

    def changed(self) -> Collection[int]:
        """Return whose pages have changed since the last `mark_saved`."""
        self._note_touched()
        return self._to_save

    def mark_saved(self) -> None:
        """Take note that all pages have been saved as they are now."""
        self._note_touched()
        self._to_save.clear()

    def _note_touched(self) -> None:
        for touched in self.touched_owners():
            self._to_hash.update(touched)
            self._to_save.update(touched)
            touched.clear()
