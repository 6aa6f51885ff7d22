# SPDX-License-Identifier: Apache-2.0
"""Two ends over a bad network: exactly once, in order, bounded, and both OFFLINE at the end."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from channel_network import Network
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from validator_channel.errors import LocalError
from validator_channel.session import State
from validator_channel.wire import Role

from tests import hypothesis_profile

ENDS = st.integers(0, 1)
TOPICS = st.integers(0, 4)
RATES = st.floats(0.0, 0.4)


class BadNetwork(RuleBasedStateMachine):
    """Rules are what both applications may do; the network does its part in every step."""

    @initialize(
        seed=st.integers(0, 2**32),
        loss=RATES,
        repetition=RATES,
        lateness=RATES,
        manual=st.frozensets(st.sampled_from(Role)),
    )
    def connect(self, seed: int, loss: float, repetition: float, lateness: float, manual: frozenset[Role]) -> None:
        self.network = Network(Random(seed), loss, repetition, lateness, manual)

    @rule(end=ENDS, topic=TOPICS, payload=st.binary(max_size=3), count=st.integers(1, 12))
    def send(self, end: int, topic: int, payload: bytes, count: int) -> None:
        for at in range(count):
            self.network.ends[end].send(topic, payload + bytes([at]), self.network.now)

    @rule(end=ENDS, topic=TOPICS, is_registration=st.booleans())
    def register(self, end: int, topic: int, *, is_registration: bool) -> None:
        session = self.network.ends[end].session
        try:
            if is_registration:
                session.register_topic(topic, now=self.network.now)
            else:
                session.deregister_topic(topic, self.network.now)
        except LocalError:
            pass

    @rule(topic=TOPICS)
    def open_topic(self, topic: int) -> None:
        for end in (0, 1):
            self.register(end, topic, is_registration=True)
        self.run(20)

    @rule(end=ENDS)
    def consume(self, end: int) -> None:
        self.network.ends[end].consume()

    @rule(end=ENDS, count=st.integers(1, 8))
    def acknowledge(self, end: int, count: int) -> None:
        self.network.ends[end].acknowledge(self.network.random, count, self.network.now)

    @rule(end=ENDS, steps=st.integers(0, 30))
    def block(self, end: int, steps: int) -> None:
        self.network.ends[end].block(steps)

    @rule(end=ENDS)
    def keep_alive(self, end: int) -> None:
        with contextlib.suppress(LocalError):
            self.network.ends[end].session.keep_alive(self.network.now)

    @rule(end=ENDS)
    def leave(self, end: int) -> None:
        session = self.network.ends[end].session
        if session.state is State.ONLINE:
            session.leave(self.network.now)

    @rule(steps=st.integers(1, 40))
    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.network.step()

    def teardown(self) -> None:
        if hasattr(self, "network"):
            self.network.finish()


TestBadNetwork = BadNetwork.TestCase
TestBadNetwork.settings = hypothesis_profile.examples(60)


@pytest.mark.parametrize("seed", range(8))
def test_much_traffic_over_the_worst_network(seed: int) -> None:
    random = Random(seed)
    network = Network(random, 0.4, 0.4, 0.4)
    for _ in range(300):
        network.step()
        if all(end.is_online for end in network.ends):
            for end in network.ends:
                end.consume()
                for topic in (1, 2):
                    end.session.register_topic(topic, now=network.now)
                for topic in range(3):
                    end.send(topic, random.randbytes(4), network.now)
    network.finish()
    for end in network.ends:
        assert len(end.sent) > 50
        assert end.rejected == set()


def test_good_network_repeats_nothing() -> None:
    network = Network(Random(0), 0.0, 0.0, 0.0)
    for _ in range(5):
        network.step()
    for end in network.ends:
        for _ in range(10):
            end.send(0, b"x", network.now)
    network.finish()
    for end in network.ends:
        assert len(end.sent) == 10
        # JOIN, LEAVE, ten messages, and an acknowledgement for each of the peer's
        assert len(end.counters) == 24
