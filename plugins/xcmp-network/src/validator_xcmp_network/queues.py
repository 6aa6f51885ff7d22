# SPDX-License-Identifier: Apache-2.0
"""Ingress queues: the unacknowledged messages of one recipient, its partial watermark, and what it remembers of acknowledged ones.

Nothing here costs more than the messages that it concerns: no operation scans a queue, except to list messages for an error and when a
channel is removed. Source: xcmp_networking.txt "XCMP high-level overview", xcmp_rules 1.4.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId
from validator_xcmp_network.limits import REMEMBERED_MAX
from validator_xcmp_network.records import MessageName

_NAME_BYTES = 8


@dataclass(slots=True, eq=False)
class QueuedMessage:
    """An unacknowledged message. ``root`` and ``size`` (in bytes) are what the sender declared; ``held``: its body has been reported."""

    sent_at: BlockNumber
    sender: ParaId
    root: Hash
    size: int
    held: bool = False


class SentInBlock:
    """The unacknowledged messages of one block, by sender, in the pre-determined order: by para id, ascending."""

    __slots__ = ("_ascending", "entries")

    def __init__(self) -> None:
        self.entries: dict[ParaId, QueuedMessage] = {}
        self._ascending: list[ParaId] | None = []

    def senders(self) -> list[ParaId]:
        """Return the senders, ascending; the caller does not change the list. It is sorted once after messages were added."""
        if self._ascending is None:
            self._ascending = sorted(self.entries)
        return self._ascending

    def add(self, entry: QueuedMessage) -> None:
        """Add a sender's message."""
        senders = self._ascending
        if senders is not None:
            if not senders or senders[-1] < entry.sender:
                senders.append(entry.sender)
            else:
                self._ascending = None
        self.entries[entry.sender] = entry

    def remove(self, sender: ParaId) -> None:
        """Remove a sender's message."""
        del self.entries[sender]
        if self._ascending is not None:
            del self._ascending[bisect_left(self._ascending, sender)]


