# SPDX-License-Identifier: Apache-2.0
"""When messages in flight are due: constant work for a transmission, an answer and the next deadline. Source: channel_rules 1.2.12."""

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
