# SPDX-License-Identifier: Apache-2.0
"""How full the ingress queues are (`validator.core.levels`).

There are no upward messages, and the state does not count what a channel has sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from validator_xcmp.levels import para_level

from validator.plugin.protocol_api import BlockNumber, ChannelId, ChannelLevel, LevelChoice, Levels, ParaId, ParaLevel
from validator.protocols.kit import lane_level, wanted_subjects
from validator_xcmp_network.state import NetworkState, channel_limit


def levels(state: NetworkState, _profile: Any, now: BlockNumber, choice: LevelChoice) -> Levels:
    """Return the levels after block ``now``; of fixed channels, which may be a great many, those that have messages."""
    paras, channels, left_out = wanted_subjects(state.paras, _channels(state), choice)
    closing = len(state.close_requests) + len(state.condemned)
    return Levels(
        lane_level(state.open_requests, state.configuration.xcmp_open_request_ttl, closing, state.pending_candidates),
        tuple(_para_level(state, para, now) for para in paras),
        tuple(_channel_level(state, channel_id) for channel_id in channels),
        left_out,
    )


def _channels(state: NetworkState) -> Iterable[ChannelId]:
    if state.is_composed:
        return ((sender, column.recipient) for sender, row in state.rows.items() for column in row)
    return ((sender, recipient) for recipient, queue in state.queues.items() for sender in queue.by_sender)


def _para_level(state: NetworkState, para: ParaId, now: BlockNumber) -> ParaLevel:
    queue = state.queues.get(para)
    lag = 0
    if queue is not None and queue.heights:
        lag = max(0, now - (queue.watermark or queue.heights[0] - 1))
    return para_level(state, para, lag)


def _channel_level(state: NetworkState, channel_id: ChannelId) -> ChannelLevel:
    sender, recipient = channel_id
    queue = state.queues.get(recipient)
    waiting = () if queue is None else queue.by_sender.get(sender, ())
    return ChannelLevel(
        *channel_id,
        messages=len(waiting),
        bytes=sum(entry.size for entry in waiting),
        messages_max=channel_limit(state, channel_id),
        bytes_max=None,
        oldest=waiting[0].sent_at if waiting else None,
        messages_sent=None,
        bytes_sent=None,
    )
