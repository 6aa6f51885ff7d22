# SPDX-License-Identifier: Apache-2.0
"""The rule set of early HRMP. Source: early_hrmp.txt, made precise by xcmp_rules 1.3."""

from __future__ import annotations

from itertools import islice
from typing import Any, ClassVar

from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    BlockNumber,
    ChainSettings,
    ChannelHeadroom,
    ChannelId,
    DownwardMessage,
    Effects,
    Hash,
    LevelChoice,
    Levels,
    ParaHeadroom,
    ParaId,
    SessionChange,
    Violation,
    blake2b_256,
    merkle_root,
)
from validator.protocols.kit import PendingCandidates
from validator_early_hrmp.acceptance import check_candidate
from validator_early_hrmp.enactment import enact_candidate, queue_downward_message
from validator_early_hrmp.levels import levels
from validator_early_hrmp.pages import (
    PAGES,
    decode_state,
    encode_common_page,
    encode_para_page,
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
from validator_early_hrmp.state import EarlyHrmpState


class EarlyHrmp(PendingCandidates[EarlyHrmpState]):
    """A relay chain's channels and downward queues under the rules of early_hrmp.txt."""

    lists_violations: ClassVar[bool] = True

    @classmethod
    def at_genesis(cls, settings: ChainSettings) -> EarlyHrmp:
        """Return the rule set of a chain that has seen no message and whose genesis paras are registered."""
        state = EarlyHrmpState(settings.configuration, settings.balances)
        for para in settings.paras:
            onboard_para(state, para)
        return cls(state, settings)

    @classmethod
    def from_pages(cls, pages: list[bytes], settings: ChainSettings | None = None) -> EarlyHrmp:
        """Rebuild a rule set from its pages: the common page, the headroom page, the paras' pages. Raises `DecodeError`."""
        common_page, headroom_page, *owned = pages
        state = decode_state(common_page, owned)
        state.touched = PAGES.read_headroom_page(headroom_page)
        return cls(state, settings, PAGES.hashes(owned))

    def request(self, fields: tuple[Any, ...]) -> ChannelRequest:
        """Return the channel request of a decoded record."""
        return make_request(fields)

    def candidate(self, fields: tuple[Any, ...]) -> Candidate:
        """Return the candidate of a decoded record."""
        return make_candidate(fields)

    def apply_request(self, request: ChannelRequest) -> Effects:
        """Apply one of the entry points; raises its violations."""
        state, events = self.state, self.events
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
        """Queue a message of the relay chain. It is always accepted."""
        return Effects(messages=(queue_downward_message(self.state, message, self.now),))

    def check_candidate(self, candidate: Candidate) -> None:
        """Raise the first rule violation of a candidate, if any (`acceptance.check_candidate`)."""
        check_candidate(self.state, candidate)

    def violations(self, candidate: Candidate) -> list[Violation]:
        """Return all rule violations of a candidate, in the order of the checks."""
        found: list[Violation] = []
        check_candidate(self.state, candidate, found.append)
        return found

    def enact_candidate(self, candidate: Candidate) -> Effects:
        """Apply an accepted candidate and return the queue positions of its messages."""
        return Effects(messages=enact_candidate(self.state, candidate, self.now))

    def change_session(self, change: SessionChange) -> None:
        """Change the session. Pending candidates stay pending unless the block record says otherwise."""
        change_session(self.state, self.events, change)

    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the headroom that changed since the last call: paras, then channels, each ascending."""
        return self.state.touched.take_headroom(self.para_headroom, self.channel_headroom)

    def para_headroom(self, para: ParaId) -> ParaHeadroom:
        """Return the watermarks that a para's next candidate may have, in addition to its relay parent."""
        state = self.state
        if para not in state.paras:
            return ParaHeadroom(para, valid=False)
        queue = state.downward_queues.get(para, {})
        watermark = state.dmq_watermarks.get(para)
        # a queue can still hold messages at or below the last watermark, but no watermark can land on their blocks
        landing = (block for block in queue if watermark is None or block > watermark)
        return ParaHeadroom(
            para,
            valid=True,
            downward_pending=sum(map(len, queue.values())),
            watermark=watermark,
            valid_watermarks=tuple(islice(landing, HEADROOM_WATERMARKS_MAX)),
        )

    def channel_headroom(self, channel_id: ChannelId) -> ChannelHeadroom:
        """Return how much a channel can still take: nothing if it is sealed. A single message may use all the room left."""
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

    def levels(self, now: BlockNumber, choice: LevelChoice) -> Levels:
        """Return how full the lane's queues are after block ``now``."""
        return levels(self.state, now, choice)

    def common_page(self) -> bytes:
        """Return the page of the storage that no para owns."""
        return encode_common_page(self.state)

    def headroom_page(self) -> bytes:
        """Return the page that lists the owners whose headroom has changed."""
        return PAGES.headroom_page(self.state.touched)

    def owners(self) -> list[int]:
        """Return, ascending, the paras that may own a page."""
        return para_pages(self.state)

    def page(self, owner: int) -> bytes | None:
        """Return a para's canonically encoded page, or None if it owns nothing."""
        return encode_para_page(self.state, owner)


def state_hash(state: EarlyHrmpState) -> Hash:
    """Return the state root computed from scratch. Equal states have equal roots, whatever their history."""
    pages = {para: page for para in para_pages(state) if (page := encode_para_page(state, para)) is not None}
    return merkle_root(
        blake2b_256(encode_common_page(state)), {para: blake2b_256(page) for para, page in pages.items()}
    )
