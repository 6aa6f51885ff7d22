# SPDX-License-Identifier: Apache-2.0
"""What a protocol provides so that a lane can execute its blocks: a state with rules for every input, encoded in pages.

An input that breaks a rule raises a `Violation`: it is rejected and changes nothing. A page holds what one owner has, so saving and the
state root cost only what has changed. Owners are paras by their id, and u64 numbers above those for anything else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from validator.core.errors import Violation
from validator.core.events import EventLog, IngressLog
from validator.core.hashing import blake2b_256
from validator.core.levels import LevelChoice, Levels
from validator.core.limits import U32_MAX
from validator.core.outcomes import ChannelEvent, ChannelHeadroom, Dispatch, MessageRef, ParaHeadroom, Signal
from validator.core.root import merkle_root
from validator.core.types import (
    Balances,
    BlockNumber,
    ChannelId,
    DownwardMessage,
    Enactment,
    Hash,
    Para,
    ParaId,
    PendingRef,
    SessionChange,
    SessionIndex,
)

OrderedSet: TypeAlias = dict[ParaId, None]
"""A set that iterates in order of insertion."""


class Effects(NamedTuple):
    """What an accepted input did; the fields go unchanged into its verdict (`outcomes.Verdict`)."""

    enacted: bool = True
    messages: tuple[MessageRef, ...] = ()
    effective_session: SessionIndex | None = None
    expires_session: SessionIndex | None = None
    candidate_hash: bytes | None = None


class RulesEpoch(NamedTuple):
    """The rules in force from a block until the next epoch begins.

    ``version`` names these rules in digests and stored states. It changes with every change after which the same state and inputs may lead
    to another state. ``profile`` is what the protocol's own rules read, None if it has only one set of them.
    """

    from_block: BlockNumber
    version: int
    profile: Any = None


FIRST_RULES: tuple[RulesEpoch, ...] = (RulesEpoch(0, 1),)
"""One set of rules for every block."""


@dataclass(frozen=True, slots=True)
class ChainSettings:
    """A chain as its protocol sees it: limits, modes, the paras that are valid from the start, and the upward dispatcher.

    ``configuration`` is an instance of the protocol's own class. ``upward_messages`` is passed to the rule set's dispatch round. ``rules``
    are ascending by block; the first ones apply from block 0. Raises ``ValueError`` (`check_rules`).
    """

    configuration: Any = None
    paras: tuple[Para, ...] = ()
    balances: Balances = Balances.LEDGER
    notifications: bool = False
    enactment: Enactment = Enactment.IMMEDIATE
    upward_messages: Any = None
    rules: tuple[RulesEpoch, ...] = FIRST_RULES

    def __post_init__(self) -> None:
        check_rules(self.rules)


class Touched(Protocol):
    """What has changed since it was last read; ``pages`` are the paras whose page of the state encoding has changed."""

    pages: OrderedSet


class State(Protocol):
    """What a `RuleSet` needs from a protocol's state."""

    session_index: SessionIndex

    @property
    def touched(self) -> Touched:
        """Return what has changed."""


S = TypeVar("S", bound=State)


