# SPDX-License-Identifier: Apache-2.0
"""Follows channels through a lane's events: their deposits, and whether anybody uses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from validator.core.outcomes import ChannelEventKind, InputKind
from validator.history.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from validator.core.outcomes import Executed
    from validator.core.types import Balance, BlockNumber, ChannelId

_ENDS: Final = (ChannelEventKind.CLOSED, ChannelEventKind.REQUEST_EXPIRED, ChannelEventKind.REQUEST_DROPPED)


@dataclass(slots=True)
class Followed:
    """A channel since it was requested: deposits that are reserved now, and the last block with a message over it."""

    since: BlockNumber
    sender_deposit: Balance = 0
    recipient_deposit: Balance = 0
    ended: BlockNumber | None = None
    opened: BlockNumber | None = None
    used: BlockNumber | None = None


class ChannelLedger:
    """Adds up what the events of every channel reserve and return. Channels of the first state are unknown until they end."""

    def __init__(self) -> None:
        self.channels: dict[ChannelId, Followed] = {}
        self._wrong: list[Finding] = []
        self._messages = False

    def observe(self, executed: Executed) -> None:
        """Take the events and messages of a block."""
        block = executed.receipt.block
        for verdict in executed.verdicts:
            if verdict.messages and verdict.kind in (InputKind.CANDIDATE, InputKind.INCLUSION):
                self._messages = True
                for message in verdict.messages:
                    self._use((verdict.para_id, message.recipient), block)
        for entry in executed.ingress_events:
            self._messages = True
            self._use((entry.sender, entry.recipient), block)
        for event in executed.channel_events:
            channel_id = event.sender, event.recipient
            if event.event is ChannelEventKind.REQUESTED:
                self.channels[channel_id] = Followed(block)
            followed = self.channels.get(channel_id)
            if followed is None:
                continue  # the first state has it
            followed.sender_deposit += event.sender_deposit
            followed.recipient_deposit += event.recipient_deposit
            if event.event is ChannelEventKind.OPENED:
                followed.opened = block
            self._check(channel_id, followed, block, ended=event.event in _ENDS)

    def findings(self, open_channels: Iterable[ChannelId]) -> Iterator[Finding]:
        """Yield deposits that do not add up, and open channels over which nothing was ever sent."""
        yield from self._wrong
        if not self._messages:
            return  # the protocol does not say over which channels messages go, or there were none
        for channel_id in open_channels:
            followed = self.channels.get(channel_id)
            if followed is not None and followed.used is None:
                since = followed.since if followed.opened is None else followed.opened
                yield Finding(
                    "unused channels", _name(channel_id), f"nothing was sent over it since block {since}", fault=False
                )

    def _use(self, channel_id: ChannelId, block: BlockNumber) -> None:
        followed = self.channels.get(channel_id)
        if followed is not None:
            followed.used = block

    def _check(self, channel_id: ChannelId, followed: Followed, block: BlockNumber, *, ended: bool) -> None:
        sums = {"sender": followed.sender_deposit, "recipient": followed.recipient_deposit}
        for side, deposit in sums.items():
            if deposit < 0:
                detail = f"{-deposit} more was returned to the {side} than it had reserved"
                self._wrong.append(Finding("deposits", _name(channel_id), detail, block=block))
        if not ended:
            return
        del self.channels[channel_id]
        for side, deposit in sums.items():
            if deposit > 0:
                detail = f"it ended, and {deposit} of the {side} is still reserved"
                self._wrong.append(Finding("deposits", _name(channel_id), detail, fault=False, block=block))


def _name(channel_id: ChannelId) -> str:
    return f"channel {channel_id[0]}→{channel_id[1]}"
