# SPDX-License-Identifier: Apache-2.0
"""The rule set of early HRMP. Source: early_hrmp.txt, made precise by xcmp_rules 1.3."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    ChainSettings,
    ChannelHeadroom,
    ChannelId,
    ParaHeadroom,
    ParaId,
    RuleSet,
)
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
from validator_early_hrmp.records import make_candidate, make_request
from validator_early_hrmp.requests import apply_request
from validator_early_hrmp.session import change_session, onboard_para
from validator_early_hrmp.state import EarlyHrmpState


def genesis(settings: ChainSettings) -> EarlyHrmpState:
    """Return the state of a chain that has seen no message and whose genesis paras are registered."""
    state = EarlyHrmpState(settings.configuration, settings.balances)
    for para in settings.paras:
        onboard_para(state, para)
    return state


def para_headroom(state: EarlyHrmpState, _profile: Any, para: ParaId) -> ParaHeadroom:
    """Return the watermarks that a para's next candidate may have, in addition to its relay parent."""
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


def channel_headroom(state: EarlyHrmpState, _profile: Any, channel_id: ChannelId) -> ChannelHeadroom:
    """Return how much a channel can still take: nothing if it is sealed. A single message may use all the room left."""
    channel, configuration = state.channels.get(channel_id), state.configuration
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


EARLY_HRMP: Final[RuleSet[EarlyHrmpState]] = RuleSet(
    genesis=genesis,
    request=make_request,
    candidate=make_candidate,
    apply_request=apply_request,
    queue_downward=queue_downward_message,
    check_candidate=check_candidate,
    enact_candidate=enact_candidate,
    change_session=change_session,
    common_page=encode_common_page,
    headroom_page=lambda state: PAGES.headroom_page(state.touched),
    owners=para_pages,
    page=encode_para_page,
    restore=decode_state,
    page_hashes=PAGES.hashes,
    para_headroom=para_headroom,
    channel_headroom=channel_headroom,
    levels=levels,
)
"""A relay chain's channels and downward queues under the rules of early_hrmp.txt."""
