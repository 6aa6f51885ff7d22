# SPDX-License-Identifier: Apache-2.0
"""Leaving, and every other end. Source: channel_rules 1.2.7."""

from __future__ import annotations

import pytest
from channel_world import ACK, APPLICATION, ERROR, JOIN, JOIN_TEXT, LEAVE, REGISTER, connector, listener, text
from test_setup import local_code
from validator_channel.errors import LocalError
from validator_channel.events import (
    MessageDelivered,
    MessageReceived,
    MessageRejected,
    PeerError,
    PeerLeft,
    SessionClosed,
    TopicRequested,
    Undelivered,
)

CLEAN = SessionClosed(is_clean=True, undelivered=())


def test_leave_waits_for_every_topic() -> None:
    world = connector(max_inflight=1).online().with_topic(7)
    world.send(7, b"a")
    world.send(7, b"b")
    world.send(0, b"c")
    assert world.leave() == ([], [])
    assert world.session.state == "TEARDOWN"
    assert world.receive(ACK, 7, 0).ids == [(APPLICATION, 7, 2)]
    assert world.receive(ACK, 0, 4).ids == []
    out = world.receive(ERROR, 7, 2, text({"code": "TOPIC_CLOSED", "fatal": False}))
    assert out == ([(LEAVE, 0, 6, b"{}")], [MessageRejected(7, 2, "TOPIC_CLOSED")])
    assert world.receive(ACK, 0, 6) == ([], [])
    assert world.receive(LEAVE, 0, 5) == ([(ACK, 0, 5, b"{}")], [PeerLeft(None), CLEAN])


def test_reason_is_sent_and_cut() -> None:
    world = connector().online()
    assert local_code(world.session.leave, 0.0, "\ud800") == "BAD_PAYLOAD"
    world.session.leave(0.0, "r" * 70)
    assert world.take().tx[0].json == {"reason": "r" * 64}


def test_calls_in_teardown_are_refused() -> None:
    world = connector().online()
    world.leave()
    for call in (world.send, world.leave, lambda: world.register(7), lambda: world.deregister(7)):
        assert local_code(call) == "WRONG_STATE"
    assert local_code(world.session.keep_alive, 0.0) == "WRONG_STATE"


@pytest.mark.parametrize("who", ["we", "the peer"])
def test_leave_that_is_refused_does_not_change_the_reason(who: str) -> None:
    world = listener().online()
    world.send()
    if who == "we":
        world.session.leave(0.0, "first")
    else:
        world.receive(LEAVE, 0, 2)
    with pytest.raises(LocalError, match="WRONG_STATE"):
        world.session.leave(0.0, "second")
    (sent,) = world.receive(ACK, 0, 3).tx
    assert sent[:3] == (LEAVE, 0, 5)
    assert sent.json == ({"reason": "first"} if who == "we" else {})


def test_peer_may_still_send_while_we_leave() -> None:
    world = connector().online()
    world.leave()
    assert world.receive(APPLICATION, 0, 3, b"x").events == [MessageReceived(0, 3, b"x")]
    assert world.receive(REGISTER, 0, 5, text({"topic": 7})).events == [TopicRequested(7, None)]
    world.receive(ACK, 0, 2)
    assert world.receive(LEAVE, 0, 7).events == [PeerLeft(None), CLEAN]


def test_peer_leaves_while_messages_are_outstanding() -> None:
    world = listener().online()
    world.send()
    assert world.receive(LEAVE, 0, 2) == ([(ACK, 0, 2, b"{}")], [PeerLeft(None)])
    assert world.receive(LEAVE, 0, 2).ids == [(ACK, 0, 2)]
    assert world.receive(ACK, 0, 3) == ([(LEAVE, 0, 5, b"{}")], [MessageDelivered(0, 3)])
    assert world.timer(1.0).ids == [(LEAVE, 0, 5)]
    assert world.receive(ACK, 0, 5).events == [CLEAN]


@pytest.mark.parametrize(
    ("kind", "topic", "index"),
    [(APPLICATION, 0, 4), (LEAVE, 0, 4), (JOIN, 0, 4), (APPLICATION, 7, 0), (APPLICATION, 0, 8)],
)
def test_new_message_after_leave(kind: object, topic: int, index: int) -> None:
    world = listener().online()
    world.receive(LEAVE, 0, 2)
    world.assert_fails(world.receive(kind, topic, index), "WRONG_STATE", (topic, index))  # type: ignore[arg-type]


def test_held_message_after_leave() -> None:
    world = listener().online()
    world.receive(APPLICATION, 0, 4)
    out = world.receive(LEAVE, 0, 2)
    assert out.ids[0] == (ACK, 0, 2)
    assert out.ids[-1] == (ERROR, 0, 4)
    assert world.session.is_closed


def test_join_in_teardown() -> None:
    world = listener().online()
    world.leave()
    world.assert_fails(world.receive(JOIN, 0, 2, JOIN_TEXT), "WRONG_STATE", (0, 2))


@pytest.mark.parametrize("plaintext", [b"", b"[]", b'{"a":1,"a":2}'])
def test_bad_leave(plaintext: bytes) -> None:
    world = listener().online()
    world.assert_fails(world.receive(LEAVE, 0, 2, plaintext), "BAD_PAYLOAD", (0, 2))


def test_reason_of_another_type_is_ignored() -> None:
    assert listener().online().receive(LEAVE, 0, 2, text({"reason": 5})).events == [PeerLeft(None)]


def test_teardown_times_out() -> None:
    world = connector(ack_timeout=60.0, max_ack_timeout=60.0).online()
    world.now = 5.0
    world.leave()
    world.now = 14.0
    world.receive(LEAVE, 0, 3)
    assert world.session.next_deadline() == 15.0
    world.assert_ends(world.timer(15.0), "TEARDOWN_TIMEOUT")


def test_last_acknowledgement_may_be_lost() -> None:
    world = listener().online()
    world.receive(LEAVE, 0, 2)
    world.session.connection_lost(1.0)
    assert world.take() == ([], [CLEAN])


@pytest.mark.parametrize("peer_left", [True, False])
def test_transport_lost_before_both_have_left(peer_left: bool) -> None:
    world = listener().online()
    world.send(0, b"lost")
    if peer_left:
        world.receive(LEAVE, 0, 2)
    else:
        world.leave()
    world.session.connection_lost(1.0)
    out = world.take()
    assert out.events[-1] == SessionClosed(is_clean=False, undelivered=(Undelivered(0, 3, b"lost"),))
    world.assert_ends(out, "TRANSPORT_LOST")


def test_undelivered_messages_are_reported_in_order() -> None:
    world = connector().online().with_topic(7)
    for payload in range(6):
        world.send(7, bytes([payload]))
    world.send(0, b"main")
    world.register(9)
    world.receive(ACK, 7, 2)
    world.session.connection_lost(0.0)
    (closed,) = [event for event in world.take().events if isinstance(event, SessionClosed)]
    assert [each.payload for each in closed.undelivered] == [b"main", b"\0", b"\2", b"\3", b"\4", b"\5"]


def test_error_about_our_leave_ends_the_session() -> None:
    world = listener().online()
    world.leave()
    out = world.receive(ERROR, 0, 3, text({"code": "X", "fatal": False}))
    assert out == ([], [PeerError("X", is_fatal=False, detail=None), SessionClosed(is_clean=False, undelivered=())])
