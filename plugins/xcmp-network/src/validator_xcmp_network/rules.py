# SPDX-License-Identifier: Apache-2.0
"""The rule set of XCMP networking. Source: xcmp_networking.txt, xcmp_rules 1.4."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from validator_xcmp.enactment import queue_downward_message
from validator_xcmp.session import onboard_para

from validator.plugin.protocol_api import (
    HEADROOM_WATERMARKS_MAX,
    ChainSettings,
    ChannelHeadroom,
    ChannelId,
    ParaHeadroom,
    ParaId,
    RuleSet,
)
from validator_xcmp_network import records
from validator_xcmp_network.acceptance import as_pending, check_candidate, check_inclusion
from validator_xcmp_network.configuration import Setup
from validator_xcmp_network.enactment import enact_candidate
from validator_xcmp_network.fixed_channels import FixedChannels
from validator_xcmp_network.levels import levels
from validator_xcmp_network.pages import PAGES, decode_state, encode_common_page, encode_para_page, owning_paras
from validator_xcmp_network.requests import apply_request
from validator_xcmp_network.session import change_session
from validator_xcmp_network.state import NetworkState, channel_limit, has_channel, unread_in_channel


def genesis(settings: ChainSettings) -> NetworkState:
    """Return the state of a chain whose genesis paras are registered and whose fixed channels, if it has any, are open."""
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
    return state


def para_headroom(state: NetworkState, _profile: Any, para: ParaId) -> ParaHeadroom:
    """Return a para's partial watermark, without its senders, and the blocks of its unread messages."""
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


def channel_headroom(state: NetworkState, _profile: Any, channel_id: ChannelId) -> ChannelHeadroom:
    """Return the messages that a channel can still take, and the bytes that its sender's next candidate may declare."""
    if not has_channel(state, channel_id):
        return ChannelHeadroom(*channel_id, open=False)
    left = channel_limit(state, channel_id) - unread_in_channel(state, channel_id)
    size = state.network.max_block_bytes
    return ChannelHeadroom(*channel_id, open=True, places_left=max(0, left), bytes_left=size, message_size_max=size)


XCMP_NETWORK: Final[RuleSet[NetworkState]] = RuleSet(
    genesis=genesis,
    request=records.request,
    candidate=records.candidate,
    apply_request=apply_request,
    queue_downward=queue_downward_message,
    check_candidate=check_candidate,
    as_pending=as_pending,
    check_inclusion=check_inclusion,
    enact_candidate=enact_candidate,
    change_session=change_session,
    common_page=encode_common_page,
    headroom_page=lambda state: PAGES.headroom_page(state.touched),
    owners=owning_paras,
    page=encode_para_page,
    restore=decode_state,
    page_hashes=PAGES.hashes,
    para_headroom=para_headroom,
    channel_headroom=channel_headroom,
    levels=levels,
)
"""A relay chain's ingress queues under the rules of xcmp_networking.txt."""
