# SPDX-License-Identifier: Apache-2.0
"""The rule set of XCMP channels. Source: xcmp_channels.txt, xcmp_rules 1.2."""

from __future__ import annotations

from typing import Any, Final

from validator.plugin.protocol_api import HEADROOM_WATERMARKS_MAX, ChainSettings, ParaHeadroom, ParaId, RuleSet
from validator_xcmp import records
from validator_xcmp.acceptance import check_candidate, unread
from validator_xcmp.enactment import enact_candidate, queue_downward_message
from validator_xcmp.encoding import PAGES, decode_state, encode_common_page, encode_para_page, owning_paras
from validator_xcmp.levels import levels
from validator_xcmp.requests import apply_request
from validator_xcmp.session import change_session, onboard_para
from validator_xcmp.state import XcmpState


def genesis(settings: ChainSettings) -> XcmpState:
    """Return the state of a chain that has no channels and whose genesis paras are registered."""
    state = XcmpState(settings.configuration, settings.balances)
    for para in settings.paras:
        onboard_para(state, para)
    return state


def para_headroom(state: XcmpState, _profile: Any, para: ParaId) -> ParaHeadroom:
    """Return the blocks to which a para's watermark may move: those of its channels' newest unread messages."""
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


XCMP: Final[RuleSet[XcmpState]] = RuleSet(
    genesis=genesis,
    request=records.request,
    candidate=records.candidate,
    apply_request=apply_request,
    queue_downward=queue_downward_message,
    check_candidate=check_candidate,
    enact_candidate=enact_candidate,
    change_session=change_session,
    common_page=encode_common_page,
    headroom_page=lambda state: PAGES.headroom_page(state.touched, channels=False),
    owners=owning_paras,
    page=encode_para_page,
    restore=decode_state,
    page_hashes=PAGES.hashes,
    para_headroom=para_headroom,
    levels=levels,
)
"""A relay chain's channels under the rules of xcmp_channels.txt, whose limits the relay chain does not know: they have no headroom."""
