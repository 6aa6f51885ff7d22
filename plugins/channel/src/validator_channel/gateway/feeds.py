# SPDX-License-Identifier: Apache-2.0
"""Topics on their way to sessions: live feeds share what one reader reads; the others catch up in turn and join them.

A feed that joins has every record before its position; the stream's recent records from there on follow, then the live ones. A live feed
whose queue is full leaves at the record that did not fit, and catches up from there. So nothing is lost or doubled, and memory is bounded
by the number of feeds, whatever their peers do. Everything here runs in the thread of the event loop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from validator_channel.application import END, WATCH_TOPICS, After, RefusedMessage, write_watched
from validator_channel.errors import ErrorCode, LocalError
from validator_channel.gateway.measures import Counters
from validator_channel.gateway.readers import Slice, SliceRequest
from validator_channel.gateway.records import FeedRecord, Key, Stream, feed_keys
from validator_channel.limits import MARK_RECORDS, RECENT_BYTES_MAX, RECENT_RECORDS_MAX, GatewayLimits
from validator_channel.wire import MAIN, unpack_message_id

if TYPE_CHECKING:
    from validator_channel.gateway.bridge import PeerSession


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


class FeedHub:
    """The feeds of all sessions.

    ``ends`` are the offsets, by topic and partition, at which live records begin. ``read_slice`` is called with the next request for a feed
    that catches up, and answered later by `take_slice`; there is one request at a time.
    """

    def __init__(
        self,
        ends: Mapping[tuple[str, int], int],
        read_slice: Callable[[SliceRequest], None],
        limits: GatewayLimits,
        counters: Counters,
    ) -> None:
        by_topic: dict[str, dict[int, int]] = {topic: {} for topic in WATCH_TOPICS}
        for (topic, partition), end in ends.items():
            by_topic[topic][partition] = end
        self._streams = {
            topic: Stream(offsets, RECENT_RECORDS_MAX, RECENT_BYTES_MAX) for topic, offsets in by_topic.items()
        }
        self._read_slice = read_slice
        self._limits = limits
        self._counters = counters
        self._live: dict[str, dict[Key, dict[Feed, None]]] = {topic: {} for topic in WATCH_TOPICS}
        self._ring: deque[Feed] = deque()
        self._reading: Feed | None = None
        self._checks: deque[Feed] = deque()

    def watch(self, session: PeerSession, topic: str, after: After, index: int) -> Feed:
        """Return a feed that begins at a position and sends nothing before `start`; ``index`` is the one of the peer's request.

        Call `check` for it next.
        """
        if after is None:
            offsets: dict[int, int] = {}
        elif after == END:
            offsets = dict(self._streams[topic].next)
        else:
            offsets = {partition: offset + 1 for partition, offset in after.items()}
        self._counters.feeds += 1
        return Feed(session, topic, index, offsets, self._limits, self._counters, self._on_room)

    def check(self, feed: Feed, answer: Callable[[str | None], None]) -> None:
        """Find out whether the position of a feed exists; ``answer`` is called once, with what is wrong or None.

        An offset beyond what this gateway has read so far may exist in Kafka, so Kafka is asked. A feed that is closed before that is
        answered, too.
        """
        known = self._streams[feed.topic].next
        feed.on_checked = answer
        unknown = [partition for partition in feed.next if partition not in known]
        if unknown:
            have = ", ".join(map(str, sorted(known))) or "none"
            feed.checked(f"after: expected partitions that the topic has ({have}), found {unknown[0]}")
        elif all(offset <= known[partition] for partition, offset in feed.next.items()):
            feed.checked(None)
        else:
            self._checks.append(feed)
            self._read_next()

    def watch_again(self, feed: Feed) -> Feed:
        """Return a feed in place of another one, from its first unsent record on, for what its peer may see by now."""
        if feed.is_live:
            self._catch_up(feed)
        offsets = feed.unsent()
        self.close(feed)
        self._counters.feeds += 1
        return Feed(feed.session, feed.topic, feed.index, offsets, self._limits, self._counters, self._on_room)

    def start(self, feed: Feed) -> None:
        """Let a feed run: it joins the live ones, or catches up first. Starting twice has no effect."""
        if feed.is_started or feed.is_closed:
            return
        feed.is_started = True
        self._counters.feeds_catching_up += 1
        self._join_or_wait(feed)

    def close(self, feed: Feed) -> None:
        """End a feed."""
        if feed.is_closed:
            return
        feed.close()
        feed.checked("the request has ended: a later one has taken its place, or the topic is no longer granted")
        self._counters.feeds -= 1
        if feed.is_live:
            self._remove(feed)
        elif feed.is_started:
            self._counters.feeds_catching_up -= 1

    def take_live(self, records: Iterable[FeedRecord]) -> None:
        """Hand records to the live feeds, in the order in which they were read."""
        touched: dict[Feed, None] = {}
        for record in records:
            index = self._live[record.topic]
            for key in record.keys:
                for feed in tuple(index.get(key, ())):
                    if feed.offer(record):
                        touched[feed] = None
                    else:
                        self._counters.overflows += 1
                        self._catch_up(feed)
            self._streams[record.topic].append(record)
        for feed in touched:
            feed.pump()

    def take_slice(self, read: Slice) -> None:
        """Queue what was read for a feed that catches up."""
        feed, self._reading = self._reading, None
        if feed is not None and not feed.is_closed:
            if feed.on_checked is not None:
                feed.checked(read.error)
            elif read.error is not None:
                self.close(feed)
                feed.session.tell(RefusedMessage(MAIN, feed.index, f"watch: {feed.topic}: {read.error}"))
            else:
                is_queued = all(feed.offer(record) for record in read.records)
                assert is_queued, "a slice is at most as large as the room that was asked for"
                feed.next.update(read.next)
                self._join_or_wait(feed)
        self._read_next()

    def mark(self) -> None:
        """Send the peers of live feeds how far their topics have been read, so that they need not be read again after a reconnect."""
        for topic, index in self._live.items():
            for feed in {feed: None for feeds in index.values() for feed in feeds}:
                feed.mark(self._streams[topic].next, MARK_RECORDS)

    # --- joining and leaving ---

    def _join_or_wait(self, feed: Feed) -> None:
        stream = self._streams[feed.topic]
        if stream.reaches(feed.next) and all(
            feed.offer(each) for each in stream.since(feed.next) if each.is_for(feed.keys)
        ):
            feed.is_live = True
            self._counters.feeds_catching_up -= 1
            for key in feed.keys:
                self._live[feed.topic].setdefault(key, {})[feed] = None
            feed.mark(stream.next, MARK_RECORDS)
        feed.pump()  # which calls `_on_room` for a feed that is not live

    def _catch_up(self, feed: Feed) -> None:
        """Take a feed out of the live ones: it continues from Kafka, at the first record that it did not get or had no room for."""
        self._remove(feed)
        stream = self._streams[feed.topic]
        feed.next = {place: max(feed.next.get(place, 0), offset) for place, offset in stream.next.items()}
        feed.is_live = False
        self._counters.feeds_catching_up += 1

    def _remove(self, feed: Feed) -> None:
        index = self._live[feed.topic]
        for key in feed.keys:
            feeds = index.get(key, {})
            feeds.pop(feed, None)
            if not feeds:
                index.pop(key, None)

    # --- turns of those that catch up ---

    def _on_room(self, feed: Feed) -> None:
        if feed.is_in_ring or feed is self._reading:
            return
        feed.is_in_ring = True
        self._ring.append(feed)
        self._read_next()

    def _read_next(self) -> None:
        while self._reading is None and self._checks:
            feed = self._checks.popleft()
            if not feed.is_closed:
                self._reading = feed
                self._read_slice(SliceRequest(feed.topic, dict(feed.next), feed.keys, records_max=0, bytes_max=0))
        while self._reading is None and self._ring:
            feed = self._ring.popleft()
            feed.is_in_ring = False
            if not feed.is_closed and not feed.is_live:
                self._reading = feed
                self._read_slice(SliceRequest(feed.topic, dict(feed.next), feed.keys, *feed.room))
