# SPDX-License-Identifier: Apache-2.0
"""How full the queues of a lane are: what a protocol says of its paras and channels to those who watch over them.

Levels are read between blocks and decide nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from validator.core.types import BlockNumber, ParaId


class ParaLevel(NamedTuple):
    """A para's queues. Messages and bytes of payload that wait, each with its limit; a limit of 0 allows none.

    ``upward_head`` is the first upward message that waits: the same object for as long as it is the first. ``watermark_lag`` is in blocks,
    and 0 if no message waits for the para. ``downward_sent`` counts all messages ever queued.
    """

    para_id: ParaId
    upward_messages: int
    upward_bytes: int
    upward_messages_max: int
    upward_bytes_max: int
    upward_head: object
    downward_messages: int
    downward_bytes: int
    downward_oldest: BlockNumber | None
    downward_sent: int
    watermark_lag: int


class ChannelLevel(NamedTuple):
    """A channel: messages and bytes of payload that wait, with their limits, and what was sent in all.

    A number is None if the protocol does not know it, or has no such limit. ``bytes_sent`` counts from when the state was loaded,
    ``messages_sent`` from when the lane began to follow the channel.
    """

    sender: ParaId
    recipient: ParaId
    messages: int | None
    bytes: int | None
    messages_max: int | None
    bytes_max: int | None
    oldest: BlockNumber | None
    messages_sent: int | None
    bytes_sent: int | None


class LaneLevel(NamedTuple):
    """What waits in the whole lane.

    Requests for channels: ``unconfirmed``, of which ``expiring`` are removed at the next session change, ``oldest_age`` is the greatest age
    among them in session changes, ``confirmed``, and ``closing``. Accepted candidates that are not enacted: ``pending``, the oldest backed
    in block ``pending_oldest``.
    """

    unconfirmed: int = 0
    expiring: int = 0
    oldest_age: int = 0
    confirmed: int = 0
    closing: int = 0
    pending: int = 0
    pending_oldest: BlockNumber | None = None


class LevelChoice(NamedTuple):
    """Which paras and channels are wanted: those of some paras or, if that is None, of all, and how many of each at most."""

    paras: Collection[ParaId] | None
    paras_max: int
    channels_max: int


class Levels(NamedTuple):
    """The levels of the wanted paras and channels, each ascending; ``left_out`` counts those beyond the limits."""

    lane: LaneLevel = LaneLevel()
    paras: tuple[ParaLevel, ...] = ()
    channels: tuple[ChannelLevel, ...] = ()
    left_out: int = 0
