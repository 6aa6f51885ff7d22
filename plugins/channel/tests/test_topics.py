# SPDX-License-Identifier: Apache-2.0
"""Registration by both sides, names, refusals. Source: channel_rules 1.2.10, 1.2.11."""

from __future__ import annotations

from typing import Any

import pytest
from channel_world import ACK, APPLICATION, DEREGISTER, ERROR, REGISTER, Out, World, connector, listener, text
from test_setup import local_code
from validator_channel.events import MessageRejected, TopicClosed, TopicOpen, TopicRefused, TopicRequested


def refused(out: Out, index: int, code: str, topic: int = 0) -> bool:
    return out.ids == [(ERROR, topic, index)] and out.tx[0].json == {
        "category": "runtime",
        "code": code,
        "fatal": False,
    }


def registers(world: World, index: int, topic: Any, **members: Any) -> Out:
    return world.receive(REGISTER, 0, index, text({"topic": topic, **members}))


def test_peer_first() -> None:
    world = listener().online()
    assert registers(world, 2, 7, name="n") == ([(ACK, 0, 2, b"{}")], [TopicRequested(7, "n")])
    assert local_code(world.send, 7) == "TOPIC_CLOSED"
    assert world.register(7, "n").tx[0].json == {"topic": 7, "name": "n"}
    assert local_code(world.send, 7) == "TOPIC_CLOSED"
    assert world.receive(ACK, 0, 3).events == [TopicOpen(7)]
    assert world.send(7).ids == [(APPLICATION, 7, 1)]


def test_registering_twice_does_nothing() -> None:
    world = listener().online().with_topic(7)
    assert world.register(7) == ([], [])
    assert world.register(0) == ([], [])
    assert world.register(0, "main") == ([], [])
    assert registers(world, 4, 7) == ([(ACK, 0, 4, b"{}")], [])


def test_main_is_open_and_stays() -> None:
    world = listener().online()
    assert registers(world, 2, 0).ids == [(ACK, 0, 2)]
    assert registers(world, 4, 0, name="main") == ([(ACK, 0, 4, b"{}")], [])
    assert refused(registers(world, 6, 0, name="Main"), 6, "TOPIC_CONFLICT")
    assert refused(world.receive(DEREGISTER, 0, 8, text({"topic": 0})), 8, "TOPIC_RESERVED")
    assert local_code(world.deregister, 0) == "TOPIC_RESERVED"
    assert local_code(world.register, 0, "other") == "TOPIC_CONFLICT"
    assert world.send().ids == [(APPLICATION, 0, 3)]


def test_keep_alive_is_acknowledged_or_detects_a_dead_peer() -> None:
    world = listener().online()
    world.session.keep_alive(0.0)
    assert world.take().tx == [(REGISTER, 0, 3, b'{"topic":0}')]
    assert world.receive(ACK, 0, 3) == ([], [])
    world.session.keep_alive(0.0)
    world.take()
    assert world.receive(ERROR, 0, 5, text({"code": "TOPIC_LIMIT", "fatal": False})) == ([], [])
    assert world.send().ids == [(APPLICATION, 0, 7)]
    for now in (1.0, 3.0, 7.0):
        world.timer(now)
    world.assert_ends(world.timer(15.0), "ACK_TIMEOUT")


BAD_REGISTRATIONS: list[bytes] = [
    b"",
    b"[]",
    b"{}",
    b'{"topic":7,"topic":7}',
    *(text({"topic": topic}) for topic in (2**22, -1, "7", True, 1.5, 1.0, None)),
    *(text({"topic": 7, "name": name}) for name in ("", "n" * 65, 7, None)),
    b'{"topic":7,"name":"\\ud800"}',
]


@pytest.mark.parametrize("plaintext", BAD_REGISTRATIONS)
def test_bad_registration_is_refused_and_the_session_goes_ahead(plaintext: bytes) -> None:
    world = listener().online()
    assert refused(world.receive(REGISTER, 0, 2, plaintext), 2, "BAD_PAYLOAD")
    assert refused(world.receive(REGISTER, 0, 2, plaintext), 2, "BAD_PAYLOAD")
    assert registers(world, 4, 2**22 - 1, name="\U0001f600" * 64, later=1).ids == [(ACK, 0, 4)]


@pytest.mark.parametrize("plaintext", [b"", b"{}", text({"topic": 2**22}), text({"topic": "0"})])
def test_bad_deregistration(plaintext: bytes) -> None:
    assert refused(listener().online().receive(DEREGISTER, 0, 2, plaintext), 2, "BAD_PAYLOAD")


def test_peer_may_register_only_what_it_is_allowed_to() -> None:
    world = listener(hooks={"may_register": lambda topic: topic == 7}, max_topics=2).online()
    assert refused(registers(world, 2, 8), 2, "NOT_AUTHORIZED")
    assert registers(world, 4, 7).ids == [(ACK, 0, 4)]
    assert refused(registers(world, 6, 9), 6, "NOT_AUTHORIZED")
    assert registers(world, 8, 0).ids == [(ACK, 0, 8)]


def test_topics_are_limited_on_both_sides() -> None:
    world = listener().online()
    for at, topic in enumerate((1, 2, 3)):
        assert registers(world, 2 + 2 * at, topic).ids == [(ACK, 0, 2 + 2 * at)]
    assert refused(registers(world, 8, 4), 8, "TOPIC_LIMIT")
    assert local_code(world.register, 4) == "TOPIC_LIMIT"
    assert world.receive(DEREGISTER, 0, 10, text({"topic": 3})).ids == [(ACK, 0, 10)]
    assert refused(registers(world, 12, 4), 12, "TOPIC_LIMIT")
    assert registers(world, 14, 3).ids == [(ACK, 0, 14)]


