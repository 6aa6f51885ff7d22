# SPDX-License-Identifier: Apache-2.0
"""A session under test, and a scripted peer that can seal any message and open every answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from validator_channel.crypto import Opener, Sealer
from validator_channel.events import Event, SessionClosed, SessionError
from validator_channel.limits import COUNTER_MAX, FRAME_BYTES_MAX, Settings
from validator_channel.session import Session
from validator_channel.wire import (
    FrameDecoder,
    Kind,
    Message,
    Role,
    encode_frame,
    encode_message,
    pack_message_id,
    parse_message,
    unpack_message_id,
)

CHANNEL = 0x0123456789ABCDEF
SESSION = 5
PEERS = (0x0123456789ABCDEF0011223344556677, 0x0123456789ABCDEFFEDCBA9876543210)
KEYS = (bytes(range(32)), bytes(range(32, 64)))
SHARED = Path(__file__).resolve().parents[4] / "shared" / "traces"
SAMPLES = SHARED / "channel_samples.json"

JOIN, LEAVE, REGISTER, DEREGISTER, APPLICATION, ACK, ERROR = Kind
NO_MESSAGE = 0xFFFFFFFF

QUICK: dict[str, Any] = {
    "ack_timeout": 1.0,
    "max_retries": 3,
    "frame_timeout": 5.0,
    "max_frame": 4096,
    "window": 8,
    "max_inflight": 4,
    "outbox_limit": 4,
    "max_topics": 4,
}


class Sent(NamedTuple):
    """A message that the session emitted."""

    kind: Kind
    topic: int
    index: int
    plaintext: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.plaintext)


class Out(NamedTuple):
    """What came out of a call."""

    tx: list[Sent]
    events: list[Event]

    @property
    def ids(self) -> list[tuple[Kind, int, int]]:
        return [sent[:3] for sent in self.tx]


def text(value: object) -> bytes:
    return json.dumps(value).encode()


JOIN_TEXT = text({"window": 8, "max_frame": 4096})


class World:
    """A session of one role, and its peer; `take` checks that counters are 0, 1, 2, ... and that nothing else is wrong with a frame."""

    def __init__(self, role: Role = Role.LISTENER, *, hooks: dict[str, Any] | None = None, **settings: Any) -> None:
        self.role = role
        self.session = Session(
            role, CHANNEL, PEERS[role], PEERS[role.other], SESSION, Settings(**{**QUICK, **settings}), **(hooks or {})
        )
        self.counter = 0
        self.sent_frames = 0
        self.now = 0.0
        self._opener = Opener(KEYS[role], PEERS[role])

    # --- the session's side ---

    def take(self) -> Out:
        decoder = FrameDecoder(FRAME_BYTES_MAX)
        tx = []
        for frame in decoder.feed(b"".join(self.session.data_to_send())):
            message = parse_message(frame)
            parts = unpack_message_id(message.id)
            assert (message.peer, parts.channel, parts.session) == (PEERS[self.role], CHANNEL, SESSION)
            assert message.counter == self.sent_frames
            self.sent_frames += 1
            plaintext = self._opener.open(message.kind, message.id, message.counter, message.sealed)
            tx.append(Sent(message.kind, parts.topic, parts.index, plaintext))
        assert not decoder.is_inside_frame
        return Out(tx, list(iter(self.session.next_event, None)))

    def timer(self, now: float) -> Out:
        self.now = now
        self.session.handle_timer(now)
        return self.take()

    def send(self, topic: int = 0, payload: bytes = b"x") -> Out:
        self.session.send(topic, payload, self.now)
        return self.take()

    def register(self, topic: int, name: str | None = None) -> Out:
        self.session.register_topic(topic, name, now=self.now)
        return self.take()

    def deregister(self, topic: int) -> Out:
        self.session.deregister_topic(topic, self.now)
        return self.take()

    def leave(self) -> Out:
        self.session.leave(self.now)
        return self.take()

    # --- the peer's side ---

    def message(self, kind: Kind, topic: int, index: int, plaintext: bytes, counter: int | None = None) -> Message:
        peer, message_id = PEERS[self.role.other], pack_message_id(CHANNEL, SESSION, topic, index)
        if counter is None:
            counter = self.counter
            self.counter += 1
        sealer = Sealer(KEYS[self.role.other], peer)
        sealer._counter = counter
        _, sealed = sealer.seal(kind, message_id, plaintext, is_last=counter == COUNTER_MAX)
        return Message(kind, peer, message_id, counter, sealed)

    def frame(self, *message: Any, counter: int | None = None) -> bytes:
        return encode_frame(encode_message(self.message(*message, counter=counter)))

    def feed(self, data: bytes) -> Out:
        self.session.receive_data(data, self.now)
        return self.take()

    def receive(
        self, kind: Kind, topic: int = 0, index: int = 0, plaintext: bytes = b"{}", counter: int | None = None
    ) -> Out:
        return self.feed(self.frame(kind, topic, index, plaintext, counter=counter))

    # --- ways to a state ---

    def setup(self) -> World:
        self.session.open(self.now)
        self.session.secured(KEYS[self.role], KEYS[self.role.other], self.now)
        self.take()
        return self

    def online(self, join: bytes = JOIN_TEXT) -> World:
        self.setup()
        self.receive(JOIN, 0, 1 - self.role, join)
        self.receive(ACK, 0, int(self.role))
        assert self.session.state == "ONLINE"
        return self

    def with_topic(self, topic: int) -> World:
        """Register a topic on both sides; uses our and the peer's second index on main."""
        self.receive(REGISTER, 0, 3 - self.role, text({"topic": topic}))
        self.register(topic)
        out = self.receive(ACK, 0, 2 + self.role)
        assert [type(event).__name__ for event in out.events] == ["TopicOpen"]
        return self

    # --- what a test compares ---

    def assert_fails(self, out: Out, code: str, named: tuple[int, int] | None = (0, NO_MESSAGE)) -> None:
        """The session ended with a fatal Runtime error; ``named`` is the ID of the ERROR, or None where none is sent."""
        expected = [] if named is None else [(ERROR, *named)]
        assert out.ids == expected
        assert [sent.json for sent in out.tx] == [{"category": "runtime", "code": code, "fatal": True}] * len(expected)
        assert self._end(out) == ("runtime", code, False)

    def assert_ends(self, out: Out, code: str) -> None:
        """The session ended with a Delivery error, and sent nothing."""
        assert out.tx == []
        assert self._end(out) == ("delivery", code, False)

    def _end(self, out: Out) -> tuple[str, str, bool]:
        error, closed = out.events[-2:]
        assert isinstance(error, SessionError)
        assert isinstance(closed, SessionClosed)
        assert self.session.is_closed
        return error.category, error.code, closed.is_clean


def connector(**settings: Any) -> World:
    return World(Role.CONNECTOR, **settings)


def listener(**settings: Any) -> World:
    return World(Role.LISTENER, **settings)
