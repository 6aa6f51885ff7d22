# SPDX-License-Identifier: Apache-2.0
"""From OFFLINE to ONLINE: joining, holding, refusing. Source: channel_rules 1.2.7."""

from __future__ import annotations

from typing import Any

import pytest
from channel_world import (
    ACK,
    APPLICATION,
    ERROR,
    JOIN,
    JOIN_TEXT,
    KEYS,
    LEAVE,
    REGISTER,
    World,
    connector,
    listener,
    text,
)
from validator_channel.errors import Category, ErrorCode, LocalError
from validator_channel.events import MessageReceived, PeerError, PeerLeft, SessionClosed, SessionError, SessionOnline

CLOSED = SessionClosed(is_clean=False, undelivered=())


def local_code(call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(LocalError) as raised:
        call(*args, **kwargs)
    return raised.value.code.value


def test_only_open_does_anything_to_a_new_session() -> None:
    world = listener()
    session = world.session
    session.receive_data(b"\0\0\0\0", 0.0)
    session.handle_timer(99.0)
    session.connection_lost(0.0)
    session.abort(0.0)
    assert world.take() == ([], [])
    assert (session.state, session.is_closed, session.next_deadline()) == ("OFFLINE", False, None)
    for call in (lambda: session.send(0, b"", 0.0), lambda: session.leave(0.0), lambda: session.secured(*KEYS, 0.0)):
        assert local_code(call) == "WRONG_STATE"


def test_handshake_ends_by_timeout_failure_bytes_leave_or_loss() -> None:
    def handshake() -> World:
        world = listener()
        world.session.open(1.0)
        assert world.session.next_deadline() == 6.0
        assert local_code(world.session.open, 1.0) == "WRONG_STATE"
        assert local_code(world.session.send, 0, b"", 1.0) == "WRONG_STATE"
        return world

    world = handshake()
    assert world.timer(5.999).events == []
    world.assert_ends(world.timer(6.0), "HANDSHAKE_TIMEOUT")
    world = handshake()
    assert world.feed(b"").events == []
    world.assert_fails(world.feed(b"\0"), "BAD_HELLO", None)
    world = handshake()
    assert world.leave() == ([], [CLOSED])
    world = handshake()
    world.session.connection_lost(2.0)
    world.assert_ends(world.take(), "TRANSPORT_LOST")


def test_offline_after_use_ignores_everything_but_calls() -> None:
    world = listener().online()
    world.session.connection_lost(1.0)
    world.take()
    session = world.session
    session.open(2.0)
    session.secured(*KEYS, 2.0)
    session.leave(2.0)
    session.ack(0, 2, 2.0)
    session.consumed()
    session.abort(2.0)
    session.connection_lost(2.0)
    assert world.receive(APPLICATION, 0, 2) == ([], [])
    assert world.timer(100.0) == ([], [])
    assert local_code(session.send, 0, b"", 2.0) == "WRONG_STATE"
    assert local_code(session.register_topic, 7, now=2.0) == "WRONG_STATE"
    assert session.next_deadline() is None


def test_wrong_keys_are_a_mistake_of_the_caller() -> None:
    world = listener()
    world.session.open(0.0)
    with pytest.raises(ValueError, match="32"):
        world.session.secured(b"", b"", 0.0)
    world.session.secured(*KEYS, 0.0)
    assert local_code(world.session.secured, *KEYS, 0.0) == "WRONG_STATE"


@pytest.mark.parametrize("role", [0, 1])
def test_join_both_ways(role: int) -> None:
    world = [connector, listener][role]()
    world.session.open(0.0)
    world.session.secured(KEYS[role], KEYS[1 - role], 0.0)
    first = world.take()
    joins = [(JOIN, 0, role)]
    assert first.ids == ([] if role else joins)
    out = world.receive(JOIN, 0, 1 - role, JOIN_TEXT)
    assert out.ids == [(ACK, 0, 1 - role), *(joins if role else [])]
    (join,) = [sent for sent in (first.tx or out.tx) if sent.kind is JOIN]
    assert join.json == {"window": 8, "max_frame": 4096}
    assert world.session.state == "SETUP"
    assert world.receive(ACK, 0, role) == ([], [SessionOnline()])
    assert world.session.state == "ONLINE"
    assert world.session.next_deadline() is None


def test_connector_takes_join_before_the_acknowledgement() -> None:
    world = connector().setup()
    assert world.receive(JOIN, 0, 1, JOIN_TEXT).events == []
    assert world.receive(ACK, 0, 0).events == [SessionOnline()]


BAD_JOINS: list[Any] = [
    b"",
    b"[]",
    b"{}",
    b"\xff",
    b'{"window":8,"window":8,"max_frame":4096}',
    b'{"window":8,"max_frame":4096,"x":NaN}',
    *(
        text({"window": window, "max_frame": max_frame})
        for window, max_frame in [
            (0, 4096),
            (1025, 4096),
            (8.0, 4096),
            (True, 4096),
            ("8", 4096),
            (8, 1023),
            (8, 2**53),
            (8, None),
        ]
    ),
]


@pytest.mark.parametrize("plaintext", BAD_JOINS)
def test_bad_join(plaintext: bytes) -> None:
    world = listener().setup()
    world.assert_fails(world.receive(JOIN, 0, 0, plaintext), "BAD_PAYLOAD", (0, 0))


@pytest.mark.parametrize(("window", "max_frame"), [(1, 1024), (1024, 2**53 - 1)])
def test_join_at_the_bounds_with_unknown_members(window: int, max_frame: int) -> None:
    listener().online(text({"window": window, "max_frame": max_frame, "later": [1]}))


@pytest.mark.parametrize("code", [ErrorCode.SESSION_IN_USE, ErrorCode.SESSION_LIMIT])
def test_refused_join(code: ErrorCode) -> None:
    world = listener(hooks={"admit": lambda: code}).setup()
    world.assert_fails(world.receive(JOIN, 0, 0, JOIN_TEXT), code, (0, 0))
    world = listener(hooks={"admit": lambda: code}).setup()
    world.assert_fails(world.receive(JOIN, 0, 0), "BAD_PAYLOAD", (0, 0))


def test_duplicate_join_is_acknowledged_again() -> None:
    world = listener().setup()
    world.receive(JOIN, 0, 0, JOIN_TEXT)
    assert world.receive(JOIN, 0, 0, JOIN_TEXT).ids == [(ACK, 0, 0)]


@pytest.mark.parametrize("kind", [APPLICATION, LEAVE, REGISTER])
def test_message_in_place_of_join(kind: Any) -> None:
    world = listener().setup()
    world.assert_fails(world.receive(kind, 0, 0), "WRONG_STATE", (0, 0))


@pytest.mark.parametrize("is_online", [False, True])
def test_second_join(is_online: bool) -> None:
    world = listener()
    if is_online:
        world.online()
    else:
        world.setup().receive(JOIN, 0, 0, JOIN_TEXT)
    world.assert_fails(world.receive(JOIN, 0, 2, b"bad too"), "WRONG_STATE", (0, 2))


def test_message_off_main_in_setup() -> None:
    world = listener().setup()
    world.assert_fails(world.receive(APPLICATION, 7, 0), "WRONG_STATE", (7, 0))
    world = listener().setup()
    world.receive(JOIN, 0, 0, JOIN_TEXT)
    world.assert_fails(world.receive(APPLICATION, 7, 0), "WRONG_STATE", (7, 0))


def test_message_before_join_is_held_until_online() -> None:
    world = listener().setup()
    assert world.receive(APPLICATION, 0, 2, b"early") == ([], [])
    assert world.receive(JOIN, 0, 0, JOIN_TEXT).ids == [(ACK, 0, 0), (JOIN, 0, 1)]
    assert world.receive(APPLICATION, 0, 4, b"next") == ([], [])
    out = world.receive(ACK, 0, 1)
    assert out.ids == [(ACK, 0, 2), (ACK, 0, 4)]
    assert out.events == [SessionOnline(), MessageReceived(0, 2, b"early"), MessageReceived(0, 4, b"next")]


def test_leave_of_the_peer_in_setup() -> None:
    world = listener().setup()
    world.receive(JOIN, 0, 0, JOIN_TEXT)
    out = world.receive(LEAVE, 0, 2, text({"reason": "x" * 99}))
    assert out.ids == [(ACK, 0, 2)]
    assert out.events == [PeerLeft("x" * 64)]
    assert world.session.state == "TEARDOWN"
    assert world.receive(ACK, 0, 1).ids == [(LEAVE, 0, 3)]
    assert world.receive(ACK, 0, 3).events == [SessionClosed(is_clean=True, undelivered=())]


def test_setup_times_out() -> None:
    world = listener(ack_timeout=100.0, max_ack_timeout=100.0).setup()
    assert world.session.next_deadline() == 10.0
    world.receive(JOIN, 0, 0, JOIN_TEXT)
    assert world.timer(9.999).events == []
    world.assert_ends(world.timer(10.0), "SETUP_TIMEOUT")


def test_leave_in_setup_closes_and_calls_are_refused() -> None:
    world = connector().setup()
    assert local_code(world.session.send, 0, b"", 0.0) == "WRONG_STATE"
    assert world.leave() == ([], [CLOSED])


@pytest.mark.parametrize("is_fatal", [True, False])
def test_error_about_our_join_ends_the_session(is_fatal: bool) -> None:
    world = connector().setup()
    out = world.receive(ERROR, 0, 0, text({"code": "SESSION_IN_USE", "fatal": is_fatal, "detail": "d" * 300}))
    assert out == ([], [PeerError("SESSION_IN_USE", is_fatal, "d" * 256), CLOSED])


def test_internal_fault_is_reported_to_both() -> None:
    world = listener().online()
    world.session.abort(1.0)
    out = world.take()
    assert out.events[0] == SessionError(Category.RUNTIME, ErrorCode.INTERNAL)
    world.assert_fails(out, "INTERNAL")