class Memory:
    """The names of the messages acknowledged last, at most `REMEMBERED_MAX`, oldest first (N-I12).

    ``floor`` is the block of the newest name that was forgotten, or None. Acknowledgements go by block, so every name above it is known.
    """

    __slots__ = ("floor", "names")

    def __init__(self, names: bytes = b"", floor: BlockNumber | None = None) -> None:
        self.names = bytearray(names)
        self.floor = floor

    def add(self, block: BlockNumber, sender: ParaId) -> None:
        """Remember a message; forget the oldest if there are too many."""
        self.names += _packed(block, sender)
        surplus = len(self.names) - _NAME_BYTES * REMEMBERED_MAX
        if surplus > 0:
            self.floor = int.from_bytes(self.names[surplus - _NAME_BYTES : surplus - _NAME_BYTES // 2], "big")
            del self.names[:surplus]

    def has(self, block: BlockNumber, sender: ParaId) -> bool:
        """Return whether a message is remembered, or lies so far back that it would be forgotten."""
        if self.floor is not None and block <= self.floor:
            return True
        name, at = _packed(block, sender), -1
        while (at := self.names.find(name, at + 1)) >= 0:
            if at % _NAME_BYTES == 0:
                return True
        return False

    def senders_at(self, block: BlockNumber) -> list[ParaId]:
        """Return the remembered senders of a block."""
        names = [self.names[at : at + _NAME_BYTES] for at in range(0, len(self.names), _NAME_BYTES)]
        return [int.from_bytes(name[4:], "big") for name in names if int.from_bytes(name[:4], "big") == block]


def _packed(block: BlockNumber, sender: ParaId) -> bytes:
    return block.to_bytes(4, "big") + sender.to_bytes(4, "big")


@dataclass(slots=True, eq=False)
class IngressQueue:
    """A recipient's queue and its partial watermark ``(watermark, acked)``.

    Everything sent below block ``watermark`` is acknowledged, and of that block exactly the messages of ``acked``. In its normal form, a
    block is not named once all of it is acknowledged: ``(block + 1, {})`` (N-I02).
    """

    watermark: BlockNumber = 0
    acked: dict[ParaId, None] = field(default_factory=dict)
    blocks: dict[BlockNumber, SentInBlock] = field(default_factory=dict)
    """By block, never empty. Invariant: no message is acknowledged according to the watermark."""
    heights: deque[BlockNumber] = field(default_factory=deque)
    """Derived: the keys of `blocks`, ascending."""
    by_sender: dict[ParaId, deque[QueuedMessage]] = field(default_factory=dict)
    """Derived: the entries of each sender by block, ascending; never empty."""
    count: int = 0
    """Derived: the number of entries."""
    memory: Memory = field(default_factory=Memory)

    def __iter__(self) -> Iterator[QueuedMessage]:
        """Yield the entries in queue order: by block, then by sender."""
        for height in self.heights:
            sent = self.blocks[height]
            for sender in sent.senders():
                yield sent.entries[sender]

    @property
    def is_blank(self) -> bool:
        """Whether the queue is as if it had never been used."""
        return not (self.count or self.watermark or self.acked or self.memory.names)

    def find(self, block: BlockNumber, sender: ParaId) -> QueuedMessage | None:
        """Return an unacknowledged message, or None."""
        sent = self.blocks.get(block)
        return None if sent is None else sent.entries.get(sender)

    def unread_of(self, sender: ParaId) -> int:
        """Return the number of a sender's unacknowledged messages."""
        return len(self.by_sender.get(sender, ()))

    def has_unread(self, block: BlockNumber) -> bool:
        """Return whether there is an unacknowledged message sent up to a block."""
        return bool(self.heights) and self.heights[0] <= block

    def append(self, entry: QueuedMessage) -> None:
        """Append a message of the newest block.

        If some of that block's messages are acknowledged already, the watermark names the block again: it was not all of it.
        """
        block = entry.sent_at
        if self.watermark > block:
            self.watermark = block
            self.acked = dict.fromkeys(sorted(self.memory.senders_at(block)))
        if block not in self.blocks:
            self.blocks[block] = SentInBlock()
            self.heights.append(block)
        self.blocks[block].add(entry)
        self.by_sender.setdefault(entry.sender, deque()).append(entry)
        self.count += 1

    def covered(self, acks: Iterable[MessageName]) -> dict[BlockNumber, list[QueuedMessage]]:
        """Return the unacknowledged messages that acknowledgements cover, by block: each with all earlier ones of its sender."""
        reach: dict[ParaId, BlockNumber] = {}
        for block, sender in acks:
            reach[sender] = max(block, reach.get(sender, 0))
        found: dict[BlockNumber, list[QueuedMessage]] = {}
        for sender, block in reach.items():
            for entry in self.by_sender.get(sender, ()):
                if entry.sent_at > block:
                    break
                found.setdefault(entry.sent_at, []).append(entry)
        return found

    def acknowledge(self, covered: dict[BlockNumber, list[QueuedMessage]]) -> list[QueuedMessage]:
        """Remove the covered messages, move the watermark, and return the messages in queue order."""
        taken = []
        for block in sorted(covered):
            taken += sorted(covered[block], key=_sender)
        for entry in taken:
            self._take(entry)
            self.memory.add(entry.sent_at, entry.sender)
        self._drop_empty_heights()
        if taken:
            self._advance(taken[-1].sent_at, [entry.sender for entry in taken if entry.sent_at == taken[-1].sent_at])
        return taken

    def remove_sender(self, sender: ParaId) -> list[QueuedMessage]:
        """Remove a sender's messages without acknowledging them, and return them. If this leaves nothing of a block, it is complete."""
        removed = list(self.by_sender.get(sender, ()))
        for entry in removed:
            self._take(entry)
        self._drop_empty_heights()
        if self.acked and self.watermark not in self.blocks:
            self.watermark, self.acked = self.watermark + 1, {}
        return removed

    def _advance(self, block: BlockNumber, senders: list[ParaId]) -> None:
        if block < self.watermark:
            return
        if block not in self.blocks:
            self.watermark, self.acked = block + 1, {}
            return
        if block > self.watermark:
            self.watermark, self.acked = block, {}
        self.acked.update(dict.fromkeys(senders))

    def _take(self, entry: QueuedMessage) -> None:
        sent = self.blocks[entry.sent_at]
        sent.remove(entry.sender)
        if not sent.entries:
            del self.blocks[entry.sent_at]
        of_sender = self.by_sender[entry.sender]
        of_sender.popleft()  # a sender's messages always go from its oldest
        if not of_sender:
            del self.by_sender[entry.sender]
        self.count -= 1

    def _drop_empty_heights(self) -> None:
        while self.heights and self.heights[0] not in self.blocks:
            self.heights.popleft()
        if len(self.heights) > len(self.blocks):  # a removed channel leaves holes
            self.heights = deque(height for height in self.heights if height in self.blocks)


def _sender(entry: QueuedMessage) -> ParaId:
    return entry.sender
