# SPDX-License-Identifier: Apache-2.0
"""The Router as a rule set: UMP, DMP and HRMP, the default protocol. Source: router.txt."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any

from validator.core import records
from validator.core.errors import Violation
from validator.core.events import EventLog
from validator.core.handlers.state import FIRST_OWNER
from validator.core.hashing import blake2b_256
from validator.core.limits import HEADROOM_WATERMARKS_MAX
from validator.core.outcomes import ChannelEvent, ChannelHeadroom, Dispatch, ParaHeadroom
from validator.core.root import merkle_root
from validator.core.router.acceptance import check_candidate
from validator.core.router.dispatch import FixedWeightSink, UpwardMessageSink, process_pending_upward_messages
from validator.core.router.enactment import enact_candidate, queue_downward_message
from validator.core.router.encoding import (
    decode_state,
    decode_untold_page,
    encode_common_page,
    encode_para_page,
    encode_state,
    encode_untold_page,
    is_current,
    owner_of,
    para_pages,
)
from validator.core.router.entry_points import RouterHost
from validator.core.router.errors import InclusionCandidateNotPending, TimeoutCandidateNotPending
from validator.core.router.requests import (
    hrmp_accept_open_channel,
    hrmp_close_channel,
    hrmp_init_open_channel,
    schedule_para_cleanup,
)
from validator.core.router.session import change_session, onboard_para
from validator.core.router.state import OrderedSet, PendingCandidate, RouterState
from validator.core.rules import Effects
from validator.core.types import (
    AcceptOpenChannel,
    Balances,
    BlockNumber,
    Candidate,
    ChannelId,
    ChannelRequest,
    CloseChannel,
    DownwardMessage,
    Enactment,
    Hash,
    HostConfiguration,
    InitOpenChannel,
    Para,
    ParaId,
    PendingRef,
    SessionChange,
    SessionIndex,
)

RULES_VERSION = 1
"""Grows with every change after which the same state and inputs may give another state."""

_ENACTED = Effects()
_PENDING = Effects(enacted=False)


class Router:
    """A relay chain's message queues under the rules of router.txt."""

    def __init__(
        self, state: RouterState, sink: UpwardMessageSink | None = None, enactment: Enactment = Enactment.IMMEDIATE
    ) -> None:
        self.state = state
        self._sink = sink or FixedWeightSink()
        self._enacts_immediately = enactment is Enactment.IMMEDIATE
        self._now: BlockNumber = 0
        self._events = EventLog(0, state.session_index)
        self._page_hashes: dict[int, Hash] = {}
        everything = dict.fromkeys(self.owners())
        self._to_hash: OrderedSet = dict(everything)
        self._to_save: OrderedSet = everything

    @classmethod
    def at_genesis(
        cls,
        config: HostConfiguration,
        paras: Iterable[Para],
        *,
        balances: Balances = Balances.LEDGER,
        notifications: bool = False,
        sink: UpwardMessageSink | None = None,
        enactment: Enactment = Enactment.IMMEDIATE,
    ) -> Router:
        """Return a Router whose paras are valid from the start and which has seen no message."""
        state = RouterState(config, balances, notifications)
        for para in paras:
            onboard_para(state, para)
        return cls(state, sink, enactment)

    @classmethod
    def from_pages(
        cls, pages: list[bytes], sink: UpwardMessageSink | None = None, enactment: Enactment = Enactment.IMMEDIATE
    ) -> Router:
        """Return the Router whose `pages` these are. Raises `scale.DecodeError`."""
        common_page, untold_page, *owned = pages
        state = decode_state(common_page, owned)
        decode_untold_page(untold_page, state)
        router = cls(state, sink, enactment)
        router._page_hashes = {owner_of(page): blake2b_256(page) for page in owned if is_current(page)}
        router._to_hash = dict.fromkeys(owner_of(page) for page in owned if not is_current(page))
        router._to_save = dict(router._to_hash)
        return router

    def request(self, fields: tuple[Any, ...]) -> ChannelRequest:
        """Return the channel request that a decoded record holds."""
        return records.request(fields)

    def downward(self, fields: tuple[Any, ...]) -> DownwardMessage:
        """Return the downward message that a decoded record holds."""
        return records.downward(fields)

    def candidate(self, fields: tuple[Any, ...]) -> Candidate:
        """Return the candidate that a decoded record holds."""
        return records.candidate(fields)

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
        candidate = self._take_pending(ref, InclusionCandidateNotPending(para_id=ref.para_id))
        messages = enact_candidate(self.state, candidate, self._now)
        return Effects(messages=messages, candidate_hash=candidate.candidate_hash)

    def apply_timeout(self, ref: PendingRef) -> Effects:
        """Drop a pending candidate. Raises `TimeoutCandidateNotPending`."""
        candidate = self._take_pending(ref, TimeoutCandidateNotPending(para_id=ref.para_id))
        return Effects(enacted=False, candidate_hash=candidate.candidate_hash)

    def apply_request(self, request: ChannelRequest) -> Effects:
        """Apply one of the four entry-points; raises their violations."""
        state, events = self.state, self._events
        next_session = state.session_index + 1
        if isinstance(request, InitOpenChannel):
            messages = hrmp_init_open_channel(state, events, *request)
            expires = state.session_index + max(1, state.host_configuration.hrmp_open_request_ttl)
            return Effects(messages=messages, expires_session=expires)
        if isinstance(request, AcceptOpenChannel):
            messages = hrmp_accept_open_channel(state, events, *request)
        elif isinstance(request, CloseChannel):
            messages = hrmp_close_channel(state, events, *request)
        else:
            schedule_para_cleanup(state, request.para_id)
            messages = ()
        return Effects(messages=messages, effective_session=next_session)

    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message. Raises `ExceedsMaxMessageSize`."""
        return Effects(messages=(queue_downward_message(self.state, message, self._now),))

    def apply_candidate(self, candidate: Candidate) -> Effects:
        """Accept a candidate, and enact it now or keep it until it is included; raises the violations of `check_candidate`."""
        check_candidate(self.state, candidate)
        if self._enacts_immediately:
            return self.enact_candidate(candidate)
        self.keep_pending(candidate)
        return _PENDING

    def check_candidate(self, candidate: Candidate) -> None:
        """Raise the violation for which a candidate is not acceptable (`acceptance.check_candidate`)."""
        check_candidate(self.state, candidate)

    def enact_candidate(self, candidate: Candidate) -> Effects:
        """Apply a candidate that has been accepted; tells where its messages came to stand."""
        messages = enact_candidate(self.state, candidate, self._now)
        return Effects(messages=messages) if messages else _ENACTED

    def keep_pending(self, candidate: Candidate) -> None:
        """Keep an accepted candidate until it is included or times out."""
        self.state.pending_candidates.setdefault(candidate.para_id, deque()).append(
            PendingCandidate(self._now, candidate)
        )
        self.state.touched.pages[candidate.para_id] = None

    def dispatch(self) -> list[Dispatch]:
        """Run one round of `process_pending_upward_messages`."""
        return process_pending_upward_messages(self.state, self._sink, RouterHost(self.state, self._events), self._now)

    def change_session(self, change: SessionChange) -> None:
        """Change the session; candidates that are pending stay so unless the block record says otherwise."""
        change_session(self.state, self._events, change)

    def end_block(self) -> list[ChannelEvent]:
        """Return the block's channel events."""
        return self._events.events

    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return what changed since the last call, paras first, each ascending."""
        touched = self.state.touched
        headroom: list[ParaHeadroom | ChannelHeadroom] = [self.para_headroom(para) for para in sorted(touched.paras)]
        headroom += [self.channel_headroom(channel_id) for channel_id in sorted(touched.channels)]
        touched.paras.clear()
        touched.channels.clear()
        return headroom

    def para_headroom(self, para: ParaId) -> ParaHeadroom:
        """Return what a para's next candidate may carry and which watermarks it may have."""
        state = self.state
        if para not in state.paras:
            return ParaHeadroom(para, valid=False)
        config = state.host_configuration
        count, size = state.relay_dispatch_queue_size.get(para, (0, 0))
        watermarks = tuple(islice(state.hrmp_channel_digests.get(para, ()), HEADROOM_WATERMARKS_MAX))
        return ParaHeadroom(
            para,
            valid=True,
            upward_count_left=max(0, config.max_upward_queue_count - count),
            upward_bytes_left=max(0, config.max_upward_queue_size - size),
            downward_pending=len(state.downward_message_queues.get(para, ())),
            watermark=state.hrmp_watermarks.get(para),
            valid_watermarks=watermarks,
        )

    def channel_headroom(self, channel_id: ChannelId) -> ChannelHeadroom:
        """Return what a channel still takes."""
        channel = self.state.hrmp_channels.get(channel_id)
        if channel is None:
            return ChannelHeadroom(*channel_id, open=False)
        return ChannelHeadroom(
            *channel_id,
            open=True,
            places_left=channel.limit_used_places - channel.used_places,
            bytes_left=channel.limit_used_bytes - channel.used_bytes,
            message_size_max=channel.limit_message_size,
        )

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
        return merkle_root(blake2b_256(encode_common_page(self.state)), self._page_hashes)

    def common_pages(self) -> list[bytes]:
        """Return the pages that no para owns: the common page, and what headroom is untold."""
        return [encode_common_page(self.state), encode_untold_page(self.state)]

    def owners(self) -> list[int]:
        """Return, ascending, the paras that may own a page, then the owners of what handlers keep."""
        return para_pages(self.state) + self.state.handler_states.owners()

    def page(self, owner: int) -> bytes | None:
        """Return the canonical encoding of what an owner has, None where that is nothing."""
        if owner >= FIRST_OWNER:
            return self.state.handler_states.page(owner)
        return encode_para_page(self.state, owner)

    def changed(self) -> Collection[int]:
        """Return whose pages have changed since the last `mark_saved`."""
        self._note_touched()
        return self._to_save

    def mark_saved(self) -> None:
        """Take note that all pages have been saved as they are now."""
        self._note_touched()
        self._to_save.clear()

    def _note_touched(self) -> None:
        for touched in (self.state.touched.pages, self.state.handler_states.touched):
            self._to_hash.update(touched)
            self._to_save.update(touched)
            touched.clear()

    def _take_pending(self, ref: PendingRef, violation: Violation) -> Candidate:
        pending = self.state.pending_candidates.get(ref.para_id, deque())
        for position, (backed_at, _) in enumerate(pending):
            if ref.backed_at in (None, backed_at):
                return self._remove_pending(ref.para_id, position)
        raise violation

    def _remove_pending(self, para: ParaId, position: int) -> Candidate:
        pending = self.state.pending_candidates[para]
        candidate = pending[position].candidate
        del pending[position]
        if not pending:
            del self.state.pending_candidates[para]
        self.state.touched.pages[para] = None
        return candidate


def state_hash(state: RouterState) -> Hash:
    """Return the state root computed from scratch: equal for equal states, whatever they went through."""
    common_page, pages = encode_state(state)
    return merkle_root(blake2b_256(common_page), {para: blake2b_256(page) for para, page in pages.items()})
