# SPDX-License-Identifier: Apache-2.0
"""A connection counts toward the limits until its transport has ended, also if its session has. Source: channel_rules 3.3."""

from __future__ import annotations

import pytest
from channel_tls import Pki, RawPeer, World, serving, until
from validator_channel.limits import ConnectionLimits, ListenerLimits, Settings

SLOW = ListenerLimits(connection=ConnectionLimits(shutdown_timeout=600.0))
BAD_FRAME = b"\0\0\0\0"


@pytest.mark.parametrize("limits", ["peer", "table"])
async def test_peer_that_does_not_close_has_its_sessions_still(pki: Pki, limits: str) -> None:
    few = ListenerLimits(connection=SLOW.connection, sessions_max=1)

    peer = {"sessions_max": 1} if limits == "peer" else {}
    async with serving(World(pki, limits=SLOW if limits == "peer" else few, **peer)) as world:
        raw = await (await RawPeer.join(world, 5)).online()
        raw.writer.write(BAD_FRAME)
        await until(lambda: world.listener.counters.ended == {"BAD_FRAME": 1})
        assert len(world.listener.sessions) == 0
        assert (await world.refusal(5)).code == "SESSION_LIMIT"
        raw.close()
        await until(lambda: not world.listener.sessions._closing)
        connection = await world.connect(5)
        assert connection.state == "ONLINE"


async def test_peer_that_was_refused_and_does_not_close_holds_a_half_open_place(pki: Pki) -> None:
    async with serving(World(pki, limits=SLOW, sessions_max=1)) as world:
        await world.connect(1)
        await until(lambda: world.listener.half_open == 0)
        refused = [await RawPeer.join(world, at) for at in (2, 3)]
        for raw in refused:
            await raw.pump(lambda raw=raw: raw.session.is_closed)
        assert world.listener.half_open == 2
        for raw in refused:
            raw.close()
        await until(lambda: world.listener.half_open == 0)


async def test_peer_that_leaves_may_come_back_at_once(pki: Pki) -> None:
    async with serving(World(pki, limits=SLOW, sessions_max=1)) as world:
        for _ in range(10):
            connection = await world.connect(5, settings=Settings())
            connection.leave()
            assert (await connection.wait_closed()).is_clean
