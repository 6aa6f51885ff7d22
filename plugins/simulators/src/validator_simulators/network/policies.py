# SPDX-License-Identifier: Apache-2.0
"""The ingress queue of a recipient, and the order in which it acknowledges.

The protocol allows two orders. Both take the lowest unread block first, and nothing of a later block before it is empty. `free` takes what
has arrived of that block, in the order of arrival; `prefix` goes by sender and stops at the first body that is missing. The other orders
show what this rule costs and prevents. In all of them a channel's messages keep their order, because an acknowledgement covers everything
before it from the same sender.

Every order but `rotating` ends at the first message that exceeds what is left of the budget. The first message of a block is always taken,
so that a recipient with a small budget makes progress.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from itertools import takewhile
from operator import attrgetter
from typing import NamedTuple

from validator_simulators.network.settings import BLOCK_MS, NetworkSettings


class Message(NamedTuple):
    """A logical message: everything that one sender sends to one recipient in one block."""

    sent_at: int  # block
    channel: int
    size: int  # bytes
    ready_at: int  # first block that can acknowledge it: its body has arrived
    arrived_ms: int  # since block 0


class IngressQueue(ABC):
    """The unread messages of one recipient."""

    @abstractmethod
    def push(self, message: Message) -> None:
        """Add a message. Messages are added in document order: by block, then by sender."""

    @abstractmethod
    def take(self, block: int, budget_bytes: int) -> list[Message]:
        """Remove and return what the recipient acknowledges in a block."""

    @abstractmethod
    def oldest(self) -> int | None:
        """Return the block of the oldest unread message."""


class DocumentOrder(IngressQueue):
    """The order of the protocol: by block. Within a block as bodies arrive, or (``prefix``) by sender without gaps."""

    def __init__(self, *, prefix: bool) -> None:
        self._prefix = prefix
        self._queue: deque[Message] = deque()

    def push(self, message: Message) -> None:
        self._queue.append(message)

    def take(self, block: int, budget_bytes: int) -> list[Message]:
        taken: list[Message] = []
        while self._queue:
            lowest = self._pop_lowest_block()
            before = len(taken)
            for message in self._held(lowest, block):
                if message.size > budget_bytes and taken:
                    break
                budget_bytes -= message.size
                taken.append(message)
            if len(taken) - before < len(lowest):
                gone = {message.channel for message in taken[before:]}
                self._queue.extendleft(message for message in reversed(lowest) if message.channel not in gone)
                break
        return taken

    def oldest(self) -> int | None:
        return self._queue[0].sent_at if self._queue else None

    def _pop_lowest_block(self) -> list[Message]:
        queue = self._queue
        lowest = [queue.popleft()]
        while queue and queue[0].sent_at == lowest[0].sent_at:
            lowest.append(queue.popleft())
        return lowest

    def _held(self, lowest: list[Message], block: int) -> list[Message]:
        """Return those messages of one block that may be acknowledged, in the recipient's order."""
        if self._prefix:
            return list(takewhile(lambda message: message.ready_at <= block, lowest))
        held = [message for message in lowest if message.ready_at <= block]
        if len(held) > 1:
            held.sort(key=attrgetter("arrived_ms"))
        return held


