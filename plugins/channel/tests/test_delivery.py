# SPDX-License-Identifier: Apache-2.0
"""Order, acknowledgement, retransmission and flow control. Source: channel_rules 1.2.8, 1.2.9, 1.2.12."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from channel_world import ACK, APPLICATION, ERROR, KEYS, NO_MESSAGE, World, connector, listener, text
from test_setup import local_code
from validator_channel.events import (
    MessageDelivered,
    MessageReceived,
    MessageRejected,
    PeerError,
    SessionClosed,
    Undelivered,
)
from validator_channel.limits import COUNTER_MAX
from validator_channel.wire import Kind, frame_bytes


def test_send_returns_the_message_id_and_delivery_is_reported() -> None:
    world = connector().online()
    assert f"{world.session.send(0, b'hello', 0.0):032x}" == "0123456789abcdef0140000000000002"
    assert world.take().tx == [(APPLICATION, 0, 2, b"hello")]
    assert world.session.next_deadline() == 1.0
    assert world.receive(ACK, 0, 2) == ([], [MessageDelivered(0, 2)])
    assert world.session.next_deadline() is None


def test_reordered_messages_are_delivered_in_order() -> None:
    world = listener().online()
    for index in (8, 6, 4):
        assert world.receive(APPLICATION, 0, index, bytes([index])) == ([], [])
    out = world.receive(APPLICATION, 0, 2, b"\2")
    assert out.ids == [(ACK, 0, index) for index in (2, 4, 6, 8)]
    assert out.events == [MessageReceived(0, index, bytes([index])) for index in (2, 4, 6, 8)]


def test_receive_window_has_an_edge() -> None:
    world = listener(stale_limit=2).online()
    assert world.receive(APPLICATION, 0, 2 + 2 * 7).ids == []
    assert world.receive(APPLICATION, 0, 2 + 2 * 8).ids == []
    assert world.receive(APPLICATION, 0, 2 + 2 * 7).ids == []
    out = world.receive(APPLICATION, 0, 0xFFFFFFFE)
    world.assert_fails(out, "LIMIT_EXCEEDED")


def test_duplicates_are_acknowledged_again_and_delivered_once() -> None:
    world = listener().online()
    frame = world.frame(APPLICATION, 0, 2, b"x")
    assert len(world.feed(frame).events) == 1
    for again in (frame, world.frame(APPLICATION, 0, 2, b"x")):
        out = world.feed(again)
        assert (out.ids, out.events) == ([(ACK, 0, 2)], [])


def test_late_counter_of_a_new_message_is_dropped() -> None:
    world = listener().online()
    late = world.counter
    world.counter += 1024
    assert world.receive(APPLICATION, 0, 2).ids == [(ACK, 0, 2)]
    assert world.receive(APPLICATION, 0, 4, counter=late) == ([], [])
    assert world.receive(APPLICATION, 0, 4, counter=late + 1).ids == [(ACK, 0, 4)]


def test_jump_to_the_last_counter() -> None:
    world = listener().online()
    assert world.receive(APPLICATION, 0, 2, counter=COUNTER_MAX).ids == [(ACK, 0, 2)]
    assert world.receive(APPLICATION, 0, 4, counter=5).ids == []
    assert world.receive(APPLICATION, 0, 4, counter=COUNTER_MAX - 1023).ids == [(ACK, 0, 4)]


def test_replayed_answers_are_dropped() -> None:
    world = connector(stale_limit=1).online()
    world.send()
    frame = world.frame(ACK, 0, 2, b"{}")
    assert world.feed(frame).events == [MessageDelivered(0, 2)]
    assert world.feed(frame) == ([], [])
    world.assert_fails(world.feed(frame), "LIMIT_EXCEEDED")


# --- retransmission ---


def test_retransmission_until_exhaustion() -> None:
    world = connector().online()
    world.send()
    for before, at in [(0.999, 1.0), (2.999, 3.0), (6.999, 7.0)]:
        assert world.timer(before).ids == []
        assert world.timer(at).ids == [(APPLICATION, 0, 2)]
    assert world.session.next_deadline() == 15.0
    out = world.timer(15.0)
    assert (out.events[0].topic, out.events[0].index) == (0, 2)  # type: ignore[union-attr]
    assert out.events[1] == SessionClosed(is_clean=False, undelivered=(Undelivered(0, 2, b"x"),))
    world.assert_ends(out, "ACK_TIMEOUT")


def test_late_timer_retransmits_once() -> None:
    world = connector().online()
    world.send()
    assert world.timer(3600.0).ids == [(APPLICATION, 0, 2)]
    assert world.session.next_deadline() == 3602.0


def test_due_messages_go_by_deadline_topic_and_index() -> None:
    world = connector().online().with_topic(7)
    world.now = 0.5
    world.send(0)
    world.now = 0.0
    world.send(7)
    world.send(0)
    world.send(7)
    assert world.timer(5.0).ids == [(APPLICATION, *each) for each in [(0, 6), (7, 0), (7, 2), (0, 4)]]


def test_blocked_transport_counts_retransmissions_without_bytes() -> None:
    world = connector().online()
    world.session.set_writable(False)
    assert world.send().ids == [(APPLICATION, 0, 2)]
    assert world.timer(1.0).ids == []
    world.session.set_writable(True)
    assert world.timer(3.0).ids == [(APPLICATION, 0, 2)]
    world.session.set_writable(False)
    assert world.timer(7.0).ids == []
    world.assert_ends(world.timer(15.0), "ACK_TIMEOUT")


def test_no_retries() -> None:
    world = connector(max_retries=0).online()
    world.send()
    world.assert_ends(world.timer(1.0), "ACK_TIMEOUT")


# --- windows and limits ---


def test_window_outbox_and_their_limits() -> None:
    world = connector().online()
    assert [len(world.send(0, bytes([n])).ids) for n in range(8)] == [1, 1, 1, 1, 0, 0, 0, 0]
    assert local_code(world.session.send, 0, b"", 0.0) == "OUTBOX_FULL"
    assert local_code(world.session.register_topic, 7, now=0.0) == "OUTBOX_FULL"
    assert world.receive(ACK, 0, 6).ids == [(APPLICATION, 0, 10)]
    assert local_code(world.session.register_topic, 2**22, now=0.0) == "BAD_PAYLOAD"
    world.register(7)
    out = world.receive(ACK, 0, 2)
    assert out.tx == [(APPLICATION, 0, 12, b"\5")]


def test_window_of_the_peer_bounds_ours() -> None:
    world = connector().online(text({"window": 2, "max_frame": 4096}))
    assert [len(world.send().ids) for _ in range(3)] == [1, 1, 0]


def test_outboxes_are_separate() -> None:
    world = connector(outbox_limit=0).online().with_topic(7)
    for _ in range(4):
        world.send(7)
    assert local_code(world.session.send, 7, b"", 0.0) == "OUTBOX_FULL"
    world.send(0)


@pytest.mark.parametrize(("own", "peers"), [(4096, 1024), (1024, 4096)])
def test_payload_that_just_fits(own: int, peers: int) -> None:
    world = connector(max_frame=own).online(text({"window": 8, "max_frame": peers}))
    size = max(n for n in range(1024) if frame_bytes(APPLICATION, n) <= 1024)
    assert local_code(world.session.send, 0, bytes(size + 1), 0.0) == "PAYLOAD_TOO_LARGE"
    world.session._link._sealer._counter = COUNTER_MAX - 1  # type: ignore[union-attr]
    world.session.send(0, bytes(size), 0.0)
    (frame,) = world.session.data_to_send()
    assert 1020 < len(frame) - 4 <= 1024


def test_inbox_limit() -> None:
    world = listener(inbox_limit=2).online()
    world.receive(APPLICATION, 0, 6, b"c")
    world.receive(APPLICATION, 0, 2, b"a")
    assert world.receive(APPLICATION, 0, 4, b"b").ids == [(ACK, 0, 4)]
    assert world.receive(APPLICATION, 0, 6, b"c") == ([], [])
    world.session.consumed()
    assert world.take() == ([], [])
    assert world.receive(APPLICATION, 0, 6, b"c").events == [MessageReceived(0, 6, b"c")]
    assert world.receive(APPLICATION, 0, 8) == ([], [])
    world.session.consumed(2)
    assert world.receive(APPLICATION, 0, 8).ids == [(ACK, 0, 8)]


def test_inbox_bytes() -> None:
    """The message that exceeds them is still reported, so that a large one is never kept out."""
    world = listener(inbox_bytes=10).online()
    assert world.receive(APPLICATION, 0, 2, bytes(10)).ids == [(ACK, 0, 2)]
    assert world.receive(APPLICATION, 0, 4, bytes(100)).ids == [(ACK, 0, 4)]
    assert world.receive(APPLICATION, 0, 6, b"c") == ([], [])
    world.session.consumed()
    assert world.receive(APPLICATION, 0, 6, b"c") == ([], [])
    world.session.consumed()
    assert world.receive(APPLICATION, 0, 6, b"c").ids == [(ACK, 0, 6)]
    world.session.consumed(9)
    assert world.receive(APPLICATION, 0, 8, bytes(100)).ids == [(ACK, 0, 8)]


def test_held_bytes_are_those_of_all_topics() -> None:
    """What exceeds them is as if lost; the message whose turn it is always has room, and gives room."""
    world = listener(held_bytes=10).online().with_topic(7)
    held = world.session._topics
    assert world.receive(APPLICATION, 0, 8, bytes(6)) == ([], [])
    assert world.receive(APPLICATION, 7, 2, bytes(5)) == ([], [])
    assert [topic.inbox.held_bytes for topic in held] == [6, 0]
    assert world.receive(APPLICATION, 7, 2, bytes(4)) == ([], [])
    assert world.receive(APPLICATION, 7, 4, b"x") == ([], [])
    assert [topic.inbox.held_bytes for topic in held] == [6, 4]
    assert world.session.counts.stale == 0
    assert world.receive(APPLICATION, 7, 0, bytes(100)).ids == [(ACK, 7, 0), (ACK, 7, 2)]
    assert world.receive(APPLICATION, 7, 6, bytes(4)) == ([], [])
    assert [topic.inbox.held_bytes for topic in held] == [6, 4]


# --- acknowledgements that name nothing ---


@pytest.mark.parametrize(("topic", "index"), [(0, 10), (0, 12), (0, 3), (9, 0), (0, 0xFFFFFFFE)])
@pytest.mark.parametrize("kind", [ACK, ERROR])
def test_answer_to_what_was_never_transmitted(kind: Kind, topic: int, index: int) -> None:
    world = connector().online()
    for _ in range(5):  # 2 to 8 are in flight, 10 waits
        world.send()
    plaintext = b"{}" if kind is ACK else text({"code": "TOPIC_CLOSED", "fatal": False})
    world.assert_fails(world.receive(kind, topic, index, plaintext), "BAD_ACK", (topic, index) if kind is ACK else None)


def test_answers_to_no_message() -> None:
    world = connector().online()
    out = world.receive(ERROR, 0, NO_MESSAGE, text({"code": "INTERNAL", "fatal": False}))
    assert out == ([], [PeerError("INTERNAL", is_fatal=False, detail=None)])
    world.assert_fails(world.receive(ACK, 0, NO_MESSAGE), "BAD_ACK", (0, NO_MESSAGE))


def test_acknowledgements_are_not_cumulative() -> None:
    world = connector().online()
    for _ in range(3):
        world.send()
    assert world.receive(ACK, 0, 6).events == [MessageDelivered(0, 6)]
    assert world.timer(1.0).ids == [(APPLICATION, 0, 2), (APPLICATION, 0, 4)]


@pytest.mark.parametrize("plaintext", [b"", b"{ }", b'{"x":1}', b"[]"])
def test_acknowledgement_with_another_payload(plaintext: bytes) -> None:
    world = connector().online()
    world.send()
    world.assert_fails(world.receive(ACK, 0, 2, plaintext), "BAD_PAYLOAD", (0, 2))


def test_rejected_message() -> None:
    world = connector().online()
    world.send()
    out = world.receive(ERROR, 0, 2, text({"code": "LATER_CODE" * 9, "fatal": False}))
    assert out.events == [MessageRejected(0, 2, ("LATER_CODE" * 9)[:64])]
    assert world.timer(50.0).ids == []


# --- exhaustion ---


@pytest.mark.parametrize(("role", "last"), [(connector, 0xFFFFFFFE), (listener, 0xFFFFFFFD)])
def test_indices_are_exhausted_not_wrapped(role: Callable[[], World], last: int) -> None:
    world = role().online().with_topic(7)
    world.session.set_next_index(7, last)
    assert world.send(7).ids == [(APPLICATION, 7, last)]
    assert local_code(world.session.send, 7, b"", 0.0) == "INDEX_EXHAUSTED"
    assert world.receive(ACK, 7, last).events == [MessageDelivered(7, last)]
    world.session.set_next_index(0, last - 2)
    assert world.send(0).ids == [(APPLICATION, 0, last - 2)]
    for call in (lambda: world.send(0), lambda: world.register(8), lambda: world.deregister(7)):
        assert local_code(call) == "INDEX_EXHAUSTED"
    assert local_code(world.session.keep_alive, 0.0) == "INDEX_EXHAUSTED"
    world.receive(ACK, 0, last - 2)
    assert [sent.index for sent in world.leave().tx] == [last]


def test_last_index_of_the_peer() -> None:
    for world, last in ((listener(), 0xFFFFFFFE), (connector(), 0xFFFFFFFD)):
        world.online().session.set_next_index(0, last)
        assert world.receive(APPLICATION, 0, last).ids == [(ACK, 0, last)]
        assert world.receive(APPLICATION, 0, last).ids == [(ACK, 0, last)]
        assert world.receive(APPLICATION, 0, last - 2).ids == [(ACK, 0, last - 2)]
        world.assert_fails(world.receive(APPLICATION, 0, NO_MESSAGE), "INDEX_INVALID", (0, NO_MESSAGE))


def test_counters_are_exhausted() -> None:
    for call in (
        lambda w: w.send(),
        lambda w: w.receive(APPLICATION, 0, 2),
        lambda w: w.leave(),
        lambda w: w.register(7),
    ):
        world = listener().online()
        world.session._link._sealer._counter = world.sent_frames = COUNTER_MAX  # type: ignore[union-attr]
        world.assert_fails(call(world), "COUNTER_EXHAUSTED")
        assert world.sent_frames == COUNTER_MAX + 1


def test_hook_for_an_unknown_topic() -> None:
    assert local_code(listener().online().session.set_next_index, 9, 0) == "UNKNOWN_TOPIC"


def test_secrets_and_payloads_are_not_shown() -> None:
    world = World().online()
    held = [getattr(world.session, name) for name in dir(world.session)]
    shown = repr(world.session) + repr(held) + repr(MessageReceived(0, 2, b"payload"))
    assert "payload" not in shown
    assert repr(KEYS[0]) not in shown


def test_counts_of_a_session() -> None:
    world = listener(window=8, max_inflight=8).online()
    counts = world.session.counts
    assert (counts.frames_received, counts.frames_sent) == (2, 2)
    world.send(0, b"x")
    world.timer(1.0)
    assert (counts.frames_sent, counts.retransmissions) == (4, 1)
    world.receive(APPLICATION, 0, 2, b"one")
    world.receive(APPLICATION, 0, 2, b"one")
    world.receive(APPLICATION, 9, 0, b"nowhere")
    assert (counts.stale, dict(counts.refused)) == (2, {"UNKNOWN_TOPIC": 1})
    total = type(counts)()
    total.add(counts)
    total.add(counts)
    assert total.flat() == {
        "frames_received": 10,
        "frames_sent": 14,
        "retransmissions": 2,
        "stale": 4,
        "refused.UNKNOWN_TOPIC": 2,
    }


def test_frames_are_taken_a_few_at_a_time() -> None:
    world = listener().online()
    frames = b"".join(world.frame(APPLICATION, 0, index, b"x") for index in range(2, 12, 2))
    partial = world.frame(APPLICATION, 0, 12, b"x")
    session = world.session
    assert session.receive_data(frames + partial[:9], world.now, 2)
    assert len(world.take().events) == 2
    assert session.receive_data(b"", world.now, 2)
    assert not session.receive_data(b"", world.now, 2)
    assert len(world.take().events) == 3
    assert session.next_deadline() == world.now + 5.0
    assert not session.receive_data(partial[9:], world.now, 2)
    assert len(world.take().events) == 1
    assert session.next_deadline() is None
