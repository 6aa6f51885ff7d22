# SPDX-License-Identifier: Apache-2.0
"""Follows a lane's headroom and queues over time, in a bounded number of samples (`Levels` of one block: `validator.core.levels`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.core.levels import LevelChoice
from validator.core.limits import U32_MAX
from validator.core.outcomes import ChannelHeadroom, ParaHeadroom

if TYPE_CHECKING:
    from collections.abc import Iterable

    from validator.core.rules import LaneRules
    from validator.core.types import BlockNumber, ChannelId, ParaId

SAMPLES_MAX: Final = 1_000
"""Samples that are kept. If there are more, every other one is dropped, and further ones are taken half as often."""


EVERYTHING: Final = LevelChoice(None, U32_MAX, U32_MAX)


class Sample(NamedTuple):
    """A lane after a block: the messages that are queued in all, and the least that is left anywhere; None where nothing has the limit.

    Upward messages and those of channels are None if the protocol does not say how many wait.
    """

    block: BlockNumber
    downward_pending: int
    upward_pending: int | None
    channel_pending: int | None
    upward_count_left_min: int | None
    upward_bytes_left_min: int | None
    channels: int
    places_left_min: int | None
    bytes_left_min: int | None


@dataclass(slots=True)
class Levels:
    """Keeps the last headroom of every para and channel, and samples of them all."""

    samples: list[Sample] = field(default_factory=list)
    _paras: dict[ParaId, ParaHeadroom] = field(default_factory=dict)
    _channels: dict[ChannelId, ChannelHeadroom] = field(default_factory=dict)
    _step: int = 1
    _blocks: int = 0

    def observe(
        self, block: BlockNumber, headroom: Iterable[ParaHeadroom | ChannelHeadroom], rules: LaneRules[Any]
    ) -> None:
        """Take what has changed in a block; ``rules`` is the rule set of the lane after it."""
        self.take(headroom)
        if self._blocks % self._step == 0:
            self.samples.append(self._sample(block, rules))
            if len(self.samples) > SAMPLES_MAX:
                del self.samples[1::2]
                self._step *= 2
        self._blocks += 1

    def take(self, headroom: Iterable[ParaHeadroom | ChannelHeadroom]) -> None:
        """Take the headroom of some paras and channels."""
        for each in headroom:
            if isinstance(each, ParaHeadroom):
                if each.valid:
                    self._paras[each.para_id] = each
                else:
                    self._paras.pop(each.para_id, None)
            elif each.open:
                self._channels[each.sender, each.recipient] = each
            else:
                self._channels.pop((each.sender, each.recipient), None)

    def _sample(self, block: BlockNumber, rules: LaneRules[Any]) -> Sample:
        paras, channels = self._paras.values(), self._channels.values()
        full = rules.levels(block, EVERYTHING)
        upward = [each.upward_messages for each in full.paras if each.upward_messages_max]
        in_channels = [each.messages for each in full.channels if each.messages is not None]
        return Sample(
            block,
            sum(each.downward_pending for each in paras),
            sum(upward) if upward else None,
            sum(in_channels) if in_channels or not channels else None,
            min((each.upward_count_left for each in paras), default=None),
            min((each.upward_bytes_left for each in paras), default=None),
            len(channels),
            min((each.places_left for each in channels), default=None),
            min((each.bytes_left for each in channels), default=None),
        )
