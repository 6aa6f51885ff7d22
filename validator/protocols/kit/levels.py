# SPDX-License-Identifier: Apache-2.0
"""What protocols share of saying how full their queues are (`validator.core.levels`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from validator.core.levels import LaneLevel, LevelChoice, ParaLevel
from validator.core.types import BlockNumber, ChannelId, ParaId
from validator.protocols.kit.requests import OpenRequests


class WantedSubjects(NamedTuple):
    """The wanted paras and channels, each ascending; ``left_out`` counts those beyond the limits."""

    paras: list[ParaId]
    channels: list[ChannelId]
    left_out: int


def wanted_subjects(paras: Iterable[ParaId], channels: Iterable[ChannelId], choice: LevelChoice) -> WantedSubjects:
    """Return which of a lane's paras and channels are wanted; a channel belongs to both of its ends."""
    wanted = None if choice.paras is None else set(choice.paras)
    of_paras = sorted(para for para in paras if wanted is None or para in wanted)
    of_channels = sorted(each for each in channels if wanted is None or each[0] in wanted or each[1] in wanted)
    left_out = max(0, len(of_paras) - choice.paras_max) + max(0, len(of_channels) - choice.channels_max)
    return WantedSubjects(of_paras[: choice.paras_max], of_channels[: choice.channels_max], left_out)


def lane_level(
    requests: OpenRequests, ttl: int, closing: int, pending_candidates: Mapping[ParaId, Sequence[Any]]
) -> LaneLevel:
    """Return what waits in the whole lane; ``ttl`` is the age in session changes at which an unconfirmed request expires."""
    listed = list(requests)
    ages = [request.age for request in listed if not request.confirmed]
    backed = [queue[0].backed_at for queue in pending_candidates.values()]
    return LaneLevel(
        unconfirmed=len(ages),
        expiring=sum(age + 1 >= ttl for age in ages),
        oldest_age=max(ages, default=0),
        confirmed=len(listed) - len(ages),
        closing=closing,
        pending=sum(map(len, pending_candidates.values())),
        pending_oldest=min(backed, default=None),
    )


def downward_level(
    para: ParaId, sizes: Collection[int], oldest: BlockNumber | None, sent: int, watermark_lag: int
) -> ParaLevel:
    """Return the level of a para without upward messages; ``sizes`` are the bytes of the messages in its downward queue."""
    return ParaLevel(
        para,
        upward_messages=0,
        upward_bytes=0,
        upward_messages_max=0,
        upward_bytes_max=0,
        upward_head=None,
        downward_messages=len(sizes),
        downward_bytes=sum(sizes),
        downward_oldest=oldest,
        downward_sent=sent,
        watermark_lag=watermark_lag,
    )
