# SPDX-License-Identifier: Apache-2.0
"""What a protocol provides so that a lane can execute its blocks: a table of functions on a state, and the state encoded in pages.

An input that breaks a rule raises a `Violation`: it is rejected and changes nothing. A page holds what one owner has, so saving and the
state root cost only what has changed. Owners are paras by their id, and u64 numbers above those for anything else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

from validator.core.errors import Report, Violation, refuse
from validator.core.events import EventLog, IngressLog
from validator.core.hashing import blake2b_256
from validator.core.levels import LevelChoice, Levels
from validator.core.limits import U32_MAX
from validator.core.outcomes import ChannelHeadroom, Dispatch, MessageRange, MessageRef, ParaHeadroom, Signal
from validator.core.root import merkle_root
from validator.core.scale import DecodeError
from validator.core.state import (
    InclusionCandidateNotPending,
    OrderedSet,
    State,
    TimeoutCandidateNotPending,
    find_pending,
    keep_pending,
    remove_pending,
)
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
    maker,
)


class Effects(NamedTuple):
    """What an accepted input did; the fields go unchanged into its verdict (`outcomes.Verdict`)."""

    enacted: bool = True
    messages: tuple[MessageRef, ...] = ()
    received: tuple[MessageRange, ...] = ()
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


S = TypeVar("S", bound=State)


@dataclass(slots=True)
class Environment:
    """All that rules may look at besides the state while a block is executed, and the logs of what happens in it.

    ``settings`` are the chain's, without its configuration and its first paras, which are in the state. ``profile`` belongs to the rules
    in force in block ``now``. ``dispatched`` collects the upward messages that were handed over, whether by requests or by the round,
    ``received`` what the candidate that is being enacted has taken from its para's queues.
    """

    settings: ChainSettings
    now: BlockNumber
    profile: Any
    events: EventLog
    ingress: IngressLog
    dispatched: list[Dispatch]
    received: list[MessageRange]


def _no_signals(env: Environment, candidate: Any) -> tuple[Signal, ...]:  # noqa: ARG001
    return ()


def _nothing(*_: Any) -> None:
    return None


def _as_it_is(_state: Any, candidate: Any) -> Any:
    return candidate


def _no_levels(state: Any, profile: Any, now: BlockNumber, choice: LevelChoice) -> Levels:  # noqa: ARG001
    return Levels()


def _own_pages(state: State) -> tuple[OrderedSet, ...]:
    return (state.touched.pages,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet(Generic[S]):
    """A protocol as a table of functions on its state.

    A function that takes an input either applies it completely, or raises a `Violation` and changes nothing. ``check_candidate`` alone
    reports instead of raising: a lane's report raises the first violation, a dry run's collects all of them. ``enact_candidate`` cannot
    fail; it returns the messages that it has queued, and adds to ``env.received`` those that left the para's queues. Every change adds the
    para to ``state.touched.pages``: only those pages are encoded again.

    Records: ``request`` and ``candidate`` build the protocol's own types from a decoded record; a candidate has ``para_id`` and
    ``candidate_hash``.

    Pages: ``owners`` returns the owners that may have a page, ascending, ``page`` what an owner has or None, ``common_page`` what has no
    owner, ``headroom_page`` whose headroom has changed. ``restore`` is the inverse: it takes the common page, the headroom page and the
    owners' pages, and raises `DecodeError`. ``page_hashes`` returns, by owner, the hashes of those pages that `page` would return again.

    All else is optional. ``first_profile`` is the profile of a chain whose rules name none. ``check_start`` raises ``ValueError`` if a
    chain that begins with a state contradicts the rules in force, ``begin_block`` prepares a block whose parent is given if it is known,
    ``expect`` looks at a block's candidates before the first of them is judged. ``signals`` returns what a candidate signals besides its
    messages. ``request_violations`` returns all violations of a request, in the order of the checks, or None if only the first can be
    known, by applying it. ``as_pending`` returns what is kept of an accepted candidate, ``check_inclusion`` raises the violation because
    of which a pending one stays pending. ``dispatch`` runs the block's round of upward messages. ``para_headroom`` and
    ``channel_headroom`` return a para's and a channel's headroom under a profile, ``levels`` how full the queues are after a block.
    ``touched_owners`` returns the sets of owners whose pages have changed, which the caller empties.
    """

    genesis: Callable[[ChainSettings], S]
    request: Callable[[tuple[Any, ...]], Any]
    candidate: Callable[[tuple[Any, ...]], Any]

    apply_request: Callable[[S, Environment, Any], Effects]
    queue_downward: Callable[[S, Environment, DownwardMessage], MessageRef]
    check_candidate: Callable[[S, Environment, Any, Report], None]
    enact_candidate: Callable[[S, Environment, Any], tuple[MessageRef, ...]]
    change_session: Callable[[S, Environment, SessionChange], None]

    common_page: Callable[[S], bytes]
    headroom_page: Callable[[S], bytes]
    owners: Callable[[S], list[int]]
    page: Callable[[S, int], bytes | None]
    restore: Callable[[bytes, bytes, list[bytes]], S]
    page_hashes: Callable[[list[bytes]], dict[int, Hash]]

    first_profile: Any = None
    check_start: Callable[[S, Any, BlockNumber], None] = _nothing
    begin_block: Callable[[S, Environment, BlockNumber | None], None] = _nothing
    expect: Callable[[S, Sequence[Any]], object] = _nothing
    signals: Callable[[Environment, Any], tuple[Signal, ...]] = _no_signals
    request_violations: Callable[[S, Environment, Any], list[Violation] | None] = _nothing
    as_pending: Callable[[S, Any], Any] = _as_it_is
    check_inclusion: Callable[[S, Environment, Any], None] = _nothing
    dispatch: Callable[[S, Environment], None] = _nothing
    para_headroom: Callable[[S, Any, ParaId], ParaHeadroom] | None = None
    channel_headroom: Callable[[S, Any, ChannelId], ChannelHeadroom] | None = None
    levels: Callable[[S, Any, BlockNumber, LevelChoice], Levels] = _no_levels
    touched_owners: Callable[[S], Iterable[OrderedSet]] = _own_pages

    def at_genesis(self, settings: ChainSettings) -> LaneRules[S]:
        """Return a chain that has seen no block."""
        return LaneRules(self, self.genesis(settings), settings)

    def from_pages(self, pages: Sequence[bytes], settings: ChainSettings | None = None) -> LaneRules[S]:
        """Return the chain that its `pages` describe. Raises `DecodeError`."""
        if len(pages) < 2:
            raise DecodeError(f"expected at least 2 pages, found {len(pages)}")
        common_page, headroom_page, *owned = pages
        state = self.restore(common_page, headroom_page, owned)
        return LaneRules(self, state, settings, self.page_hashes(owned))

    def root_of(self, state: S) -> Hash:
        """Return a state's root, computed from scratch. Equal states have equal roots, whatever their history."""
        pages = {owner: page for owner in self.owners(state) if (page := self.page(state, owner)) is not None}
        hashes = {owner: blake2b_256(page) for owner, page in pages.items()}
        return merkle_root(blake2b_256(self.common_page(state)), hashes)


