# SPDX-License-Identifier: Apache-2.0
"""Targets that read what a peer of Channel sends: streams, frames, hellos, and whole sessions.

The core never raises on input of a peer, answers with codes of the profile, and keeps no more than its limits allow.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from validator_channel import errors
from validator_channel.crypto import Sealer
from validator_channel.errors import HelloError, LocalError, WireError
from validator_channel.events import MessageReceived, MessageRejected, SessionClosed, SessionError
from validator_channel.hello import ConnectorHello, Credentials, ListenerHello, Peering
from validator_channel.limits import COUNTER_MAX, REFUSALS_MAX, Settings
from validator_channel.session import Session
from validator_channel.wire import (
    MAIN,
    FrameDecoder,
    Kind,
    Message,
    Role,
    encode_frame,
    encode_message,
    pack_message_id,
    parse_message,
)

from tests.fuzz.target import Target

CHANNEL: Final = 0x0123456789ABCDEF
SESSION: Final = 5
PEERS: Final = (CHANNEL << 64 | 1, CHANNEL << 64 | 2)
KEYS: Final = (bytes(range(32)), bytes(range(32, 64)))
SIGNING_KEYS: Final = tuple(Ed25519PrivateKey.from_private_bytes(bytes([at]) * 32) for at in range(2))
MAX_FRAME: Final = 2_048
SETTINGS: Final = {
    "max_frame": MAX_FRAME,
    "window": 8,
    "max_inflight": 4,
    "outbox_limit": 4,
    "inbox_limit": 6,
    "max_topics": 4,
    "stale_limit": 20,
    "max_retries": 3,
}
PARSED: Final = {"BAD_JSON", "BAD_MESSAGE", "BAD_VERSION"}
ONE_SIDE_ENDS: Final = errors.FATAL | errors.DELIVERY


class Reader:
    """Takes numbers and bytes from the input; beyond its end, zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def has_more(self) -> bool:
        """Return whether anything is left."""
        return self._at < len(self._data)

    def bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes, or what is left."""
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int = 1) -> int:
        """Return the next number of ``size`` bytes."""
        return int.from_bytes(self.bytes(size), "big")


def decode(data: bytes) -> None:
    """Cut a stream into frames in two ways, and read each as a message."""
    whole, pieces = FrameDecoder(MAX_FRAME), FrameDecoder(MAX_FRAME)
    frames = whole.feed(data)
    cut = [frame for at in range(0, len(data), 7) for frame in pieces.feed(data[at : at + 7])]
    assert (frames, whole.error) == (cut, pieces.error)
    assert whole.take_rest() == pieces.take_rest() or whole.error is not None
    for frame in frames:
        message(frame)


def message(data: bytes) -> None:
    """Read one frame; what is read is written and read again."""
    try:
        parsed = parse_message(data)
    except WireError as error:
        assert error.code in PARSED
        return
    assert parse_message(encode_message(parsed)) == parsed


def hello(data: bytes) -> None:
    """Give bytes to one side of a hello exchange: raw, or as edited members of the genuine frame that it waits for."""
    reader = Reader(data)
    mode = reader.number()
    side, genuine = _waiting(mode % 3)
    if mode & 4:
        frame = reader.bytes(1_200)
    else:
        members = json.loads(genuine[4:])
        names = sorted(members)
        while reader.has_more:
            name, length = names[reader.number() % len(names)], reader.number() % 80
            try:
                members[name] = json.loads(reader.bytes(length))
            except (ValueError, RecursionError):
                members[name] = base64.b64encode(reader.bytes(length)).decode()
        frame = encode_frame(json.dumps(members).encode())
    try:
        side.receive_data(frame)
    except HelloError as error:
        assert error.code in errors.HANDSHAKE
        assert side.result is None
    else:
        assert (
            side.result is None or frame[: len(genuine)] == genuine or json.loads(frame[4:]) == json.loads(genuine[4:])
        )


def session(data: bytes) -> None:
    """A peer with the right keys seals anything, and the application does anything."""
    reader = Reader(data)
    flags = reader.number()
    role = Role(flags & 1)
    peer = _HostilePeer(role, manual_ack=bool(flags & 2))
    if flags & 4:
        peer.join()
    while reader.has_more:
        peer.act(reader)
        peer.check()


def _waiting(step: int) -> tuple[ConnectorHello | ListenerHello, bytes]:
    """Return the side that waits for frame 0, 1 or 2 of a hello exchange, and that frame."""
    connector = ConnectorHello(
        Peering(*PEERS),
        SESSION,
        Credentials(SIGNING_KEYS[0], SIGNING_KEYS[1].public_key(), {PEERS[1]}.__contains__, b"c" * 32),
    )
    listener = ListenerHello(
        {CHANNEL: Peering(*PEERS[::-1])}.get,
        Credentials(SIGNING_KEYS[1], SIGNING_KEYS[0].public_key(), {PEERS[0]}.__contains__, b"l" * 32),
    )
    frame = connector.start()
    if step == 0:
        return listener, frame
    frame = listener.receive_data(frame)
    if step == 1:
        return connector, frame
    return listener, connector.receive_data(frame)


class _HostilePeer:
    """A session, and a peer that can seal whatever it likes."""

    def __init__(self, role: Role, *, manual_ack: bool) -> None:
        self.role = role
        self.now = 0.0
        self.counter = 0
        self.ends = 0
        self.unconsumed = 0
        self.session = Session(
            role, CHANNEL, PEERS[role], PEERS[role.other], SESSION, Settings(**SETTINGS, manual_ack=manual_ack)
        )
        self.session.open(0.0)
        self.session.secured(KEYS[role], KEYS[role.other], 0.0)

    def join(self) -> None:
        """Go online."""
        self.send(Kind.JOIN_SESSION, MAIN, int(self.role.other), b'{"window":8,"max_frame":4096}')
        self.send(Kind.ACKNOWLEDGE, MAIN, int(self.role), b"{}")

    def send(self, kind: Kind, topic: int, index: int, plaintext: bytes, counter: int | None = None) -> None:
        """Seal a message under any counter, and feed it."""
        if counter is None:
            counter = self.counter
            self.counter += 1
        message_id, sender = pack_message_id(CHANNEL, SESSION, topic, index), PEERS[self.role.other]
        sealer = Sealer(KEYS[self.role.other], sender)
        sealer._counter = counter
        _, sealed = sealer.seal(kind, message_id, plaintext, is_last=counter == COUNTER_MAX)
        self.feed(encode_frame(encode_message(Message(kind, sender, message_id, counter, sealed))))

    def feed(self, data: bytes) -> None:
        """Feed bytes."""
        self.session.receive_data(data, self.now)

    def act(self, reader: Reader) -> None:
        """Do what the next bytes say."""
        what = reader.number() % 16
        if what < 10:
            kind, which_topic, index, which_counter = (reader.number() for _ in range(4))
            topic = (MAIN, MAIN, MAIN, 7, 8, 9, 2**22 - 1, self.counter + 10)[which_topic % 8]
            index = 2**32 - 1 - (index & 7) if index > 247 else index
            counter = (None, None, None, max(0, self.counter - which_counter // 5), COUNTER_MAX)[which_counter % 5]
            self.send(tuple(Kind)[kind % len(Kind)], topic, index, self._plaintext(reader), counter)
        elif what == 10:
            self.feed(reader.bytes(reader.number()))
        elif what == 11:
            body = reader.bytes(reader.number())
            self.feed(encode_frame(body))
        else:
            self.call(reader, what)

    def call(self, reader: Reader, what: int) -> None:
        """Do something as the application, or let time go by."""
        session, now = self.session, self.now
        calls: tuple[Callable[[], object], ...] = (
            lambda: session.send((0, 7)[reader.number() & 1], b"x" * reader.number(), now),
            lambda: session.register_topic(7 + (reader.number() & 1), now=now),
            lambda: session.deregister_topic(7 + (reader.number() & 1), now),
            lambda: session.ack((0, 7)[reader.number() & 1], reader.number(), now),
            lambda: session.leave(now),
            lambda: session.keep_alive(now),
            lambda: session.consumed(1),
            lambda: session.set_writable(bool(reader.number() & 1)),
            lambda: session.connection_lost(now),
        )
        if what > 13:
            self.now += reader.number() / 8
            session.handle_timer(self.now)
            return
        try:
            calls[reader.number() % len(calls)]()
        except LocalError as error:
            assert error.code in errors.LOCAL

    def check(self) -> None:
        """Check what came out and what is kept."""
        was_closed = self.ends > 0
        output, events = self.session.data_to_send(), list(iter(self.session.next_event, None))
        assert not (was_closed and (output or events))
        self.ends += sum(isinstance(event, SessionClosed) for event in events)
        assert self.ends == self.session.is_closed
        for event in events:
            assert not isinstance(event, SessionError) or event.code in ONE_SIDE_ENDS
            assert not isinstance(event, MessageReceived) or len(event.payload) < MAX_FRAME
            assert not isinstance(event, MessageRejected) or len(event.code) <= 64
        self.session.next_deadline()
        self._check_limits()

    def _check_limits(self) -> None:
        topics = list(self.session._topics)
        assert len(topics) <= SETTINGS["max_topics"]
        for topic in topics:
            assert len(topic.inbox.held) <= SETTINGS["window"]
            assert len(topic.inbox.unacknowledged) <= SETTINGS["window"]
            assert len(topic.inbox._refusals) <= REFUSALS_MAX
            assert len(topic.outbox.in_flight) <= SETTINGS["max_inflight"]
            assert len(topic.outbox.waiting) <= SETTINGS["outbox_limit"]
        delivery = self.session._delivery
        assert sum(map(len, delivery.timers._queues.values())) == sum(len(topic.outbox.in_flight) for topic in topics)
        assert len(delivery._budget._times) <= SETTINGS["stale_limit"]
        assert len(delivery._unconsumed) <= SETTINGS["inbox_limit"]
        assert len(self.session._link._decoder._buffer) <= MAX_FRAME + 4

    def _plaintext(self, reader: Reader) -> bytes:
        usual = (
            b"{}",
            b'{"window":8,"max_frame":4096}',
            b'{"topic":7}',
            b'{"topic":8,"name":"n"}',
            b'{"topic":0}',
            b'{"code":"X","fatal":false}',
            b'{"code":"X","fatal":true}',
            b"",
        )
        which = reader.number() % 16
        return usual[which] if which < len(usual) else reader.bytes(reader.number())


def _seeds(name: str) -> Iterator[bytes]:
    """Yield inputs to begin with."""
    genuine = encode_message(Message(Kind.APPLICATION, PEERS[0], PEERS[0], 1, bytes(20)))
    spaced = json.dumps(json.loads(genuine)).encode()
    if name == "message":
        yield from (genuine, spaced, b"[]", b'{"v":2}', b'{"v":1,"v":1}')
    elif name == "decode":
        yield from (encode_frame(genuine) * 2, encode_frame(spaced)[:-3], bytes(4))
    elif name == "hello":
        yield from (bytes([step]) for step in range(3))
        yield from (bytes([4 + step]) + _waiting((4 + step) % 3)[1] for step in range(3))
    else:
        own, peers = [12, 1, 0], [0, 2, 0, 3, 0, 2]  # both sides register topic 7
        message = [0, 4, 3, 1, 0, 15, 3, *b"abc"]
        yield bytes([5, *peers, *own, *message, *message])
        yield bytes([4, *own, 0, 5, 0, 2, 0, 0, 12, 0, 1, 9, 14, 80, 14, 80, 14, 80, 14, 80])
        yield bytes([6, 12, 4, 0, 5, 0, 2, 0, 0, 0, 1, 0, 3, 0, 0])


def _holds(check: Callable[[bytes], None], data: bytes) -> bool:
    check(data)
    return True


def _target(check: Callable[[bytes], None]) -> Target:
    name = check.__name__
    return Target(f"channel-{name}", lambda: list(_seeds(name)), partial(_holds, check), per_test=4_000)


TARGETS: Final = tuple(map(_target, (decode, message, hello, session)))
