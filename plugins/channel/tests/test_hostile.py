# SPDX-License-Identifier: Apache-2.0
"""A peer that has the keys and means harm: no exception, no growth beyond the limits, silence after the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from channel_world import ACK, APPLICATION, JOIN_TEXT, KEYS, REGISTER, World, text
from hypothesis import given
from hypothesis import strategies as st
from validator_channel import errors
from validator_channel.errors import LocalError
from validator_channel.events import SessionClosed, SessionError
from validator_channel.limits import COUNTER_MAX, REFUSALS_MAX
from validator_channel.wire import Kind, Role, encode_frame, encode_message

from tests import hypothesis_profile

INDICES = st.integers(0, 24) | st.sampled_from([2**32 - 1, 2**32 - 2, 2**32 - 3, 2**31])
TEXTS = st.sampled_from(
    [
        b"{}",
        JOIN_TEXT,
        b"",
        b"[]",
        text({"topic": 7}),
        text({"topic": 8, "name": "n"}),
        text({"topic": 0}),
        b'{"code":"X","fatal":false}',
    ]
) | st.binary(max_size=12)
COUNTERS = st.none() | st.integers(0, 40) | st.just(COUNTER_MAX)
MESSAGES = st.tuples(st.sampled_from(Kind), st.sampled_from([0, 0, 7, 8, 9, 2**22 - 1]), INDICES, TEXTS, COUNTERS)
CALLS = st.sampled_from(["send", "register", "deregister", "leave", "ack", "consumed", "timer", "lost", "blocked"])
RAW = st.binary(max_size=40)


def call(world: World, name: str, now: float) -> None:
    session = world.session
    calls: dict[str, Any] = {
        "send": lambda: session.send(7, b"x", now),
        "register": lambda: session.register_topic(7, now=now),
        "deregister": lambda: session.deregister_topic(7, now),
        "leave": lambda: session.leave(now),
        "ack": lambda: session.ack(0, 2, now),
        "consumed": session.consumed,
        "timer": lambda: session.handle_timer(now),
        "lost": lambda: session.connection_lost(now),
        "blocked": lambda: session.set_writable(False),
    }
    try:
        calls[name]()
    except LocalError as error:
        code: str | None = error.code
    else:
        code = None
    assert code is None or code in errors.LOCAL


def check(world: World) -> None:
    for topic in world.session._topics:
        assert len(topic.inbox.held) <= 8
        assert len(topic.inbox.unacknowledged) <= 8
        assert len(topic.inbox._refusals) <= REFUSALS_MAX
        assert len(topic.outbox.in_flight) <= 4
        assert len(topic.outbox.waiting) <= 4
    assert len(list(world.session._topics)) <= 4


@hypothesis_profile.examples(250)
@given(
    role=st.sampled_from(Role),
    online=st.booleans(),
    manual=st.booleans(),
    acts=st.lists(MESSAGES | CALLS | RAW, max_size=40),
)
def test_no_input_of_the_peer_raises(role: Role, online: bool, manual: bool, acts: list[Any]) -> None:
    world = World(role, manual_ack=manual, stale_limit=12, inbox_limit=5)
    world = world.online() if online else world.setup()
    ends = 0
    for at, act in enumerate(acts):
        world.now = float(at)
        closed_before = world.session.is_closed
        if isinstance(act, str):
            call(world, act, world.now)
        elif isinstance(act, bytes):
            world.session.receive_data(encode_frame(act) if at % 2 and act else act, world.now)
        else:
            world.session.receive_data(world.frame(*act[:4], counter=act[4]), world.now)
        out = world.take()
        ends += sum(isinstance(event, SessionClosed) for event in out.events)
        assert not (closed_before and (out.tx or out.events))
        assert ends == world.session.is_closed
        for event in out.events:
            if isinstance(event, SessionError):
                assert event.code in errors.FATAL | errors.DELIVERY
        check(world)


ALTERATIONS = st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=3)


@given(ALTERATIONS)
def test_altered_frame_is_never_taken(alterations: list[tuple[int, int]]) -> None:
    world = World().online()
    frame = bytearray(world.frame(APPLICATION, 0, 2, b"genuine"))
    original = bytes(frame)
    for at, byte in alterations:
        frame[at % len(frame)] = byte
    out = world.feed(bytes(frame))
    is_same = json_of(bytes(frame)) == json_of(original)
    assert [
        event for event in out.events if not isinstance(event, SessionError | SessionClosed)
    ] == out.events * is_same


def json_of(frame: bytes) -> Any:
    try:
        return int.from_bytes(frame[:4], "big") == len(frame) - 4 and json.loads(frame[4:])
    except ValueError:
        return None


def test_a_million_topics_and_duplicates_leave_no_state() -> None:
    """Scaled down: what one frame leaves behind is nothing, so the number does not matter."""
    world = World(stale_limit=100_000).online()
    for topic in range(1, 3000):
        world.receive(APPLICATION, topic, 0)
        world.receive(ACK, 0, 1)
    assert len(list(world.session._topics)) == 1
    check(world)


def test_hostile_registrations_and_refusals_are_bounded() -> None:
    world = World().online()
    for at in range(300):
        world.receive(REGISTER, 0, 2 + 2 * at, text({"topic": at}))
    check(world)


def test_splicing_between_sessions_fails() -> None:
    """A frame of another session of the same peers, with the same ID and other keys."""
    world = World().online()
    message = world.message(APPLICATION, 0, 2, b"x")
    other = World()
    other.session.open(0.0)
    other.session.secured(KEYS[1], bytes(32), 0.0)
    out = other.feed(encode_frame(encode_message(message)))
    other.assert_fails(out, "DECRYPT_FAILED", (0, 2))


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_any_bytes_in_any_pieces(size: int) -> None:
    world = World().online()
    stream = b"".join(world.frame(APPLICATION, 0, index, b"p" * 50) for index in range(2, 40, 2))
    received = 0
    for at in range(0, len(stream), size):
        received += len(world.feed(stream[at : at + size]).events)
    assert received == 19
