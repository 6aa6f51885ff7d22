# SPDX-License-Identifier: Apache-2.0
"""A registry, or a peer's ``topics``, that raises: one session ends, with one log entry, and the listener serves the next peer."""

from __future__ import annotations

import pytest
from channel_tls import Pki, World, serving, until
from validator_channel.events import SessionClosed
from validator_channel.net.peers import Peer


class FailingWorld(World):
    """A world whose registry raises in its n-th call."""

    calls_left = 0

    @property
    def peers(self) -> dict[int, Peer]:  # type: ignore[override]
        self.calls_left -= 1
        if not self.calls_left:
            raise RuntimeError("the registry failed")
        return self._peers

    @peers.setter
    def peers(self, peers: dict[int, Peer]) -> None:
        self._peers = peers


def failures(world: World) -> int:
    return sum(line.startswith("the application failed; its session ends: ") for line in world.lines)


@pytest.mark.parametrize("call", [1, 2, 3])
async def test_registry_that_fails_ends_one_handshake(pki: Pki, call: int) -> None:
    """The calls: for the peering, for what the certificate proves, for the limit of sessions."""

    async with serving(FailingWorld(pki)) as world:
        world.calls_left = call
        await world.refusal()
        await until(lambda: world.failed == {"INTERNAL": 1})
        await world.connect(6)
        assert failures(world) == 1


async def test_topics_that_fail_end_one_session(pki: Pki) -> None:
    def topics(topic: int) -> bool:
        raise RuntimeError(f"no policy for topic {topic}")

    async with serving(World(pki, topics=topics)) as world:
        connection, other = await world.connect(5), await world.connect(6)
        connection.register_topic(7)
        assert not (await connection.wait_closed()).is_clean
        assert other.state == "ONLINE"
        await until(lambda: world.listener.counters.ended == {"INTERNAL": 1})
        assert len(world.events.of(SessionClosed)) == 1
        assert failures(world) == 1
