# SPDX-License-Identifier: Apache-2.0
"""How full the queues of XCMP channels are (`validator.core.levels`).

There are no upward messages. Of a channel the relay chain knows only whether its newest message is unread, and in which block it was sent.
"""

from __future__ import annotations

from typing import Any

from validator.plugin.protocol_api import BlockNumber, ChannelId, ChannelLevel, LevelChoice, Levels, ParaId, ParaLevel
from validator.protocols.kit import downward_level, lane_level, wanted_subjects
from validator_xcmp.acceptance import unread
from validator_xcmp.state import XcmpState, find_column, is_empty


def levels(state: XcmpState, _profile: Any, now: BlockNumber, choice: LevelChoice) -> Levels:
    """Return the levels after block ``now``."""
    of_state = ((sender, column.recipient) for sender, row in state.rows.items() for column in row)
    paras, channels, left_out = wanted_subjects(state.paras, of_state, choice)
    closing = len(state.close_requests) + len(state.condemned)
    return Levels(
        lane_level(state.open_requests, state.configuration.xcmp_open_request_ttl, closing, state.pending_candidates),
        tuple(_para_level(state, para, now) for para in paras),
        tuple(_channel_level(state, channel_id) for channel_id in channels),
        left_out,
    )


def para_level(state: XcmpState, para: ParaId, watermark_lag: int) -> ParaLevel:
    """Return the level of a para's downward queue."""
    queue = state.downward_queues.get(para, ())
    tail = state.downward_tails.get(para)
    return downward_level(
        para,
        [len(message.msg) for message in queue],
        queue[0].sent_at if queue else None,
        0 if tail is None else tail.sent,
        watermark_lag,
    )


def _para_level(state: XcmpState, para: ParaId, now: BlockNumber) -> ParaLevel:
    waiting = unread(state, para)
    lag = 0
    if waiting:
        watermark = state.watermarks.get(para)
        lag = max(0, now - (waiting[0][0] - 1 if watermark is None else watermark[0]))
    return para_level(state, para, lag)


def _channel_level(state: XcmpState, channel_id: ChannelId) -> ChannelLevel:
    column = find_column(state, channel_id)
    assert column is not None
    return ChannelLevel(
        *channel_id,
        messages=None,
        bytes=None,
        messages_max=column.capacity,
        bytes_max=None,
        oldest=None if is_empty(state, channel_id[0], column) else column.last_updated,
        messages_sent=None,
        bytes_sent=None,
    )
