# SPDX-License-Identifier: Apache-2.0
"""How full the Router's queues are (`validator.core.levels`)."""

from __future__ import annotations

from validator.core.levels import ChannelLevel, LaneLevel, LevelChoice, Levels, ParaLevel
from validator.core.types import BlockNumber, ChannelId, ParaId
from validator.protocols.kit import wanted_subjects
from validator.protocols.router.profile import Profile
from validator.protocols.router.session import age_request
from validator.protocols.router.state import RouterState


def levels(state: RouterState, rules: Profile, now: BlockNumber, choice: LevelChoice) -> Levels:
    """Return the levels after block ``now``."""
    paras, channels, left_out = wanted_subjects(state.paras, state.hrmp_channels, choice)
    return Levels(
        lane_level(state, rules),
        tuple(para_level(state, para, now) for para in paras),
        tuple(channel_level(state, channel_id) for channel_id in channels),
        left_out,
    )


def lane_level(state: RouterState, rules: Profile) -> LaneLevel:
    """Return what waits in the whole lane."""
    requests = state.hrmp_open_channel_requests.values()
    ages = [request.age for request in requests if not request.confirmed]
    expires = rules.age_request is age_request  # later rules let requests wait for as long as it takes
    backed = [queue[0].backed_at for queue in state.pending_candidates.values()]
    return LaneLevel(
        unconfirmed=len(ages),
        expiring=sum(age + 1 >= state.host_configuration.hrmp_open_request_ttl for age in ages) if expires else 0,
        oldest_age=max(ages, default=0),
        confirmed=len(requests) - len(ages),
        closing=len(state.hrmp_close_channel_requests),
        pending=sum(map(len, state.pending_candidates.values())),
        pending_oldest=min(backed, default=None),
    )


def para_level(state: RouterState, para: ParaId, now: BlockNumber) -> ParaLevel:
    """Return the level of a para's queues after block ``now``."""
    config = state.host_configuration
    messages, size = state.relay_dispatch_queue_size.get(para, (0, 0))
    downward = state.downward_message_queues.get(para, ())
    return ParaLevel(
        para,
        upward_messages=messages,
        upward_bytes=size,
        upward_messages_max=config.max_upward_queue_count,
        upward_bytes_max=config.max_upward_queue_size,
        upward_head=_upward_head(state, para),
        downward_messages=len(downward),
        downward_bytes=sum(len(message.msg) for message in downward),
        downward_oldest=downward[0].sent_at if downward else None,
        downward_sent=state.downward_messages_sent.get(para, 0),
        watermark_lag=_watermark_lag(state, para, now),
    )


def channel_level(state: RouterState, channel_id: ChannelId) -> ChannelLevel:
    """Return the level of an open channel."""
    channel = state.hrmp_channels[channel_id]
    return ChannelLevel(
        *channel_id,
        messages=channel.used_places,
        bytes=channel.used_bytes,
        messages_max=channel.limit_used_places,
        bytes_max=channel.limit_used_bytes,
        oldest=channel.contents[0].sent_at if channel.contents else None,
        messages_sent=channel.messages_sent,
        bytes_sent=channel.bytes_sent,
    )


def _upward_head(state: RouterState, para: ParaId) -> object:
    if state.message_queue is not None:
        book = state.message_queue.books.get(para)
        return None if book is None else next(book.waiting(), None)
    queue = state.relay_dispatch_queues.get(para)
    return queue[0] if queue else None


def _watermark_lag(state: RouterState, para: ParaId, now: BlockNumber) -> int:
    digests = state.hrmp_channel_digests.get(para)
    if not digests:
        return 0
    watermark = state.hrmp_watermarks.get(para, next(iter(digests)) - 1)
    return max(0, now - watermark)