class RuleSet(ABC, Generic[S]):
    """One lane's state under one protocol.

    The ``apply_`` methods either apply an input completely, or raise a `Violation` and change nothing. Requests and candidates have the
    protocol's own types. Every change adds the para to ``state.touched.pages``: only those pages are encoded again.

    Between `begin_block` and `end_block`, ``now`` is the block, ``events`` collects channel events, ``ingress`` collects ingress events,
    and ``profile`` is the profile of the rules in force.
    """

    lists_violations: ClassVar[bool] = False
    """Whether `violations` returns all violations of a candidate, or only the first."""

    def __init__(
        self, state: S, settings: ChainSettings | None = None, page_hashes: dict[int, Hash] | None = None
    ) -> None:
        """Take a state; ``page_hashes`` are, by owner, the hashes of saved pages that match the state."""
        self.state = state
        self.settings = settings or ChainSettings()
        self.now: BlockNumber = 0
        self.profile = self.settings.rules[0].profile
        self.events = EventLog(0, state.session_index)
        self.ingress = IngressLog(0)
        self._page_hashes = page_hashes or {}
        unsaved = dict.fromkeys(owner for owner in self.owners() if owner not in self._page_hashes)
        self._to_hash: OrderedSet = dict(unsaved)
        self._to_save: OrderedSet = unsaved

    # --- records ---

    @abstractmethod
    def request(self, fields: tuple[Any, ...]) -> Any:
        """Return the channel request that a decoded record holds."""

    @abstractmethod
    def candidate(self, fields: tuple[Any, ...]) -> Any:
        """Return the candidate that a decoded record holds; it has ``para_id`` and ``candidate_hash``."""

    def downward(self, fields: tuple[Any, ...]) -> DownwardMessage:
        """Return the downward message that a decoded record holds."""
        return DownwardMessage._make(fields)

    def signals(self, candidate: Any) -> tuple[Signal, ...]:  # noqa: ARG002
        """Return what a candidate signals besides its messages; nothing under rules that know no signals."""
        return ()

    def check_start(self, first_block: BlockNumber) -> None:
        """Raise ``ValueError`` if a chain that begins with this state in ``first_block`` contradicts the rules in force there."""

    # --- a block, in the order of `execute.execute` ---

    def begin_block(self, now: BlockNumber, parent: BlockNumber | None = None) -> None:  # noqa: ARG002
        """Start block ``now`` under the rules in force at its height; ``parent`` is the number of the block executed before, if known."""
        self.now = now
        self.profile = in_force(self.settings.rules, now).profile
        self.events = EventLog(now, self.state.session_index)
        self.ingress = IngressLog(now)

    @abstractmethod
    def apply_inclusion(self, ref: PendingRef) -> Effects:
        """Enact a pending candidate."""

    @abstractmethod
    def apply_timeout(self, ref: PendingRef) -> Effects:
        """Drop a pending candidate."""

    @abstractmethod
    def apply_request(self, request: Any) -> Effects:
        """Apply a channel request."""

    @abstractmethod
    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message."""

    def expect(self, candidates: Sequence[Any]) -> None:
        """Look at a block's candidates before the first of them is judged. Changes nothing; a rule set may fetch what they will need."""

    @abstractmethod
    def check_candidate(self, candidate: Any) -> None:
        """Raise the violation that makes a candidate unacceptable, if there is one."""

    def violations(self, candidate: Any) -> list[Violation]:
        """Return what makes a candidate unacceptable, in the order of the checks; the first is the one that `check_candidate` raises.

        A rule set whose checks report to a `errors.Report` overrides this, and sets `lists_violations`.
        """
        try:
            self.check_candidate(candidate)
        except Violation as violation:
            return [violation.with_traceback(None)]
        return []

    def request_violations(self, request: Any) -> list[Violation] | None:  # noqa: ARG002
        """Return all violations of a request, in the order of the checks; None if only the first can be known, by applying it."""
        return None

    @abstractmethod
    def enact_candidate(self, candidate: Any) -> Effects:
        """Apply an accepted candidate; cannot fail."""

    @abstractmethod
    def apply_candidate(self, candidate: Any) -> Effects:
        """Accept a candidate; enact it if the chain enacts immediately, else keep it pending."""

    def dispatch(self) -> list[Dispatch]:
        """Run the block's round of upward message dispatch; a protocol without upward messages has none."""
        return []

    @abstractmethod
    def change_session(self, change: SessionChange) -> None:
        """Change the session."""

    def end_block(self) -> list[ChannelEvent]:
        """Return the block's channel events."""
        return self.events.events

    @abstractmethod
    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the headroom of everything that changed since the last call: paras, then channels, each ascending."""

    def para_headroom(self, para: ParaId) -> ParaHeadroom | None:  # noqa: ARG002
        """Return a para's headroom now; None if the protocol has none for single paras."""
        return None

    def channel_headroom(self, channel_id: ChannelId) -> ChannelHeadroom | None:  # noqa: ARG002
        """Return a channel's headroom now; None if the protocol has none for single channels."""
        return None

    def levels(self, now: BlockNumber, choice: LevelChoice) -> Levels:  # noqa: ARG002
        """Return how full the lane's queues are after block ``now``; nothing if the protocol does not say."""
        return Levels()

    @property
    def session(self) -> SessionIndex:
        """The current session's index."""
        return self.state.session_index

    # --- pages ---

    @abstractmethod
    def common_page(self) -> bytes:
        """Return the canonical encoding of the state that has no owner."""

    @abstractmethod
    def headroom_page(self) -> bytes:
        """Return the canonical encoding of whose headroom `take_headroom` would return; it is not part of the root."""

    @abstractmethod
    def owners(self) -> list[int]:
        """Return the owners that may have a page, ascending."""

    @abstractmethod
    def page(self, owner: int) -> bytes | None:
        """Return the canonical encoding of what an owner has, or None if it has nothing."""

    def touched_owners(self) -> Iterable[OrderedSet]:
        """Return the sets of owners whose pages have changed; the caller empties them."""
        return (self.state.touched.pages,)

    def common_pages(self) -> list[bytes]:
        """Return the pages without an owner: the common page and the headroom page."""
        return [self.common_page(), self.headroom_page()]

    def state_root(self) -> Hash:
        """Return the root over the canonical encoding of the whole state; encodes only the pages touched since the last call."""
        self._note_touched()
        for owner in self._to_hash:
            page = self.page(owner)
            if page is None:
                self._page_hashes.pop(owner, None)
            else:
                self._page_hashes[owner] = blake2b_256(page)
        self._to_hash.clear()
        return merkle_root(blake2b_256(self.common_page()), self._page_hashes)

    def changed(self) -> Collection[int]:
        """Return the owners whose pages have changed since the last `mark_saved`."""
        self._note_touched()
        return self._to_save

    def mark_saved(self) -> None:
        """Record that all pages have been saved in their present form."""
        self._note_touched()
        self._to_save.clear()

    def _note_touched(self) -> None:
        for touched in self.touched_owners():
            self._to_hash.update(touched)
            self._to_save.update(touched)
            touched.clear()


def check_rules(rules: tuple[RulesEpoch, ...]) -> None:
    """Raise ``ValueError`` unless all numbers are of u32 and epochs ascend from block 0."""
    wrong = [each for epoch in rules for each in epoch[:2] if type(each) is not int or not 0 <= each <= U32_MAX]
    if wrong:
        raise ValueError(f"rules: expected blocks and versions from 0 to {U32_MAX}, found {wrong[0]!r}")
    starts = [epoch.from_block for epoch in rules]
    if not starts or starts[0] != 0 or any(one >= other for one, other in pairwise(starts)):
        raise ValueError(f"rules: expected blocks that ascend from 0, found {starts}")


def in_force(rules: tuple[RulesEpoch, ...], block: BlockNumber) -> RulesEpoch:
    """Return the epoch of a block: the last one that begins at or before it."""
    return rules[bisect_right(rules, block, key=_from_block) - 1]


def _from_block(epoch: RulesEpoch) -> BlockNumber:
    return epoch.from_block


def pages(rules: RuleSet[Any]) -> list[bytes]:
    """Return the canonical encoding of a whole state: the common pages, then the owners' pages, ascending."""
    return [*rules.common_pages(), *filter(None, map(rules.page, rules.owners()))]
