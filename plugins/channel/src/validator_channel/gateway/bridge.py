# SPDX-License-Identifier: Apache-2.0
"""What each event of a session means to the gateway. Source: channel_rules 5.2.

The registry decides for every message what a peer may do, so a change holds for sessions that are online, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from validator_channel.application import SUBMIT_TOPICS, TOPIC_NAMES, WATCH_TOPICS, Watch, Watching, read_main
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
from validator_channel.gateway.counters import Counters
from validator_channel.gateway.feed import Feed
from validator_channel.gateway.hub import FeedHub
from validator_channel.gateway.intake import Intake
from validator_channel.gateway.limits import WATCHES_BURST, WATCHES_PER_S
from validator_channel.gateway.peer_session import PeerSession, Submission
from validator_channel.gateway.policy import PeerPolicy
from validator_channel.gateway.stream import feed_keys
from validator_channel.ids import MAIN, channel_of
from validator_channel.net.connection import Connection
from validator_channel.net.rates import TokenBucket

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
        """Take an event of a session."""
        session = self._sessions.get(connection)
        if isinstance(event, SessionOnline):
            self._begin(connection)
        elif session is not None:
            self._take(session, event)

    def apply_policies(self) -> None:
        """Let a changed registry hold for the sessions that are online; those of peers that may not connect are closed by the listener."""
        policies = self._policies()
        for channel in self._buckets.keys() - policies.keys():
            del self._buckets[channel]
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
        session.bucket.set_rate(policy.records_per_s, policy.burst, self._loop.time())
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
