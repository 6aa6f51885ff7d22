# SPDX-License-Identifier: Apache-2.0
"""What a recipient may take next: its queue in the fair order, without clock, input or output.

Messages have the order of the ingress queue (N-02): block, then sender, ascending. A recipient that acknowledges in this order never breaks
N-20 or N-21. A message is handed over once its body is held and every message before it has been handed over or has left the queue. The
name of the last one is the recipient's *position*. Nothing is ever queued before a position, since a block's messages are queued together.
So a recipient that stores the position with what it has done gets each message exactly once, wherever it starts again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from validator.plugin.protocol_api import BlockNumber, ParaId
from validator_xcmp_bodies.outcomes import EventKind, Held, IngressEvent, Watermark

MessageName = tuple[BlockNumber, ParaId]
START: MessageName = (-1, 0)
"""Before every message."""


class Delivery(NamedTuple):
    """A message to hand over, and what its recipient's next candidate may acknowledge with it.

    ``acks`` are the names of all messages that have been handed over and are still queued, this one last; ``watermark`` is what the relay
    chain stores once they are acknowledged (N-03, N-I02).
    """

    held: Held
    acks: tuple[MessageName, ...]
    watermark: Watermark

    @property
    def position(self) -> MessageName:
        """The name of the message."""
        return self.held.sent_at, self.held.sender


class Follower:
    """One recipient's queue as far as it has been read; nothing at or before ``position`` is handed over."""

    def __init__(self, position: MessageName = START) -> None:
        self.position = position
        self._queued: set[MessageName] = set()
        self._held: dict[MessageName, Held] = {}
        self._newest: BlockNumber = -1

    def apply(self, event: IngressEvent) -> None:
        """Apply an event of the recipient's queue; events come in the chain's order."""
        name = event.sent_at, event.sender
        self._newest = max(self._newest, event.block)
        if event.kind is EventKind.QUEUED:
            self._queued.add(name)
        else:
            self._queued.discard(name)
            self._held.pop(name, None)

    def hold(self, held: Held) -> None:
        """Note that a body is held. Its event may still be unread."""
        self._held[held.sent_at, held.sender] = held

    def deliveries(self, *, complete: bool) -> Iterator[Delivery]:
        """Yield what can be handed over now, in order, and move on.

        ``complete`` says that all events of the newest block have been applied; otherwise it may still get messages before others.
        """
        if complete:  # what is held and not queued by now has left the queue
            self._held = {
                name: held for name, held in self._held.items() if name in self._queued or name[0] > self._newest
            }
        for name in sorted(self._queued):
            if name <= self.position:
                continue
            held = self._held.get(name)
            if held is None or (name[0] >= self._newest and not complete):
                return
            self.position = name
            acks = tuple(each for each in sorted(self._queued) if each <= name)
            yield Delivery(held, acks, self._claim(name))

    def waits_for(self) -> MessageName | None:
        """Return the first message that has not been handed over, or None."""
        return min((name for name in self._queued if name > self.position), default=None)

    def _claim(self, name: MessageName) -> Watermark:
        block, _ = name
        same = sorted(sender for sent_at, sender in self._queued if sent_at == block)
        if same[-1] == name[1]:
            return Watermark(block + 1, ())
        return Watermark(block, tuple(sender for sender in same if sender <= name[1]))


def message_document(lane: str, delivery: Delivery, payloads: list[bytes]) -> dict[str, Any]:
    """Return a message as JSON: what `validator messages follow --json` prints, and what an inbox gets."""
    held = delivery.held
    return {
        "lane": lane,
        "recipient": held.recipient,
        "sent_at": held.sent_at,
        "sender": held.sender,
        "root": f"0x{held.root.hex()}",
        "size": held.size,
        "payloads": [f"0x{payload.hex()}" for payload in payloads],
        "position": f"{held.sent_at}/{held.sender}",
        "acks": [list(name) for name in delivery.acks],
        "watermark": {"block": delivery.watermark.block, "acked": list(delivery.watermark.acked)},
    }
