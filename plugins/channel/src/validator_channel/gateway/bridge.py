# SPDX-License-Identifier: Apache-2.0
"""What the gateway keeps for each session, and what each event of it means. Source: channel_rules 5.2.

The registry decides for every message what a peer may do, so a change holds for sessions that are online, too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from validator_channel.application import (
    SUBMIT_TOPICS,
    TOPIC_NAMES,
    WATCH_TOPICS,
    MainMessage,
    RefusedMessage,
    Watch,
    Watching,
    read_main,
    write_main,
)
from validator_channel.errors import ErrorCode, LocalError
from validator_channel.events import (
    Event,
    MessageDelivered,
    MessageReceived,
    MessageRejected,
    SessionClosed,
    SessionOnline,
    TopicClosed,
    TopicOpen,
    TopicRefused,
)
from validator_channel.gateway.feeds import Feed, FeedHub
from validator_channel.gateway.intake import Intake, Submission
from validator_channel.gateway.measures import Counters
from validator_channel.gateway.records import feed_keys
from validator_channel.gateway.registry import PeerPolicy
from validator_channel.limits import WATCHES_BURST, WATCHES_PER_S
from validator_channel.net.connection import Connection
from validator_channel.net.sockets import TokenBucket
from validator_channel.wire import MAIN, channel_of, format_id, pack_message_id, unpack_message_id

Then = Callable[[], None]

_OVER: frozenset[ErrorCode] = frozenset({ErrorCode.WRONG_STATE, ErrorCode.INDEX_EXHAUSTED})
"""Errors after which nothing can be sent any more."""


class PeerSession:
    """A session that is online, with its records on the way to Kafka and its feeds by topic ID.

    A message that is refused is acknowledged only once the peer has the refusal, so a peer that has an acknowledgement and no refusal knows
    that the record was accepted. ``bucket`` is for the records of all sessions of the peer, ``requests`` for this one's messages on `main`.
    ``rate_wait`` wakes it once the bucket has a token for its first record.
    """

    def __init__(self, connection: Connection, policy: PeerPolicy, bucket: TokenBucket, requests: TokenBucket) -> None:
        self.connection = connection
        self.policy = policy
        self.bucket = bucket
        self.requests = requests
        self.waiting: deque[Submission] = deque()
        self.waiting_bytes = 0
        self.is_scheduled = self.is_paused = self.is_closed = False
        self.rate_wait: asyncio.TimerHandle | None = None
        self.open_topics: set[int] = set()
        self.feeds: dict[int, Feed] = {}
        self._outgoing: deque[tuple[bytes, Then]] = deque()
        self._in_flight: dict[int, Then] = {}
        """By index on `main`, what to do when the peer has the message."""

    def message_id(self, submission: Submission) -> str:
        channel, session = self.policy.channel, self.connection.session_id
        return format_id(pack_message_id(channel, session, submission.topic, submission.index))

    def tell(self, message: MainMessage, then: Then = lambda: None) -> None:
        """Send a message on `main`, as soon as there is room; ``then`` is called when the peer has it."""
        self._outgoing.append((write_main(message), then))
        self._send()

    def refuse(self, topic: int, index: int, error: str) -> None:
        """Refuse a message of the peer; it is acknowledged when the peer has the refusal."""
        self.tell(RefusedMessage(topic, index, error), lambda: self.connection.ack(topic, index))

    def main_settled(self, index: int) -> None:
        """The peer has one of our messages on `main`."""
        self._in_flight.pop(index)()
        self._send()

    def close(self) -> None:
        """The session has ended."""
        self.is_closed = True
        self.waiting.clear()
        self._outgoing.clear()
        self._in_flight.clear()

    def _send(self) -> None:
        while self._outgoing and not self.is_closed:
            payload, then = self._outgoing[0]
            try:
                message_id = self.connection.send(MAIN, payload)
            except LocalError as error:
                if error.code in _OVER:
                    self._outgoing.clear()
                return
            self._outgoing.popleft()
            self._in_flight[unpack_message_id(message_id).index] = then


Policies = Callable[[], Mapping[int, PeerPolicy]]
"""Returns the peers of now, by channel ID."""


STOPPING: Final = "the gateway stops"
"""The reason of a LEAVE_SESSION."""


class Bridge:
    """Takes the events of all sessions (`validator_channel.net.connection.Handler`)."""

    def __init__(self, policies: Policies, intake: Intake, hub: FeedHub, counters: Counters) -> None:
        self._policies = policies
        self._intake = intake
        self._hub = hub
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._buckets: dict[int, TokenBucket] = {}
        self._sessions: dict[Connection, PeerSession] = {}
        self._is_stopped = False

    def handle(self, connection: Connection, event: Event) -> None:
        session = self._sessions.get(connection)
        if isinstance(event, SessionOnline):
            self._begin(connection)
        elif session is not None:
            self._take(session, event)

    def apply_policies(self) -> None:
        """Let a changed registry hold for the sessions that are online; those of peers that may not connect are closed by the listener."""
        policies = self._policies()
        self._buckets = {channel: bucket for channel, bucket in self._buckets.items() if channel in policies}
        # also those of peers without a session: their next session has the same bucket
        for channel, bucket in self._buckets.items():
            bucket.set_rate(policies[channel].records_per_s, policies[channel].burst, self._loop.time())
        for session in self._sessions.values():
            policy = policies.get(session.policy.channel)
            if policy is not None and policy != session.policy:
                self._change(session, policy)

    def stop(self) -> None:
        """Take no new session."""
        self._is_stopped = True

    def _begin(self, connection: Connection) -> None:
        if self._is_stopped:
            connection.leave(STOPPING)
            return
        policy = self._policies().get(channel_of(connection.remote_peer))
        if policy is None:  # taken out of the registry since the handshake
            connection.abort()
            return
        requests = TokenBucket(WATCHES_PER_S, WATCHES_BURST, self._loop.time())
        session = PeerSession(connection, policy, self._bucket(policy), requests)
        self._sessions[connection] = session
        self._counters.sessions += 1
        self._counters.sessions_total += 1
        for topic, name in policy.topics().items():
            connection.register_topic(topic, name)
        session.tell(policy.welcome())

    def _take(self, session: PeerSession, event: Event) -> None:
        match event:
            case MessageReceived():
                self._receive(session, event)
            case MessageDelivered(topic, index) | MessageRejected(topic, index, _):
                if topic == MAIN:
                    session.main_settled(index)
                elif topic in session.feeds:
                    session.feeds[topic].settled(index)
            case TopicOpen(topic):
                session.open_topics.add(topic)
                if topic in session.feeds:
                    self._start(session, session.feeds[topic])
            case TopicClosed(topic) | TopicRefused(topic, _):
                session.open_topics.discard(topic)
                self._unwatch(session, topic)
            case SessionClosed():
                self._end(session)
            case _:
                pass

    def _end(self, session: PeerSession) -> None:
        del self._sessions[session.connection]
        self._counters.sessions -= 1
        session.close()
        for topic in tuple(session.feeds):
            self._unwatch(session, topic)

    # --- messages of peers ---

    def _receive(self, session: PeerSession, message: MessageReceived) -> None:
        name = TOPIC_NAMES.get(message.topic)
        if message.topic == MAIN:
            session.connection.consumed()
            self._receive_on_main(session, message)
        elif name in SUBMIT_TOPICS:
            assert name is not None
            submission = Submission(message.topic, name, message.index, message.payload, self._loop.time())
            self._intake.add(session, submission)
        else:  # only the gateway publishes there
            session.connection.consumed()
            self._counters.refused_topics += 1
            session.connection.refuse(message.topic, message.index, ErrorCode.NOT_AUTHORIZED)

    def _receive_on_main(self, session: PeerSession, message: MessageReceived) -> None:
        try:
            if session.requests.take(self._loop.time()):
                raise ValueError(f"main: expected at most {WATCHES_PER_S:.0f} messages per second")
            request = read_main(message.payload)
            if not isinstance(request, Watch):
                raise ValueError("type: expected watch from a peer")
            if request.topic not in session.policy.watch:
                raise ValueError(f"watch: {request.topic[:40]!r} is not granted to this peer")
        except ValueError as error:
            self._counters.refused_watches += 1
            session.refuse(MAIN, message.index, str(error))
            return
        self._watch(session, request, message.index)

    def _watch(self, session: PeerSession, request: Watch, index: int) -> None:
        topic = WATCH_TOPICS[request.topic]
        self._unwatch(session, topic)
        feed = session.feeds[topic] = self._hub.watch(session, request.topic, request.after, index)
        self._hub.check(feed, lambda objection: self._checked(session, feed, objection))

    def _checked(self, session: PeerSession, feed: Feed, objection: str | None) -> None:
        """Give a request its one answer, and acknowledge it."""
        topic, index = feed.topic_id, feed.index
        if session.is_closed:
            return
        if objection is None:
            session.tell(Watching(feed.topic, index, feed.position()), lambda: self._announced(session, topic, index))
            session.connection.ack(MAIN, index)
            return
        if session.feeds.get(topic) is feed:
            self._unwatch(session, topic)
        self._counters.refused_watches += 1
        session.refuse(MAIN, index, f"watch: {feed.topic}: {objection}")

    def _announced(self, session: PeerSession, topic: int, index: int) -> None:
        """The peer knows that a feed begins, and that what came before belongs to an earlier one: it may start once its topic is open."""
        feed = session.feeds.get(topic)
        if feed is not None and feed.index == index:
            feed.is_announced = True
            self._start(session, feed)

    def _start(self, session: PeerSession, feed: Feed) -> None:
        if feed.is_announced and feed.topic_id in session.open_topics:
            self._hub.start(feed)

    def _unwatch(self, session: PeerSession, topic: int) -> None:
        feed = session.feeds.pop(topic, None)
        if feed is not None:
            self._hub.close(feed)

    # --- a changed registry ---

    def _bucket(self, policy: PeerPolicy) -> TokenBucket:
        now = self._loop.time()
        bucket = self._buckets.get(policy.channel)
        if bucket is None:
            bucket = self._buckets[policy.channel] = TokenBucket(policy.records_per_s, policy.burst, now)
        return bucket

    def _change(self, session: PeerSession, policy: PeerPolicy) -> None:
        before, session.policy = session.policy, policy
        self._intake.ask_again(session)
        with suppress(LocalError):  # the session is ending
            for topic in before.topics().keys() - policy.topics().keys():
                session.connection.deregister_topic(topic)
                self._unwatch(session, topic)
            for topic, name in policy.topics().items():
                session.connection.register_topic(topic, name)
        for topic, feed in tuple(session.feeds.items()):
            keys = feed_keys(policy, feed.topic)
            if feed.on_checked is not None:
                feed.keys = keys  # it has sent and read nothing yet
            elif feed.keys != keys:
                session.feeds[topic] = again = self._hub.watch_again(feed)
                again.is_announced = feed.is_announced
                self._start(session, again)
        session.tell(policy.welcome())
