# SPDX-License-Identifier: Apache-2.0
"""Follows a lane's headroom and queues over time, in a bounded number of samples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from validator.core.outcomes import ChannelHeadroom, ParaHeadroom

if TYPE_CHECKING:
    from collections.abc import Iterable

    from validator.core.types import BlockNumber, ChannelId, ParaId

SAMPLES_MAX: Final = 1_000
"""Samples that are kept. If there are more, every other one is dropped, and further ones are taken half as often."""


class Sample(NamedTuple):
    """A lane after a block: what is queued in all, and the least that is left anywhere; None where nothing has the limit."""

    block: BlockNumber
    downward_pending: int
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

    def observe(self, block: BlockNumber, headroom: Iterable[ParaHeadroom | ChannelHeadroom]) -> None:
        """Take what has changed in a block."""
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
        if self._blocks % self._step == 0:
            self.samples.append(self._sample(block))
            if len(self.samples) > SAMPLES_MAX:
                del self.samples[1::2]
                self._step *= 2
        self._blocks += 1

    def _sample(self, block: BlockNumber) -> Sample:
        paras, channels = self._paras.values(), self._channels.values()
        return Sample(
            block,
            sum(each.downward_pending for each in paras),
            min((each.upward_count_left for each in paras), default=None),
            min((each.upward_bytes_left for each in paras), default=None),
            len(channels),
            min((each.places_left for each in channels), default=None),
            min((each.bytes_left for each in channels), default=None),
        )