class RoundRobin(IngressQueue):
    """One message of each channel in turn, continued in the next block; a channel whose next body is missing waits at the front."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[Message]] = {}
        self._ring: deque[int] = deque()

    def push(self, message: Message) -> None:
        waiting = self._waiting.setdefault(message.channel, deque())
        if not waiting:
            self._ring.append(message.channel)
        waiting.append(message)

    def take(self, block: int, budget_bytes: int) -> list[Message]:
        ring = self._ring
        taken: list[Message] = []
        missing: list[int] = []
        while ring:
            waiting = self._waiting[ring[0]]
            message = waiting[0]
            if message.ready_at > block:
                missing.append(ring.popleft())
                continue
            if message.size > budget_bytes and taken:
                break
            budget_bytes -= message.size
            taken.append(waiting.popleft())
            channel = ring.popleft()
            if waiting:
                ring.append(channel)
        ring.extendleft(reversed(missing))
        return taken

    def oldest(self) -> int | None:
        return min((self._waiting[channel][0].sent_at for channel in self._ring), default=None)


class Rotating(IngressQueue):
    """One message of each channel in turn, from a first channel that moves by one in each block; what does not fit is skipped."""

    def __init__(self, channels: Sequence[int]) -> None:
        self._waiting: dict[int, deque[Message]] = {channel: deque() for channel in channels}
        self._places = {channel: place for place, channel in enumerate(channels)}

    def push(self, message: Message) -> None:
        self._waiting[message.channel].append(message)

    def take(self, block: int, budget_bytes: int) -> list[Message]:
        taken: list[Message] = []
        turns = [channel for channel, waiting in self._waiting.items() if waiting]
        turns.sort(key=lambda channel: (self._places[channel] - block) % len(self._places))
        while turns:
            again = []
            for channel in turns:
                waiting = self._waiting[channel]
                message = waiting[0]
                if message.ready_at > block or (message.size > budget_bytes and taken):
                    continue
                budget_bytes -= message.size
                taken.append(waiting.popleft())
                if waiting:
                    again.append(channel)
            turns = again
        return taken

    def oldest(self) -> int | None:
        return min((waiting[0].sent_at for waiting in self._waiting.values() if waiting), default=None)


class ByArrival(IngressQueue):
    """Bodies in the order in which they arrive; within a channel none overtakes another."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, Message]] = []
        self._last_ms: dict[int, int] = {}

    def push(self, message: Message) -> None:
        complete_ms = max(message.arrived_ms, self._last_ms.get(message.channel, 0))
        self._last_ms[message.channel] = complete_ms
        heappush(self._queue, (complete_ms, message))

    def take(self, block: int, budget_bytes: int) -> list[Message]:
        return self.take_after([], block, budget_bytes)

    def take_after(self, taken: list[Message], block: int, budget_bytes: int) -> list[Message]:
        """Add to what another queue of the same recipient has taken, as far as the rest of the budget allows."""
        while self.holds_bodies(block):
            if self._queue[0][1].size > budget_bytes and taken:
                break
            _, message = heappop(self._queue)
            budget_bytes -= message.size
            taken.append(message)
        return taken

    def holds_bodies(self, block: int) -> bool:
        """Return whether a body has arrived that is not acknowledged."""
        return bool(self._queue) and self._queue[0][0] <= block * BLOCK_MS

    def oldest(self) -> int | None:
        return min((message.sent_at for _, message in self._queue), default=None)


class Favouring(IngressQueue):
    """Bodies of favoured channels as they arrive; those of others only while no favoured one waits."""

    def __init__(self, favoured: Collection[int]) -> None:
        self._favoured = frozenset(favoured)
        self._first, self._others = ByArrival(), ByArrival()

    def push(self, message: Message) -> None:
        (self._first if message.channel in self._favoured else self._others).push(message)

    def take(self, block: int, budget_bytes: int) -> list[Message]:
        taken = self._first.take(block, budget_bytes)
        if self._first.holds_bodies(block):
            return taken
        return self._others.take_after(taken, block, budget_bytes - sum(message.size for message in taken))

    def oldest(self) -> int | None:
        blocks = [block for queue in (self._first, self._others) if (block := queue.oldest()) is not None]
        return min(blocks, default=None)


def make_queue(settings: NetworkSettings, channels: list[int], *, greedy: bool) -> IngressQueue:
    """Return the queue of a recipient with these channels, ascending by sender."""
    if greedy or settings.policy == "favour":
        return Favouring(channels[: round(settings.favoured_share * len(channels))])
    match settings.policy:
        case "round-robin":
            return RoundRobin()
        case "rotating":
            return Rotating(channels)
        case "arrival":
            return ByArrival()
        case policy:
            return DocumentOrder(prefix=policy == "prefix")
