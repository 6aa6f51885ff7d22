# SPDX-License-Identifier: Apache-2.0
"""One topic on its way to one session: a bounded queue, sent in order, and the position after which the peer has nothing yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from validator_channel.application import WATCH_TOPICS, write_watched
from validator_channel.errors import ErrorCode, LocalError
from validator_channel.gateway.counters import Counters
from validator_channel.gateway.limits import GatewayLimits
from validator_channel.gateway.peer_session import PeerSession
from validator_channel.gateway.stream import FeedRecord, feed_keys
from validator_channel.ids import unpack_message_id


class Feed:
    """A feed is live, or catches up from ``next``, the offsets by partition of what is to be queued next.

    ``index`` is the one of the peer's request on `main`. ``on_room`` is called when a feed that catches up has room for more.
    ``on_checked`` waits for what is wrong with its position, if that is not known yet.
    """

    def __init__(
        self,
        session: PeerSession,
        topic: str,
        index: int,
        next_offsets: Mapping[int, int],
        limits: GatewayLimits,
        counters: Counters,
        on_room: Callable[[Feed], None],
    ) -> None:
        self.session = session
        self.topic = topic
        self.topic_id = WATCH_TOPICS[topic]
        self.index = index
        self.next = dict(next_offsets)
        self.told = dict(next_offsets)
        """By partition, the offset after the last place that was queued for the peer."""
        self.keys = feed_keys(session.policy, topic)
        self.is_announced = self.is_started = self.is_live = self.is_closed = self.is_in_ring = False
        self.on_checked: Callable[[str | None], None] | None = None
        self._limits = limits
        self._counters = counters
        self._on_room = on_room
        self._queue: deque[tuple[int, int, bytes]] = deque()
        self._queued_bytes = 0
        self._in_flight: set[int] = set()

    @property
    def room(self) -> tuple[int, int]:
        """Return how many records, and bytes, the queue takes."""
        return self._limits.feed_records_max - len(self._queue), self._limits.feed_bytes_max - self._queued_bytes

    @property
    def has_room(self) -> bool:
        """Return whether half of the queue is free, so that reading for it pays."""
        records, size = self.room
        return 2 * records >= self._limits.feed_records_max and 2 * size >= self._limits.feed_bytes_max

    def position(self) -> dict[int, int]:
        """Return by partition the last record that the peer has, or need not get."""
        return {partition: offset - 1 for partition, offset in sorted(self.next.items()) if offset}

    def unsent(self) -> dict[int, int]:
        """Return by partition the offset of the first record that is not sent."""
        offsets = dict(self.next)
        for partition, offset, _ in self._queue:
            offsets[partition] = min(offset, offsets[partition])
        return offsets

    def checked(self, objection: str | None) -> None:
        """Answer the check of the position, if it waits for an answer."""
        answer, self.on_checked = self.on_checked, None
        if answer is not None:
            answer(objection)

    def offer(self, record: FeedRecord) -> bool:
        """Queue a record, unless the peer has it already; False if there is no room."""
        if record.offset < self.next.get(record.partition, 0):
            return True
        records, size = self.room
        if records < 1 or size < 1:
            return False
        self._append(record.partition, record.offset, record.payload)
        self.next[record.partition] = record.offset + 1
        return True

    def mark(self, next_offsets: Mapping[int, int], records_min: int) -> None:
        """Send the peer how far the topic has been read for it, if its queue is empty and that is ``records_min`` offsets or more."""
        if self._queue:
            return
        for partition, next_offset in sorted(next_offsets.items()):
            if next_offset - self.told.get(partition, 0) >= records_min:
                self._append(partition, next_offset - 1, write_watched(partition, next_offset - 1, None))
        self.pump()

    def pump(self) -> None:
        """Send what the session takes."""
        while self._queue and not self.is_closed and len(self._in_flight) < self._limits.feed_unacknowledged_max:
            partition, offset, payload = self._queue[0]
            try:
                message_id = self.session.connection.send(self.topic_id, payload)
            except LocalError as error:
                if error.code is ErrorCode.PAYLOAD_TOO_LARGE:
                    text = f"{len(payload)} bytes do not fit into a frame of this session"
                    self._queue[0] = partition, offset, write_watched(partition, offset, None, text)
                    self._queued_bytes += len(self._queue[0][2]) - len(payload)
                    continue
                return  # OUTBOX_FULL; or the topic or session ends, which is reported next
            self._queue.popleft()
            self._queued_bytes -= len(payload)
            self._in_flight.add(unpack_message_id(message_id).index)
            self._counters.sent += 1
        if not self.is_live and not self.is_closed and self.has_room:
            self._on_room(self)

    def settled(self, index: int) -> None:
        """The peer has the message with this index, which may be one of an earlier feed."""
        self._in_flight.discard(index)
        self._counters.delivered += 1
        self.pump()

    def close(self) -> None:
        """Send nothing more."""
        self.is_closed = True
        self._queue.clear()

    def _append(self, partition: int, offset: int, payload: bytes) -> None:
        self._queue.append((partition, offset, payload))
        self._queued_bytes += len(payload)
        self.told[partition] = offset + 1
