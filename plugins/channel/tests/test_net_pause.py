# SPDX-License-Identifier: Apache-2.0
"""A pause of ours is not charged to the peer: the time of a frame that is half read stands still. Source: channel_rules 5.2."""

from __future__ import annotations

import asyncio

import pytest
from channel_tls import Pki, RawPeer, World, serving, until
from validator_channel.events import MessageReceived
from validator_channel.limits import Settings
from validator_channel.net.connection import Connection


async def half_read(world: World) -> tuple[RawPeer, Connection, bytes]:
    """Return a peer that has sent half a frame, the connection that has read it, and the other half."""
    raw = await (await RawPeer.join(world, 5)).online()
    await until(lambda: world.events.online)
    (connection,) = world.events.online
    raw.session.send(0, bytes(100_000), asyncio.get_running_loop().time())
    frame = b"".join(raw.session.data_to_send())
    raw.writer.write(frame[:1_000])
    assert connection._session is not None
    timer = connection._session._link.frame_timer
    await until(lambda: timer.is_running or connection.state == "OFFLINE")
    return raw, connection, frame[1_000:]


@pytest.mark.parametrize("why", ["application", "output"])
async def test_half_a_frame_survives_our_pause(pki: Pki, why: str) -> None:
    async with serving(World(pki)) as world:
        raw, connection, rest = await half_read(world)
        if why == "application":
            connection.pause_reading()
        else:
            connection.pause_writing()
            connection._output.append(bytes(connection._limits.blocked_bytes + 1))
            await until(lambda: connection._is_paused)
        assert connection._session is not None
        connection._session.handle_timer(asyncio.get_running_loop().time() + 3_600.0)
        assert connection.state == "ONLINE"
        raw.writer.write(rest)
        if why == "application":
            connection.resume_reading()
        else:
            connection._output.clear()
            connection.resume_writing()
        await until(lambda: world.events.of(MessageReceived))
        assert len(world.events.of(MessageReceived)[0].payload) == 100_000
        raw.close()


async def test_half_a_frame_ends_the_session_after_our_pause(pki: Pki) -> None:
    """The peer sends nothing more, so only the timer that is set at the end of the pause can notice."""

    async with serving(World(pki, settings=Settings(frame_timeout=0.3))) as world:
        loop = asyncio.get_running_loop()
        raw, connection, _ = await half_read(world)
        connection.pause_reading()
        paused_at = loop.time()
        await until(lambda: loop.time() > paused_at + 0.5)
        connection.resume_reading()
        await until(lambda: world.listener.counters.ended == {"FRAME_TIMEOUT": 1})
        raw.close()