class LaneRules(Generic[S]):
    """A rule set at work on one lane's state: the block that is executed, the candidates that wait, and the pages to save."""

    def __init__(
        self,
        rule_set: RuleSet[S],
        state: S,
        settings: ChainSettings | None = None,
        page_hashes: dict[int, Hash] | None = None,
    ) -> None:
        """Take a state; ``page_hashes`` are, by owner, the hashes of saved pages that match the state."""
        self.rule_set = rule_set
        self.state = state
        self.settings = replace(settings or ChainSettings(), configuration=None, paras=())
        self._enacts_at_once = self.settings.enactment is Enactment.IMMEDIATE
        self.begin_environment(0)
        self._page_hashes = page_hashes or {}
        unsaved = dict.fromkeys(owner for owner in self.owners() if owner not in self._page_hashes)
        self._to_hash: OrderedSet = dict(unsaved)
        self._to_save: OrderedSet = unsaved

    def begin_environment(self, now: BlockNumber) -> None:
        """Take the environment of block ``now``; `begin_block` also lets the rules prepare it."""
        events, ingress = EventLog(now, self.state.session_index), IngressLog(now)
        self.env = Environment(self.settings, now, self.profile_of(now), events, ingress, [], [])

    def profile_of(self, block: BlockNumber) -> Any:
        """Return the profile of the rules in force in a block."""
        profile = in_force(self.settings.rules, block).profile
        return self.rule_set.first_profile if profile is None else profile

    def check_start(self, first_block: BlockNumber) -> None:
        """Raise ``ValueError`` if a chain that begins with this state in ``first_block`` contradicts the rules in force there."""
        self.rule_set.check_start(self.state, self.profile_of(first_block), first_block)

    # --- a block, in the order of `execute.execute` ---

    def begin_block(self, now: BlockNumber, parent: BlockNumber | None = None) -> None:
        """Start block ``now`` under the rules in force at its height; ``parent`` is the number of the block executed before, if known."""
        self.begin_environment(now)
        self.rule_set.begin_block(self.state, self.env, parent)

    def apply_inclusion(self, ref: PendingRef) -> Effects:
        """Enact a pending candidate. Raises `InclusionCandidateNotPending`, then the violations of ``check_inclusion``."""
        position = find_pending(self.state, ref)
        if position is None:
            raise InclusionCandidateNotPending(para_id=ref.para_id)
        candidate = self.state.pending_candidates[ref.para_id][position].candidate
        self.rule_set.check_inclusion(self.state, self.env, candidate)
        remove_pending(self.state, ref.para_id, position)
        return self.enact_candidate(candidate)._replace(candidate_hash=candidate.candidate_hash)

    def apply_timeout(self, ref: PendingRef) -> Effects:
        """Drop a pending candidate. Raises `TimeoutCandidateNotPending`."""
        position = find_pending(self.state, ref)
        if position is None:
            raise TimeoutCandidateNotPending(para_id=ref.para_id)
        candidate = remove_pending(self.state, ref.para_id, position)
        return Effects(enacted=False, candidate_hash=candidate.candidate_hash)

    def apply_request(self, request: Any) -> Effects:
        """Apply a channel request."""
        return self.rule_set.apply_request(self.state, self.env, request)

    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message."""
        return Effects(messages=(self.rule_set.queue_downward(self.state, self.env, message),))

    def apply_candidate(self, candidate: Any) -> Effects:
        """Accept a candidate, then enact it or keep it pending. Raises its first violation."""
        state, env = self.state, self.env
        self.rule_set.check_candidate(state, env, candidate, refuse)
        if self._enacts_at_once:
            return self.enact_candidate(candidate)
        keep_pending(state, candidate.para_id, env.now, self.rule_set.as_pending(state, candidate))
        return _KEPT_PENDING

    def check_candidate(self, candidate: Any) -> None:
        """Raise the violation that makes a candidate unacceptable, if there is one."""
        self.rule_set.check_candidate(self.state, self.env, candidate, refuse)

    def violations(self, candidate: Any) -> list[Violation]:
        """Return what makes a candidate unacceptable, in the order of the checks; the first is the one that `check_candidate` raises."""
        found: list[Violation] = []
        self.rule_set.check_candidate(self.state, self.env, candidate, found.append)
        return found

    def request_violations(self, request: Any) -> list[Violation] | None:
        """Return all violations of a request, in the order of the checks; None if only the first can be known, by applying it."""
        return self.rule_set.request_violations(self.state, self.env, request)

    def enact_candidate(self, candidate: Any) -> Effects:
        """Apply an accepted candidate; cannot fail."""
        env = self.env
        messages = self.rule_set.enact_candidate(self.state, env, candidate)
        if not env.received:
            return _effects((True, messages, *_NO_MORE)) if messages else _ENACTED
        received = tuple(env.received)
        env.received.clear()
        return _effects((True, messages, received, *_NO_SESSIONS))

    def dispatch(self) -> list[Dispatch]:
        """Run the block's round of upward messages. Return what it handed over, after what requests had handed over before it."""
        self.rule_set.dispatch(self.state, self.env)
        return self.env.dispatched

    def change_session(self, change: SessionChange) -> None:
        """Change the session."""
        self.rule_set.change_session(self.state, self.env, change)

    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the headroom of everything that changed since the last call: paras, then channels, each ascending."""
        touched, profile = self.state.touched, self.env.profile
        para_headroom, channel_headroom = self.rule_set.para_headroom, self.rule_set.channel_headroom
        headroom: list[ParaHeadroom | ChannelHeadroom] = []
        if para_headroom is not None:
            headroom += [para_headroom(self.state, profile, para) for para in sorted(touched.paras)]
        if channel_headroom is not None:
            headroom += [channel_headroom(self.state, profile, channel) for channel in sorted(touched.channels)]
        touched.paras.clear()
        touched.channels.clear()
        touched.round += 1
        return headroom

    def para_headroom(self, para: ParaId) -> ParaHeadroom | None:
        """Return a para's headroom now; None if the protocol has none for single paras."""
        headroom = self.rule_set.para_headroom
        return None if headroom is None else headroom(self.state, self.env.profile, para)

    def channel_headroom(self, channel_id: ChannelId) -> ChannelHeadroom | None:
        """Return a channel's headroom now; None if the protocol has none for single channels."""
        headroom = self.rule_set.channel_headroom
        return None if headroom is None else headroom(self.state, self.env.profile, channel_id)

    def levels(self, now: BlockNumber, choice: LevelChoice) -> Levels:
        """Return how full the lane's queues are after block ``now``; nothing if the protocol does not say."""
        return self.rule_set.levels(self.state, self.profile_of(now), now, choice)

    @property
    def session(self) -> SessionIndex:
        """The current session's index."""
        return self.state.session_index

    # --- pages ---

    def owners(self) -> list[int]:
        """Return the owners that may have a page, ascending."""
        return self.rule_set.owners(self.state)

    def page(self, owner: int) -> bytes | None:
        """Return the canonical encoding of what an owner has, or None if it has nothing."""
        return self.rule_set.page(self.state, owner)

    def common_page(self) -> bytes:
        """Return the canonical encoding of the state that has no owner."""
        return self.rule_set.common_page(self.state)

    def common_pages(self) -> list[bytes]:
        """Return the pages without an owner: the common page and the headroom page, which is not part of the root."""
        return [self.common_page(), self.rule_set.headroom_page(self.state)]

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
        for touched in self.rule_set.touched_owners(self.state):
            self._to_hash.update(touched)
            self._to_save.update(touched)
            touched.clear()


_effects = maker(Effects)
_NO_MORE = Effects()[2:]
_NO_SESSIONS = Effects()[3:]
_ENACTED = Effects()
_KEPT_PENDING = Effects(enacted=False)


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


def pages(rules: LaneRules[Any]) -> list[bytes]:
    """Return the canonical encoding of a whole state: the common pages, then the owners' pages, ascending."""
    return [*rules.common_pages(), *filter(None, map(rules.page, rules.owners()))]
