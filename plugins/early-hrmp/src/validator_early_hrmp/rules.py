# SPDX-License-Identifier: Apache-2.0
"""Early HRMP as a rule set. Source: early_hrmp.txt, made precise by xcmp_rules 1.3."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Any, Final

from validator.plugin.api import (
    HEADROOM_WATERMARKS_MAX,
    Balances,
    BlockNumber,
    ChannelEvent,
    ChannelHeadroom,
    ChannelId,
    Dispatch,
    DownwardMessage,
    Effects,
    Enactment,
    EventLog,
    Hash,
    Para,
    ParaHeadroom,
    ParaId,
    PendingRef,
    SessionChange,
    SessionIndex,
    Violation,
    blake2b_256,
    merkle_root,
)
from validator_early_hrmp.acceptance import check_candidate
from validator_early_hrmp.configuration import EarlyHrmpConfiguration
from validator_early_hrmp.enactment import enact_candidate, queue_downward_message
from validator_early_hrmp.errors import InclusionCandidateNotPending, TimeoutCandidateNotPending
from validator_early_hrmp.pages import (
    decode_state,
    decode_untold_page,
    encode_common_page,
    encode_para_page,
    encode_untold_page,
    is_current,
    owner_of,
    para_pages,
)
from validator_early_hrmp.records import (
    AcceptOpenChannel,
    AcceptOpenChannelFrom,
    Candidate,
    ChannelRequest,
    InitOpenChannel,
    make_candidate,
    make_request,
)
from validator_early_hrmp.requests import (
    accept_open_channel,
    accept_open_channel_from,
    close_channel,
    init_open_channel,
)
from validator_early_hrmp.session import change_session, onboard_para
from validator_early_hrmp.state import EarlyHrmpState, OrderedSet, PendingCandidate

RULES_VERSION: Final = 1
"""Grows with every change after which the same state and inputs may give another state."""

_PENDING: Final = Effects(enacted=False)


class EarlyHrmp:
    """A relay chain's channels and downward queues under the rules of early_hrmp.txt."""

    def __init__(
        self,
        state: EarlyHrmpState,
        enactment: Enactment = Enactment.IMMEDIATE,
        page_hashes: dict[int, Hash] | None = None,
    ) -> None:
        """Take a state; ``page_hashes`` are by owner those of pages that are saved as the state has them."""
        self.state = state
        self._enacts_immediately = enactment is Enactment.IMMEDIATE
        self._now: BlockNumber = 0
        self._events = EventLog(0, state.session_index)
        self._page_hashes = page_hashes or {}
        unsaved = dict.fromkeys(owner for owner in para_pages(state) if owner not in self._page_hashes)
        self._to_hash: OrderedSet = dict(unsaved)
        self._to_save: OrderedSet = unsaved

    @classmethod
    def at_genesis(
        cls,
        configuration: EarlyHrmpConfiguration,
        paras: Iterable[Para],
        *,
        balances: Balances = Balances.LEDGER,
        enactment: Enactment = Enactment.IMMEDIATE,
    ) -> EarlyHrmp:
        """Return the rule set of a chain whose paras are registered from the start and which has seen no message."""
        state = EarlyHrmpState(configuration, balances)
        for para in paras:
            onboard_para(state, para)
        return cls(state, enactment)

    @classmethod
    def from_pages(cls, pages: list[bytes], enactment: Enactment = Enactment.IMMEDIATE) -> EarlyHrmp:
        """Return the rule set whose pages these are: the common page, the untold page, those of paras. Raises `DecodeError`."""
        common_page, untold_page, *owned = pages
        state = decode_state(common_page, owned)
        decode_untold_page(untold_page, state)
        return cls(state, enactment, {owner_of(page): blake2b_256(page) for page in owned if is_current(page)})

    def request(self, fields: tuple[Any, ...]) -> ChannelRequest:
        """Return the channel request that a decoded record holds."""
        return make_request(fields)

    def downward(self, fields: tuple[Any, ...]) -> DownwardMessage:
        """Return the downward message that a decoded record holds."""
        return DownwardMessage._make(fields)

    def candidate(self, fields: tuple[Any, ...]) -> Candidate:
        """Return the candidate that a decoded record holds."""
        return make_candidate(fields)

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
        return self.enact_candidate(candidate)._replace(candidate_hash=candidate.candidate_hash)

    def apply_timeout(self, ref: PendingRef) -> Effects:
        """Drop a pending candidate. Raises `TimeoutCandidateNotPending`."""
        candidate = self._take_pending(ref, TimeoutCandidateNotPending(para_id=ref.para_id))
        return Effects(enacted=False, candidate_hash=candidate.candidate_hash)

    def apply_request(self, request: ChannelRequest) -> Effects:
        """Apply one of the entry-points; raises their violations."""
        state, events = self.state, self._events
        if isinstance(request, InitOpenChannel):
            init_open_channel(state, events, *request)
            return Effects(expires_session=state.session_index + max(1, state.configuration.hrmp_open_request_ttl))
        if isinstance(request, AcceptOpenChannel):
            accept_open_channel(state, events, *request)
        elif isinstance(request, AcceptOpenChannelFrom):
            accept_open_channel_from(state, events, *request)
        else:
            close_channel(state, events, *request)
        return Effects(effective_session=state.session_index + 1)

    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a message of the relay chain; always possible."""
        return Effects(messages=(queue_downward_message(self.state, message, self._now),))

    def check_candidate(self, candidate: Candidate) -> None:
        """Raise the violation for which a candidate is not acceptable (`acceptance.check_candidate`)."""
        check_candidate(self.state, candidate)

    def enact_candidate(self, candidate: Candidate) -> Effects:
        """Apply a candidate that has been accepted; tells where its messages came to stand."""
        return Effects(messages=enact_candidate(self.state, candidate, self._now))

    def apply_candidate(self, candidate: Candidate) -> Effects:
        """Accept a candidate, and enact it now or keep it until it is included; raises the violations of `check_candidate`."""
        check_candidate(self.state, candidate)
        if self._enacts_immediately:
            return self.enact_candidate(candidate)
        pending = self.state.pending_candidates.setdefault(candidate.para_id, deque())
        pending.append(PendingCandidate(self._now, candidate))
        self.state.touched.pages[candidate.para_id] = None
        return _PENDING

    def dispatch(self) -> list[Dispatch]:
        """Return nothing: the text has no upward messages."""
        return []

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
        """Return which watermarks a para's next candidate may have, besides its relay parent."""
        state = self.state
        if para not in state.paras:
            return ParaHeadroom(para, valid=False)
        queue = state.downward_queues.get(para, {})
        watermark = state.dmq_watermarks.get(para)
        # messages that waited before the para was registered, or were sent below a watermark, can be passed but not landed on
        landing = (block for block in queue if watermark is None or block > watermark)
        return ParaHeadroom(
            para,
            valid=True,
            downward_pending=sum(map(len, queue.values())),
            watermark=watermark,
            valid_watermarks=tuple(islice(landing, HEADROOM_WATERMARKS_MAX)),
        )

    def channel_headroom(self, channel_id: ChannelId) -> ChannelHeadroom:
        """Return what a channel still takes: nothing where it is sealed, and a single message may be as long as there is room."""
        channel, configuration = self.state.channels.get(channel_id), self.state.configuration
        if channel is None:
            return ChannelHeadroom(*channel_id, open=False)
        if channel.sealed:
            return ChannelHeadroom(*channel_id, open=True)
        bytes_left = max(0, configuration.hrmp_channel_max_size - channel.used_bytes)
        return ChannelHeadroom(
            *channel_id,
            open=True,
            places_left=max(0, configuration.hrmp_channel_max_places - channel.used_places),
            bytes_left=bytes_left,
            message_size_max=bytes_left,
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
        """Return, ascending, the paras that may own a page."""
        return para_pages(self.state)

    def page(self, owner: int) -> bytes | None:
        """Return the canonical encoding of what a para has, None where that is nothing."""
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
        touched = self.state.touched.pages
        self._to_hash.update(touched)
        self._to_save.update(touched)
        touched.clear()

    def _take_pending(self, ref: PendingRef, violation: Violation) -> Candidate:
        pending = self.state.pending_candidates.get(ref.para_id, deque())
        for position, (backed_at, candidate) in enumerate(pending):
            if ref.backed_at in (None, backed_at):
                del pending[position]
                if not pending:
                    del self.state.pending_candidates[ref.para_id]
                self.state.touched.pages[ref.para_id] = None
                return candidate
        raise violation


def state_hash(state: EarlyHrmpState) -> Hash:
    """Return the state root computed from scratch: equal for equal states, whatever they went through."""
    pages = {para: page for para in para_pages(state) if (page := encode_para_page(state, para)) is not None}
    return merkle_root(
        blake2b_256(encode_common_page(state)), {para: blake2b_256(page) for para, page in pages.items()}
    )
