# SPDX-License-Identifier: Apache-2.0
"""XCMP channels as a rule set. Source: xcmp_channels.txt, xcmp_rules 1.2."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

from validator.plugin.api import (
    HEADROOM_WATERMARKS_MAX,
    BlockNumber,
    ChainSettings,
    ChannelEvent,
    ChannelHeadroom,
    DecodeError,
    Dispatch,
    DownwardMessage,
    Effects,
    Enactment,
    EventLog,
    Hash,
    ParaHeadroom,
    ParaId,
    PendingRef,
    SessionChange,
    SessionIndex,
    Violation,
    blake2b_256,
    merkle_root,
)
from validator_xcmp import records
from validator_xcmp.acceptance import check_candidate, unread
from validator_xcmp.enactment import enact_candidate, queue_downward_message
from validator_xcmp.encoding import (
    decode_state,
    encode_common_page,
    encode_para_page,
    encode_untold_page,
    is_current,
    owner_of,
    owning_paras,
)
from validator_xcmp.errors import InclusionCandidateNotPending, TimeoutCandidateNotPending
from validator_xcmp.records import (
    AcceptOpenChannel,
    AcceptOpenChannelFrom,
    Candidate,
    ChannelRequest,
    CloseChannel,
    InitOpenChannel,
)
from validator_xcmp.requests import (
    accept_open_channel,
    accept_open_channel_from,
    close_channel,
    close_channel_to,
    init_open_channel,
)
from validator_xcmp.session import change_session, onboard_para
from validator_xcmp.state import OrderedSet, PendingCandidate, XcmpState

RULES_VERSION = 1
"""Grows with every change after which the same state and inputs may give another state."""


class Xcmp:
    """A relay chain's channels under the rules of xcmp_channels.txt."""

    def __init__(self, state: XcmpState, enactment: Enactment = Enactment.IMMEDIATE) -> None:
        self.state = state
        self._enacts_immediately = enactment is Enactment.IMMEDIATE
        self._now: BlockNumber = 0
        self._events = EventLog(0, state.session_index)
        self._page_hashes: dict[int, Hash] = {}
        everything: OrderedSet = dict.fromkeys(self.owners())
        self._to_hash: OrderedSet = dict(everything)
        self._to_save: OrderedSet = everything

    @classmethod
    def at_genesis(cls, settings: ChainSettings) -> Xcmp:
        """Return the rule set of a chain whose paras are registered from the start and which has no channels."""
        state = XcmpState(settings.configuration, settings.balances)
        for para in settings.paras:
            onboard_para(state, para)
        return cls(state, settings.enactment)

    @classmethod
    def from_pages(cls, pages: list[bytes], settings: ChainSettings) -> Xcmp:
        """Return the rule set whose pages these are. Raises `DecodeError`."""
        if len(pages) < 2:
            raise DecodeError(f"expected at least 2 pages, found {len(pages)}")
        common_page, untold_page, *owned = pages
        rules = cls(decode_state(common_page, untold_page, owned), settings.enactment)
        rules._page_hashes = {owner_of(page): blake2b_256(page) for page in owned if is_current(page)}
        rules._to_hash = dict.fromkeys(owner_of(page) for page in owned if not is_current(page))
        rules._to_save = dict(rules._to_hash)
        return rules

    def request(self, fields: tuple[Any, ...]) -> ChannelRequest:
        """Return the channel request that a decoded record holds."""
        return records.request(fields)

    def downward(self, fields: tuple[Any, ...]) -> DownwardMessage:
        """Return the downward message that a decoded record holds."""
        return DownwardMessage._make(fields)

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
        enact_candidate(self.state, candidate, self._now)
        return Effects(candidate_hash=candidate.candidate_hash)

    def apply_timeout(self, ref: PendingRef) -> Effects:
        """Drop a pending candidate. Raises `TimeoutCandidateNotPending`."""
        candidate = self._take_pending(ref, TimeoutCandidateNotPending(para_id=ref.para_id))
        return Effects(enacted=False, candidate_hash=candidate.candidate_hash)

    def apply_request(self, request: ChannelRequest) -> Effects:
        """Apply a request; raises their violations."""
        state, events = self.state, self._events
        if isinstance(request, InitOpenChannel):
            init_open_channel(state, events, *request)
            return Effects(expires_session=state.session_index + max(1, state.configuration.xcmp_open_request_ttl))
        if isinstance(request, AcceptOpenChannel):
            accept_open_channel(state, events, *request)
        elif isinstance(request, AcceptOpenChannelFrom):
            accept_open_channel_from(state, events, *request)
        elif isinstance(request, CloseChannel):
            close_channel(state, events, *request)
        else:
            close_channel_to(state, events, *request)
        return Effects(effective_session=state.session_index + 1)

    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message."""
        para, msg, data_hash = message
        return Effects(messages=(queue_downward_message(self.state, para, msg, self._now, data_hash),))

    def check_candidate(self, candidate: Candidate) -> None:
        """Raise the violation for which a candidate is not acceptable (`acceptance.check_candidate`)."""
        check_candidate(self.state, candidate)

    def enact_candidate(self, candidate: Candidate) -> Effects:
        """Apply a candidate that has been accepted."""
        enact_candidate(self.state, candidate, self._now)
        return Effects()

    def apply_candidate(self, candidate: Candidate) -> Effects:
        """Accept a candidate, and enact it now or keep it until it is included; raises the violations of `check_candidate`."""
        check_candidate(self.state, candidate)
        if self._enacts_immediately:
            return self.enact_candidate(candidate)
        para = candidate.para_id
        self.state.pending_candidates.setdefault(para, deque()).append(PendingCandidate(self._now, candidate))
        self.state.touched.pages[para] = None
        return Effects(enacted=False)

    def dispatch(self) -> list[Dispatch]:
        """Return nothing: the protocol has no upward messages."""
        return []

    def change_session(self, change: SessionChange) -> None:
        """Change the session; candidates that are pending are dropped."""
        change_session(self.state, self._events, change, self._now)

    def end_block(self) -> list[ChannelEvent]:
        """Return the block's channel events."""
        return self._events.events

    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return what changed for paras since the last call, ascending; channels have no limit that the relay chain could tell."""
        touched = self.state.touched.paras
        headroom: list[ParaHeadroom | ChannelHeadroom] = [self.para_headroom(para) for para in sorted(touched)]
        touched.clear()
        return headroom

    def para_headroom(self, para: ParaId) -> ParaHeadroom:
        """Return which blocks a para's watermark may move to: those of the newest unread messages of its channels."""
        state = self.state
        if para not in state.paras:
            return ParaHeadroom(para, valid=False)
        watermark = state.watermarks.get(para)
        blocks = tuple(dict.fromkeys(block for block, _ in unread(state, para)))
        return ParaHeadroom(
            para,
            valid=True,
            downward_pending=len(state.downward_queues.get(para, ())),
            watermark=None if watermark is None else watermark[0],
            valid_watermarks=blocks[:HEADROOM_WATERMARKS_MAX],
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
        return list(owning_paras(self.state))

    def page(self, owner: int) -> bytes | None:
        """Return the canonical encoding of what an owner has, None where that is nothing."""
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
        state = self.state
        pending = state.pending_candidates.get(ref.para_id, deque())
        for position, (backed_at, candidate) in enumerate(pending):
            if ref.backed_at in (None, backed_at):
                del pending[position]
                if not pending:
                    del state.pending_candidates[ref.para_id]
                state.touched.pages[ref.para_id] = None
                return candidate
        raise violation
