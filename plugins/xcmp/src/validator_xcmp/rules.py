# SPDX-License-Identifier: Apache-2.0
"""The rule set of XCMP channels. Source: xcmp_channels.txt, xcmp_rules 1.2."""

from __future__ import annotations

from typing import Any, ClassVar

from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    BlockNumber,
    ChainSettings,
    ChannelHeadroom,
    DecodeError,
    DownwardMessage,
    Effects,
    LevelChoice,
    Levels,
    ParaHeadroom,
    ParaId,
    SessionChange,
    Violation,
)
from validator.protocols.kit import PendingCandidates
from validator_xcmp import records
from validator_xcmp.acceptance import check_candidate, unread
from validator_xcmp.enactment import enact_candidate, queue_downward_message
from validator_xcmp.encoding import (
    PAGES,
    decode_state,
    encode_common_page,
    encode_para_page,
    owning_paras,
)
from validator_xcmp.levels import levels
from validator_xcmp.records import Candidate, ChannelRequest
from validator_xcmp.requests import apply_channel_request
from validator_xcmp.session import change_session, onboard_para
from validator_xcmp.state import XcmpState


class Xcmp(PendingCandidates[XcmpState]):
    """A relay chain's channels under the rules of xcmp_channels.txt."""

    lists_violations: ClassVar[bool] = True

    @classmethod
    def at_genesis(cls, settings: ChainSettings) -> Xcmp:
        """Return the rule set of a chain that has no channels and whose genesis paras are registered."""
        state = XcmpState(settings.configuration, settings.balances)
        for para in settings.paras:
            onboard_para(state, para)
        return cls(state, settings)

    @classmethod
    def from_pages(cls, pages: list[bytes], settings: ChainSettings | None = None) -> Xcmp:
        """Rebuild a rule set from its pages. Raises `DecodeError`."""
        if len(pages) < 2:
            raise DecodeError(f"expected at least 2 pages, found {len(pages)}")
        common_page, headroom_page, *owned = pages
        return cls(decode_state(common_page, headroom_page, owned), settings, PAGES.hashes(owned))

    def request(self, fields: tuple[Any, ...]) -> ChannelRequest:
        """Return the channel request of a decoded record."""
        return records.request(fields)

    def candidate(self, fields: tuple[Any, ...]) -> Candidate:
        """Return the candidate of a decoded record."""
        return records.candidate(fields)

    def apply_request(self, request: ChannelRequest) -> Effects:
        """Apply a request; raises its violations."""
        return apply_channel_request(self.state, self.events, request)

    def apply_downward(self, message: DownwardMessage) -> Effects:
        """Queue a downward message."""
        para, msg, data_hash = message
        return Effects(messages=(queue_downward_message(self.state, para, msg, self.now, data_hash),))

    def check_candidate(self, candidate: Candidate) -> None:
        """Raise the first rule violation of a candidate, if any (`acceptance.check_candidate`)."""
        check_candidate(self.state, candidate)

    def violations(self, candidate: Candidate) -> list[Violation]:
        """Return all rule violations of a candidate, in the order of the checks."""
        found: list[Violation] = []
        check_candidate(self.state, candidate, found.append)
        return found

    def enact_candidate(self, candidate: Candidate) -> Effects:
        """Apply an accepted candidate."""
        enact_candidate(self.state, candidate, self.now)
        return Effects()

    def change_session(self, change: SessionChange) -> None:
        """Change the session. Pending candidates are dropped."""
        change_session(self.state, self.events, change, self.now)

    def take_headroom(self) -> list[ParaHeadroom | ChannelHeadroom]:
        """Return the paras' headroom that changed since the last call, ascending. Channels have no limit that the relay chain knows."""
        touched = self.state.touched.paras
        headroom: list[ParaHeadroom | ChannelHeadroom] = [self.para_headroom(para) for para in sorted(touched)]
        touched.clear()
        return headroom

    def para_headroom(self, para: ParaId) -> ParaHeadroom:
        """Return the blocks to which a para's watermark may move: those of its channels' newest unread messages."""
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

    def levels(self, now: BlockNumber, choice: LevelChoice) -> Levels:
        """Return how full the lane's queues are after block ``now``."""
        return levels(self.state, now, choice)

    def common_page(self) -> bytes:
        """Return the page of the storage that no para owns."""
        return encode_common_page(self.state)

    def headroom_page(self) -> bytes:
        """Return the page that lists the paras whose headroom has changed. Channels have none."""
        return PAGES.headroom_page(self.state.touched, channels=False)

    def owners(self) -> list[int]:
        """Return, ascending, the paras that may own a page."""
        return list(owning_paras(self.state))

    def page(self, owner: int) -> bytes | None:
        """Return an owner's canonically encoded page, or None if it owns nothing."""
        return encode_para_page(self.state, owner)
