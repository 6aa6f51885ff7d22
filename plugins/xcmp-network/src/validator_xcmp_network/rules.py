# SPDX-License-Identifier: Apache-2.0
"""The rule set of XCMP networking. Source: xcmp_networking.txt, xcmp_rules 1.4."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar

from validator_xcmp.enactment import queue_downward_message
from validator_xcmp.records import AcceptOpenChannel, AcceptOpenChannelFrom, InitOpenChannel
from validator_xcmp.requests import apply_channel_request
from validator_xcmp.session import onboard_para

from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    BlockNumber,
    ChainSettings,
    ChannelHeadroom,
    ChannelId,
    DownwardMessage,
    Effects,
    Enactment,
    Hash,
    LevelChoice,
    Levels,
    ParaHeadroom,
    ParaId,
    PendingRef,
    Report,
    SessionChange,
    Violation,
    refuse,
)
from validator.protocols.kit import PendingCandidates
from validator_xcmp_network import records
from validator_xcmp_network.acceptance import check_candidate
from validator_xcmp_network.bodies import report_body
from validator_xcmp_network.configuration import Setup
from validator_xcmp_network.enactment import enact_candidate
from validator_xcmp_network.errors import CandidateAlreadyEnactedInBlock, CandidateUnknownPara, RequestNotInForce
from validator_xcmp_network.fixed_channels import FixedChannels
from validator_xcmp_network.levels import levels
from validator_xcmp_network.pages import (
    PAGES,
    decode_state,
    encode_common_page,
    encode_para_page,
    owning_paras,
)
from validator_xcmp_network.records import Candidate, ChannelRequest, ReportBody
from validator_xcmp_network.session import change_session
from validator_xcmp_network.state import NetworkState, channel_limit, has_channel, unread_in_channel

_REQUEST_NAMES: dict[type[Any], str] = {
    InitOpenChannel: "init_open_channel",
    AcceptOpenChannel: "accept_open_channel",
    AcceptOpenChannelFrom: "accept_open_channel",
}
"""Requests by the name that a trace gives them; the others close a channel."""


class XcmpNetwork(PendingCandidates[NetworkState]):
    """A relay chain's ingress queues under the rules of xcmp_networking.txt."""

    lists_violations: ClassVar[bool] = True

    def __init__(
        self,
        state: NetworkState,
        settings: ChainSettings | None = None,
        page_hashes: dict[int, Hash] | None = None,
    ) -> None:
        super().__init__(state, settings, page_hashes)
        self._enacted: dict[ParaId, None] = {}
        """Paras with a candidate enacted in the current block. Blocks are executed whole, so this is never saved."""

    @classmethod
    def at_genesis(cls, settings: ChainSettings) -> XcmpNetwork:
        """Return the rule set of a chain whose genesis paras are registered and whose fixed channels, if it has any, are open."""
        setup = settings.configuration
        assert isinstance(setup, Setup)
        state = NetworkState(
            setup.xcmp,
            settings.balances,
            network=setup.network,
            fixed_channels=FixedChannels(setup.open_channels),
        )
        for para in settings.paras:
            onboard_para(state, para)
        # the list of channels may be long, and is not needed any more
        return cls(state, replace(settings, configuration=replace(setup, open_channels=())))

    @classmethod
    def from_pages(cls, pages: list[bytes], settings: ChainSettings | None = None) -> XcmpNetwork:
        """Rebuild a rule set from its pages. Raises `DecodeError`."""
        return cls(decode_state(pages), settings, PAGES.hashes(pages[2:]))

    def request(self, fields: tuple[Any, ...]) -> ChannelRequest:
        """Return the channel request or the report of a decoded record."""
        return records.request(fields)

    def candidate(self, fields: tuple[Any, ...]) -> Candidate:
        """Return the candidate of a decoded record."""
        return records.candidate(fields)

    def begin_block(self, now: BlockNumber, parent: BlockNumber | None = None) -> None:
        """Start a block."""
        if now != self.now:
            self._enacted = {}
        super().begin_block(now, parent)

    def apply_request(self, request: ChannelRequest) -> Effects:
        """Apply a request or a report; raises its violations."""
        if isinstance(request, ReportBody):
            report_body(self.state, request)
            return Effects()
        if not self.state.is_composed:
            raise RequestNotInForce(request=_REQUEST_NAMES.get(type(request), "close_channel"))
        return apply_channel_request(self.state, self.events, request)

    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message."""
        para, msg, data_hash = message
        return Effects(messages=(queue_downward_message(self.state, para, msg, self.now, data_hash),))

    def check_candidate(self, candidate: Candidate) -> None:
        """Raise the first rule violation of a candidate, if any.

        Raises `CandidateUnknownPara`, `CandidateAlreadyEnactedInBlock`, then as `acceptance.check_candidate`.
        """
        self._check(candidate, refuse)

    def violations(self, candidate: Candidate) -> list[Violation]:
        """Return all rule violations of a candidate, in the order of the checks."""
        found: list[Violation] = []
        self._check(candidate, found.append)
        return found

    def _check(self, candidate: Candidate, report: Report) -> None:
        para = candidate.para_id
        if para not in self.state.paras:
            report(CandidateUnknownPara(para=para))
            return
        if self._has_candidate_in_block(para):
            report(CandidateAlreadyEnactedInBlock(para=para, block=self.now))
        check_candidate(self.state, candidate, report)

    def keep_pending(self, candidate: Candidate) -> None:
        """Keep an accepted candidate until it is included or times out, on a chain with fixed channels only what counts there."""
        if not self.state.is_composed:
            candidate = candidate._replace(watermark=None, bitfield="", message_root=None)
        super().keep_pending(candidate)

    def apply_inclusion(self, ref: PendingRef) -> Effects:
        """Enact a pending candidate. Raises `InclusionCandidateNotPending`, `CandidateAlreadyEnactedInBlock`; the latter stays pending."""
        if ref.para_id in self._enacted and self._is_pending(ref):
            raise CandidateAlreadyEnactedInBlock(para=ref.para_id, block=self.now)
        return super().apply_inclusion(ref)

    def enact_candidate(self, candidate: Candidate) -> Effects:
        """Apply an accepted candidate. The second of a para in a block, which `apply_inclusion` refuses, has no effect (N-I11)."""
        if candidate.para_id in self._enacted:
            return Effects()
        self._enacted[candidate.para_id] = None
        enact_candidate(self.state, candidate, self.now, self.ingress)
        return Effects()

    def change_session(self, change: SessionChange) -> None:
        """Change the session. Candidates that wait for inclusion stay pending if the channels are fixed, else they are dropped."""
        change_session(self.state, self.events, self.ingress, change, self.now)

    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the headroom that changed since the last call: paras, then channels, each ascending."""
        return self.state.touched.take_headroom(self.para_headroom, self.channel_headroom)

    def para_headroom(self, para: ParaId) -> ParaHeadroom:
        """Return a para's partial watermark, without its senders, and the blocks of its unread messages."""
        state = self.state
        if para not in state.paras:
            return ParaHeadroom(para, valid=False)
        queue = state.queues.get(para)
        blocks = () if queue is None else tuple(islice(queue.heights, HEADROOM_WATERMARKS_MAX))
        return ParaHeadroom(
            para,
            valid=True,
            downward_pending=len(state.downward_queues.get(para, ())),
            watermark=None if queue is None else queue.watermark,
            valid_watermarks=blocks,
        )

    def channel_headroom(self, channel_id: ChannelId) -> ChannelHeadroom:
        """Return the messages that a channel can still take, and the bytes that its sender's next candidate may declare."""
        state = self.state
        if not has_channel(state, channel_id):
            return ChannelHeadroom(*channel_id, open=False)
        left = channel_limit(state, channel_id) - unread_in_channel(state, channel_id)
        size = state.network.max_block_bytes
        return ChannelHeadroom(*channel_id, open=True, places_left=max(0, left), bytes_left=size, message_size_max=size)

    def levels(self, now: BlockNumber, choice: LevelChoice) -> Levels:
        """Return how full the lane's queues are after block ``now``."""
        return levels(self.state, now, choice)

    def common_page(self) -> bytes:
        """Return the page of the storage that no para owns."""
        return encode_common_page(self.state)

    def headroom_page(self) -> bytes:
        """Return the page that lists the paras and channels whose headroom has changed."""
        return PAGES.headroom_page(self.state.touched)

    def owners(self) -> list[int]:
        """Return, ascending, the paras that may own a page."""
        return list(owning_paras(self.state))

    def page(self, owner: int) -> bytes | None:
        """Return an owner's canonically encoded page, or None if it owns nothing."""
        return encode_para_page(self.state, owner)

    def _has_candidate_in_block(self, para: ParaId) -> bool:
        """Return whether a para already has a candidate that is enacted, or on a chain that enacts on inclusion backed, in this block."""
        if self.settings.enactment is Enactment.IMMEDIATE:
            return para in self._enacted
        return any(backed_at == self.now for backed_at, _ in self.state.pending_candidates.get(para, ()))

    def _is_pending(self, ref: PendingRef) -> bool:
        pending = self.state.pending_candidates.get(ref.para_id, ())
        return any(ref.backed_at in (None, backed_at) for backed_at, _ in pending)
