# SPDX-License-Identifier: Apache-2.0
"""The channel events and the ingress events of one block, each numbered in the order in which they happen."""

from __future__ import annotations

from validator.core.outcomes import ChannelEvent, ChannelEventKind, IngressEvent, IngressEventKind, MessageRange
from validator.core.types import Balance, BlockNumber, ChannelId, Hash, SessionIndex


class EventLog:
    """Collects the channel events of one block; ``session`` is the session index of the events added from now on."""

    def __init__(self, block: BlockNumber, session: SessionIndex) -> None:
        self.block = block
        self.session = session
        self.events: list[ChannelEvent] = []

    def add(
        self,
        event: ChannelEventKind,
        channel_id: ChannelId,
        *,
        sender_deposit: Balance = 0,
        recipient_deposit: Balance = 0,
        reason: str | None = None,
        dropped: tuple[MessageRange, ...] = (),
    ) -> None:
        """Add an event; deposits are positive if reserved, negative if returned."""
        sender, recipient = channel_id
        deposits = sender_deposit, recipient_deposit
        self.events.append(
            ChannelEvent(
                self.block, len(self.events), event, sender, recipient, *deposits, self.session, reason, dropped
            )
        )


class IngressLog:
    """Collects the ingress events of one block."""

    def __init__(self, block: BlockNumber) -> None:
        self.block = block
        self.events: list[IngressEvent] = []

    def add(
        self, event: IngressEventKind, channel_id: ChannelId, *, sent_at: BlockNumber, root: Hash, size: int
    ) -> None:
        """Add an event about the message that was sent over a channel in block ``sent_at``; ``size`` is in bytes."""
        sender, recipient = channel_id
        self.events.append(IngressEvent(self.block, len(self.events), event, recipient, sender, sent_at, root, size))
