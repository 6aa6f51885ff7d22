# SPDX-License-Identifier: Apache-2.0
"""A session that takes the short cuts for usual messages does what one that never takes them does, whatever the peer sends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from typing import Any

import pytest
from channel_world import ACK, APPLICATION, JOIN_TEXT, World, text
from hypothesis import example, given
from hypothesis import strategies as st
from validator_channel import errors
from validator_channel.errors import LocalError
from validator_channel.limits import COUNTER_MAX, GUESSES_MAX
from validator_channel.session import Mark, State, only_delivers
from validator_channel.wire import GUESSED_BYTES, Kind, Role

from tests import hypothesis_profile

TOPIC = 7
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


class Feed:
    """Makes the frames of a peer: each act is a kind, a topic, how far the index is from the expected one, and a payload."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._next = {(APPLICATION, 0): 5 - world.role, (APPLICATION, TOPIC): 1 - world.role}
        self._next |= {(ACK, 0): 4 + world.role, (ACK, TOPIC): int(world.role)}

    def frame(self, kind: Kind, topic: int, ahead: int, payload: bytes) -> bytes:
        index = self._next[kind, topic] + 2 * ahead
        self._next[kind, topic] += 2 * (ahead == 0)
        return self._world.frame(kind, topic, max(0, index), b"{}" if kind is ACK else payload)


NEXT = st.tuples(
    st.sampled_from([APPLICATION, APPLICATION, ACK]),
    st.sampled_from([0, TOPIC]),
    st.sampled_from([0, 0, 0, 0, 1, 2, -1]),
    st.sampled_from([b"", b"text"]),
)
GAP = [(APPLICATION, TOPIC, 1, b"held"), (APPLICATION, TOPIC, 0, b"")]
READS = st.lists(NEXT, min_size=1, max_size=4)


@contextmanager
def without_short_cuts() -> Iterator[None]:
    """No state that is entered here only delivers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("validator_channel.session.only_delivers", lambda state, marks: False)
        yield


class NoGuesses(dict[bytes, Any]):
    """Forgets each guess."""

    def __setitem__(self, start: bytes, guess: Any) -> None:
        pass


def online(role: Role, settings: dict[str, Any]) -> World:
    return World(role, **settings).online().with_topic(TOPIC)


def act(world: World, feed: Feed, what: Any) -> None:
    if isinstance(what, str):
        call(world, what, world.now)
    elif isinstance(what, list):
        world.session.receive_data(b"".join(feed.frame(*each) for each in what), world.now)
    else:
        world.session.receive_data(world.frame(*what[:4], counter=what[4]), world.now)


@hypothesis_profile.examples(250)
@given(
    role=st.sampled_from(Role),
    manual=st.booleans(),
    acts=st.lists(READS | st.just("send") | st.just("consumed") | CALLS | MESSAGES, max_size=25),
)
@example(role=Role.LISTENER, manual=False, acts=["send", [(ACK, TOPIC, 0, b""), *GAP], [GAP[1]]])
@example(
    role=Role.LISTENER, manual=False, acts=[[(APPLICATION, 0, 0, b"")] * 7, "consumed", [(APPLICATION, 0, -1, b"")]]
)
def test_short_cuts_change_nothing(role: Role, manual: bool, acts: list[Any]) -> None:
    settings = {"manual_ack": manual, "stale_limit": 12, "inbox_limit": 5}
    quick = online(role, settings)
    with without_short_cuts():
        general = online(role, settings)
    assert quick.session._only_delivers
    assert not general.session._only_delivers
    general.session._link._guesses = NoGuesses()
    feeds = Feed(quick), Feed(general)
    for at, what in enumerate(acts):
        seen = []
        for world, feed, ways in zip((quick, general), feeds, (nullcontext, without_short_cuts), strict=True):
            world.now = float(at)
            with ways():
                act(world, feed, what)
            out = world.take()
            seen.append((out.tx, out.events, world.session.state, world.session.counts, world.session.next_deadline()))
        assert seen[0] == seen[1]


def test_short_cut_is_taken() -> None:
    """What is compared above differs in the way, not only in name."""
    world = World().online()
    assert world.session._only_delivers
    world.session._rows = {}
    assert len(world.receive(APPLICATION, 0, 2, b"x").events) == 1
    body = world.frame(APPLICATION, 0, 4, b"y")[4:]
    guess = world.session._link._guesses[body[:GUESSED_BYTES]]
    assert guess.read(body, world.session._link._window.next) == world.message(APPLICATION, 0, 4, b"y", 3).sealed


def test_each_topic_has_a_guess() -> None:
    world = World().online().with_topic(TOPIC)
    for index in (2, 4, 6):
        world.receive(APPLICATION, 0, index, b"x")
        world.receive(APPLICATION, TOPIC, index - 2, b"x")
    found = {(guess.kind, guess.topic, guess.index) for guess in world.session._link._guesses.values()}
    assert found >= {(APPLICATION, 0, 8), (APPLICATION, TOPIC, 6)}


def test_guesses_are_bounded() -> None:
    world = World().online()
    for topic in range(1, 3 * GUESSES_MAX):
        world.receive(APPLICATION, topic, 0, b"x")
        assert len(world.session._link._guesses) <= GUESSES_MAX


def test_index_after_the_last_one_is_not_guessed() -> None:
    """Its digits would not fit into the field; the guess begins again at 0."""
    world = World().online()
    world.session.set_next_index(0, 2**32 - 2)
    assert len(world.receive(APPLICATION, 0, 2**32 - 2, b"x").events) == 1
    assert 0 in {guess.index for guess in world.session._link._guesses.values()}
    world.assert_fails(world.receive(APPLICATION, 0, 2**32 - 1, b"x"), "INDEX_INVALID", (0, 2**32 - 1))


def test_states_that_only_deliver() -> None:
    all_marks = [Mark(value) for value in range(2 ** len(Mark))]
    found = {(state, marks) for state, marks in product(State, all_marks) if only_delivers(state, marks)}
    assert {state for state, _ in found} == {State.ONLINE, State.TEARDOWN}
    assert all(
        state is State.ONLINE or (Mark.LEAVE_SENT in marks and Mark.PEER_LEFT not in marks) for state, marks in found
    )
