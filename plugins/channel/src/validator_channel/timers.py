# SPDX-License-Identifier: Apache-2.0
"""When messages in flight and an incomplete frame are due: constant work for each change and the next deadline.

Source: channel_rules 1.2.12.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile

from validator_channel.topics import Outgoing, Topic

Entry = tuple[Topic, Outgoing]


class RetransmissionTimers:
    """The messages in flight by their deadlines.

    Messages that were transmitted equally often wait equally long, and time never goes back: the order of their transmissions is the order
    of their deadlines. So there is one queue for each number of transmissions.
    """

    def __init__(self) -> None:
        self._queues: dict[int, OrderedDict[tuple[int, int], Entry]] = {}

    def start(self, topic: Topic, message: Outgoing) -> None:
        """Take a message whose ``transmissions`` and ``deadline`` are set."""
        queue = self._queues.get(message.transmissions)
        if queue is None:
            queue = self._queues[message.transmissions] = OrderedDict()
        queue[topic.id, message.index] = (topic, message)

    def stop(self, topic: Topic, message: Outgoing) -> None:
        """Forget a message."""
        del self._queues[message.transmissions][topic.id, message.index]

    def next_deadline(self) -> float | None:
        """Return when the first message is due, in seconds, or None."""
        firsts = [next(iter(queue.values()))[1] for queue in self._queues.values() if queue]
        return min([message.deadline for message in firsts], default=None)

    def due(self, now: float) -> list[Entry]:
        """Return the messages that are due, by (deadline, topic, index)."""
        expired: list[Entry] = []
        for queue in self._queues.values():
            expired += takewhile(lambda entry: entry[1].deadline <= now, queue.values())
        return sorted(expired, key=lambda entry: (entry[1].deadline, entry[0].id, entry[1].index))


class FrameTimer:
    """The time that an incomplete frame has left, which stands still while this side does not read: then no peer can end its frame.

    ``deadline`` is when the frame must have ended, in seconds; None if there is none, or while the time stands still.
    """

    def __init__(self, timeout: float) -> None:
        self.deadline: float | None = None
        self._timeout = timeout
        self._is_paused = False
        self._left: float | None = None
        """Seconds that the frame had left at the beginning, or when the time stood still last."""

    @property
    def is_running(self) -> bool:
        """Return whether a frame is incomplete."""
        return self._left is not None

    def start(self, now: float) -> None:
        """A frame begins."""
        self._left = self._timeout
        self.deadline = None if self._is_paused else now + self._timeout

    def stop(self) -> None:
        """No frame is incomplete."""
        self.deadline = self._left = None

    def set_paused(self, now: float, *, is_paused: bool) -> None:
        """Say whether the time stands still."""
        self._is_paused = is_paused
        if is_paused and self.deadline is not None:
            self._left, self.deadline = self.deadline - now, None
        elif not is_paused and self.deadline is None and self._left is not None:
            self.deadline = now + self._left
