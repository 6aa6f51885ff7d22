# SPDX-License-Identifier: Apache-2.0
"""How full the queues of early HRMP are (`validator.core.levels`).

There are no upward messages, and the state does not count what a channel has sent.
"""

from __future__ import annotations

from typing import Any

from validator.plugin.protocol_api import BlockNumber, ChannelId, ChannelLevel, LevelChoice, Levels, ParaId, ParaLevel
from validator.protocols.kit import downward_level, lane_level, wanted_subjects
from validator_early_hrmp.state import EarlyHrmpState


def levels(state: EarlyHrmpState, _profile: Any, now: BlockNumber, choice: LevelChoice) -> Levels:
    """Return the levels after block ``now``."""
    paras, channels, left_out = wanted_subjects(state.paras, state.channels, choice)
    closing = len(state.close_requests) + len(state.sealed)
    oldest = _oldest(state, {recipient for _, recipient in channels})
    return Levels(
        lane_level(state.open_requests, state.configuration.hrmp_open_request_ttl, closing, state.pending_candidates),
        tuple(_para_level(state, para, now) for para in paras),
        tuple(_channel_level(state, channel_id, oldest.get(channel_id)) for channel_id in channels),
        left_out,
    )


def _para_level(state: EarlyHrmpState, para: ParaId, now: BlockNumber) -> ParaLevel:
    queue = state.downward_queues.get(para, {})
    tail = state.downward_queue_tails.get(para)
    oldest = next(iter(queue), None)
    watermark = state.dmq_watermarks.get(para, -1 if oldest is None else oldest - 1)
    return downward_level(
        para,
        [len(message.data) for sent in queue.values() for message in sent],
        oldest,
        0 if tail is None else tail.count,
        0 if oldest is None else max(0, now - watermark),
    )


def _channel_level(state: EarlyHrmpState, channel_id: ChannelId, oldest: BlockNumber | None) -> ChannelLevel:
    """Return the level of a channel; a sealed one keeps the limits, though it takes nothing more."""
    channel, configuration = state.channels[channel_id], state.configuration
    return ChannelLevel(
        *channel_id,
        messages=channel.used_places,
        bytes=channel.used_bytes,
        messages_max=configuration.hrmp_channel_max_places,
        bytes_max=configuration.hrmp_channel_max_size,
        oldest=oldest,
        messages_sent=None,
        bytes_sent=None,
    )


def _oldest(state: EarlyHrmpState, recipients: set[ParaId]) -> dict[ChannelId, BlockNumber]:
    """Return, by channel to some recipients, the block of its first waiting message."""
    found: dict[ChannelId, BlockNumber] = {}
    for recipient in recipients:
        for block, sent in state.downward_queues.get(recipient, {}).items():
            for message in sent:
                channel = None if message.sender is None else state.channels.get((message.sender, recipient))
                if channel is not None and message.sender is not None and channel.instance == message.instance:
                    found.setdefault((message.sender, recipient), block)
    return found