def test_names_that_differ() -> None:
    world = listener().online()
    registers(world, 2, 7, name="a")
    assert refused(registers(world, 4, 7, name="b"), 4, "TOPIC_CONFLICT")
    assert registers(world, 6, 7).ids == [(ACK, 0, 6)]
    assert local_code(world.register, 7, "b") == "TOPIC_CONFLICT"
    assert world.register(7, "a").ids == [(REGISTER, 0, 3)]
    world.deregister(7)
    world.receive(DEREGISTER, 0, 8, text({"topic": 7}))
    assert registers(world, 10, 7, name="b").ids == [(ACK, 0, 10)]


@pytest.mark.parametrize(("topic", "name"), [(-1, None), (2**22, None), (7, ""), (7, "n" * 65), (7, "\ud800")])
def test_local_bad_registration(topic: int, name: str | None) -> None:
    world = listener().online()
    assert local_code(world.register, topic, name) == "BAD_PAYLOAD"
    assert world.register(2**22 - 1, "n" * 64).ids == [(REGISTER, 0, 3)]


def test_local_deregistration_of_what_is_not_ours() -> None:
    world = listener().online()
    registers(world, 2, 7)
    for topic, code in [(7, "UNKNOWN_TOPIC"), (9, "UNKNOWN_TOPIC"), (-1, "BAD_PAYLOAD"), (2**22, "BAD_PAYLOAD")]:
        assert local_code(world.deregister, topic) == code
    assert local_code(world.send, 9) == "UNKNOWN_TOPIC"


def test_refused_registration_clears_our_flag() -> None:
    world = connector().online()
    registers(world, 3, 7)
    world.register(7)
    assert world.receive(ERROR, 0, 2, text({"code": "TOPIC_LIMIT", "fatal": False})).events == [
        TopicRefused(7, "TOPIC_LIMIT")
    ]
    assert local_code(world.send, 7) == "TOPIC_CLOSED"
    assert world.register(7).ids == [(REGISTER, 0, 4)]
    assert world.receive(ACK, 0, 4).events == [TopicOpen(7)]


def test_answers_to_superseded_registrations_do_not_count() -> None:
    world = connector().online()
    registers(world, 3, 7)
    world.register(7)
    world.deregister(7)
    world.register(7)
    assert world.receive(ACK, 0, 2).events == []
    assert world.receive(ERROR, 0, 4, text({"code": "UNKNOWN_TOPIC", "fatal": False})) == ([], [])
    assert world.receive(ACK, 0, 6).events == [TopicOpen(7)]


def test_deregistration_by_the_peer_and_again() -> None:
    world = listener().online().with_topic(7)
    world.send(7)
    assert world.receive(DEREGISTER, 0, 4, text({"topic": 7, "name": 5})) == ([(ACK, 0, 4, b"{}")], [TopicClosed(7)])
    assert refused(world.receive(DEREGISTER, 0, 6, text({"topic": 7})), 6, "UNKNOWN_TOPIC")
    assert local_code(world.send, 7) == "TOPIC_CLOSED"
    assert world.receive(ERROR, 7, 1, text({"code": "TOPIC_CLOSED", "fatal": False})).events == [
        MessageRejected(7, 1, "TOPIC_CLOSED")
    ]
    assert registers(world, 8, 7).events == [TopicOpen(7)]
    assert world.send(7).ids == [(APPLICATION, 7, 3)]


def test_closed_topic_consumes_indices() -> None:
    world = listener().online()
    registers(world, 2, 7)
    assert world.receive(APPLICATION, 7, 2, b"later") == ([], [])
    out = world.receive(APPLICATION, 7, 0)
    assert out.ids == [(ERROR, 7, 0), (ERROR, 7, 2)]
    assert out.events == []
    world.register(7)
    world.receive(ACK, 0, 3)
    assert refused(world.receive(APPLICATION, 7, 0), 0, "TOPIC_CLOSED", 7)
    assert world.receive(APPLICATION, 7, 4).ids == [(ACK, 7, 4)]


def test_messages_are_received_before_our_registration_is_acknowledged() -> None:
    world = listener().online()
    registers(world, 2, 7)
    world.register(7)
    assert world.receive(APPLICATION, 7, 0).ids == [(ACK, 7, 0)]


def test_only_the_latest_refusals_are_repeated() -> None:
    world = listener().online()
    registers(world, 2, 7)
    for index in range(0, 130, 2):
        world.receive(APPLICATION, 7, index)
    assert refused(world.receive(APPLICATION, 7, 2), 2, "TOPIC_CLOSED", 7)
    assert world.receive(APPLICATION, 7, 0).ids == [(ACK, 7, 0)]


def test_unknown_topic_keeps_no_state_and_has_a_budget() -> None:
    world = listener(stale_limit=5).online()
    for topic in range(1, 6):
        assert refused(world.receive(APPLICATION, topic, 4), 4, "UNKNOWN_TOPIC", topic)
    assert len(list(world.session._topics)) == 1
    world.assert_fails(world.receive(APPLICATION, 9, 0), "LIMIT_EXCEEDED")


@pytest.mark.parametrize("kind", [REGISTER, DEREGISTER])
def test_control_message_off_main(kind: Any) -> None:
    world = listener().online()
    world.assert_fails(world.receive(kind, 7, 0), "BAD_MESSAGE", (7, 0))
