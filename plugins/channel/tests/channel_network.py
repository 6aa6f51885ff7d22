# SPDX-License-Identifier: Apache-2.0
"""Two sessions over a network that loses, repeats and reorders frames, with a record of everything that both applications saw."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from channel_world import CHANNEL, KEYS, PEERS, SESSION
from validator_channel.errors import LocalError
from validator_channel.events import (
    MessageDelivered,
    MessageReceived,
    MessageRejected,
    PeerError,
    SessionClosed,
    SessionError,
    SessionOnline,
)
from validator_channel.limits import REFUSALS_MAX, Settings
from validator_channel.session import Session, State
from validator_channel.wire import Role, parse_message, unpack_message_id

SETTINGS: dict[str, Any] = {
    "ack_timeout": 1.0,
    "backoff": 1.0,
    "max_retries": 100,
    "setup_timeout": 1e6,
    "teardown_timeout": 1e6,
    "window": 8,
    "max_inflight": 6,
    "outbox_limit": 10,
    "inbox_limit": 12,
    "inbox_bytes": 40,
    "held_bytes": 24,
    "max_topics": 4,
    "stale_limit": 100_000,
}
DELAY_MAX = 6
"""Steps by which a reordered frame may be late."""
SIGNS_OF_AN_ERROR = SessionError, PeerError


class End:
    """One session with its application."""

    def __init__(self, role: Role, *, manual_ack: bool = False) -> None:
        settings = Settings(**SETTINGS, manual_ack=manual_ack)
        self.role = role
        self.manual_ack = manual_ack
        self.pending: list[tuple[int, int]] = []
        self.blocked_steps = 0
        self.session = Session(role, CHANNEL, PEERS[role], PEERS[role.other], SESSION, settings)
        self.sent: dict[tuple[int, int], bytes] = {}
        self.received: list[tuple[int, int, bytes]] = []
        self.settled: Counter[tuple[int, int]] = Counter()
        self.rejected: set[tuple[int, int]] = set()
        self.events: list[Any] = []
        self.counters: list[int] = []
        self.unconsumed = 0
        self.session.open(0.0)
        self.session.secured(KEYS[role], KEYS[role.other], 0.0)

    @property
    def is_online(self) -> bool:
        return SessionOnline() in self.events and self.session.state is State.ONLINE

    def send(self, topic: int, payload: bytes, now: float) -> None:
        try:
            index = unpack_message_id(self.session.send(topic, payload, now)).index
        except LocalError:
            return
        assert (topic, index) not in self.sent
        self.sent[topic, index] = payload

    def take(self) -> list[bytes]:
        frames = [bytes(frame) for frame in self.session.data_to_send()]
        self.counters += [parse_message(frame[4:]).counter for frame in frames]
        while (event := self.session.next_event()) is not None:
            self.events.append(event)
            if isinstance(event, MessageReceived):
                self.received.append((event.topic, event.index, event.payload))
                self.unconsumed += 1
                if self.manual_ack:
                    self.pending.append((event.topic, event.index))
            elif isinstance(event, MessageDelivered | MessageRejected):
                self.settled[event.topic, event.index] += 1
                if isinstance(event, MessageRejected):
                    self.rejected.add((event.topic, event.index))
        self._check_bounds()
        return frames

    def block(self, steps: int) -> None:
        """Let the transport take no bytes; its owner then reads none either."""
        self.blocked_steps = steps
        self.session.set_writable(steps == 0)

    def acknowledge(self, random: Random, count: int, now: float) -> None:
        """Acknowledge some of the messages that wait for it, in any order."""
        for _ in range(min(count, len(self.pending))):
            self.session.ack(*self.pending.pop(random.randrange(len(self.pending))), now)

    def consume(self) -> None:
        self.session.consumed(self.unconsumed)
        self.unconsumed = 0

    def _check_bounds(self) -> None:
        assert self.unconsumed <= SETTINGS["inbox_limit"]
        topics = list(self.session._topics)
        assert len(topics) <= SETTINGS["max_topics"]
        for topic in topics:
            assert len(topic.outbox.in_flight) <= SETTINGS["max_inflight"]
            assert len(topic.outbox.waiting) <= SETTINGS["outbox_limit"]
            assert len(topic.inbox.held) <= SETTINGS["window"]
            assert len(topic.inbox.unacknowledged) <= SETTINGS["window"]
            assert len(topic.inbox._refusals) <= REFUSALS_MAX
            assert topic.inbox.held_bytes == sum(len(each.plaintext) for each in topic.inbox.held.values())
        in_flight = sum(len(topic.outbox.in_flight) for topic in topics)
        assert sum(map(len, self.session._delivery.timers._queues.values())) == in_flight
        waiting = [
            each for topic in topics for index, each in topic.inbox.held.items() if index != topic.inbox.expected
        ]
        assert sum(len(each.plaintext) for each in waiting) <= SETTINGS["held_bytes"]


class Network:
    """Both ends; each rate is the share of frames that are lost, repeated or late; ``manual`` are the roles that acknowledge by hand."""

    def __init__(
        self, random: Random, loss: float, repetition: float, lateness: float, manual: frozenset[Role] = frozenset()
    ) -> None:
        self.random = random
        self.rates = loss, repetition, lateness
        self.now = 0.0
        self.steps = 0
        self.ends = (
            End(Role.CONNECTOR, manual_ack=Role.CONNECTOR in manual),
            End(Role.LISTENER, manual_ack=Role.LISTENER in manual),
        )
        self.wires: tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]] = ([], [])

    def step(self) -> None:
        """Move frames that have arrived, in both directions, then run the timers; a step takes 0.1 seconds."""
        self.steps += 1
        self.now = self.steps / 10
        for end in self.ends:
            if end.blocked_steps:
                end.block(end.blocked_steps - 1)
            self._transmit(end)
        for end in self.ends:
            if not end.blocked_steps:
                self._receive(end)
            deadline = end.session.next_deadline()
            if deadline is not None and deadline <= self.now:
                end.session.handle_timer(self.now)
            self._transmit(end)
            assert deadline is None or (end.session.next_deadline() or self.now + 1) > self.now

    def _receive(self, end: End) -> None:
        wire = self.wires[end.role]
        arrived = [frame for due, frame in wire if due <= self.steps]
        wire[:] = [(due, frame) for due, frame in wire if due > self.steps]
        for frame in arrived:
            end.session.receive_data(frame, self.now)
            self._transmit(end)

    def finish(self) -> None:
        """Leave from both ends until both are OFFLINE, and check what both applications saw."""
        for steps in range(20_000):
            for end in self.ends:
                end.consume()
                end.acknowledge(self.random, len(end.pending), self.now)
                if end.session.state is State.ONLINE and (steps > 50 or self.random.random() < 0.1):
                    end.session.leave(self.now)
            self.step()
            for end, other in (self.ends, self.ends[::-1]):
                if end.session.is_closed and not self.wires[other.role]:
                    other.session.connection_lost(self.now)
                    other.take()
            if all(end.session.is_closed for end in self.ends):
                break
        for end, other in (self.ends, self.ends[::-1]):
            self._check(end, other)

    def _transmit(self, end: End) -> None:
        if end.blocked_steps and not end.session.is_closed:
            return
        loss, repetition, lateness = self.rates
        for frame in end.take():
            copies = (self.random.random() >= loss) + (self.random.random() < repetition)
            for _ in range(copies):
                late = self.random.randint(1, DELAY_MAX) if self.random.random() < lateness else 0
                self.wires[end.role.other].append((self.steps + late, frame))

    def _check(self, end: End, other: End) -> None:
        """Exactly once and in order; delivered or rejected, never both; counters 0, 1, 2, ...; a clean end."""
        assert not [event for event in end.events if isinstance(event, SIGNS_OF_AN_ERROR)]
        assert end.events[-1] == SessionClosed(is_clean=True, undelivered=())
        assert end.counters == list(range(len(end.counters)))
        assert end.settled == Counter(end.sent.keys())
        accepted = {key: payload for key, payload in end.sent.items() if key not in end.rejected}
        assert {(topic, index): payload for topic, index, payload in other.received} == accepted
        assert len(other.received) == len(accepted)
        for topic in {topic for topic, _, _ in other.received}:
            indices = [index for each, index, _ in other.received if each == topic]
            assert indices == sorted(indices)
