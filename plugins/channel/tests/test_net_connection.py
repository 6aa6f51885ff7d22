# SPDX-License-Identifier: Apache-2.0
"""Two peers over TLS: messages, flow control, ends of sessions, and what log and counters say."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from channel_tls import CLIENT, SERVER, Pki, RawPeer, World, serving, until
from channel_world import CHANNEL
from validator_channel.errors import ErrorCode, LocalError
from validator_channel.events import (
    Event,
    MessageDelivered,
    MessageReceived,
    PeerLeft,
    SessionClosed,
    SessionOnline,
    TopicOpen,
    TopicRefused,
    TopicRequested,
)
from validator_channel.hello import Peering
from validator_channel.limits import ConnectionLimits, ListenerLimits, Settings
from validator_channel.net.connection import Connection
from validator_channel.net.peers import HandshakeFailed
from validator_channel.wire import Kind, write_error

MESSAGES = 300


async def test_two_peers_exchange_messages(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        connection, other = await world.pair()
        connection.register_topic(7, "seven")
        await until(lambda: world.events.of(TopicRequested))
        other.register_topic(7, "seven")
        await until(lambda: world.events.of(TopicOpen) and world.client_events.of(TopicOpen))
        for at in range(MESSAGES):
            connection.send(7, b"c%d" % at)
            other.send(7, b"s%d" % at)
        for events, text in ((world.events, b"c"), (world.client_events, b"s")):
            await until(lambda events=events: len(events.of(MessageDelivered)) == MESSAGES)
            assert [event.payload for event in events.of(MessageReceived)] == [
                text + b"%d" % at for at in range(MESSAGES)
            ]
        connection.deregister_topic(7)
        connection.keep_alive()
        connection.leave("done")
        assert (await connection.wait_closed()).is_clean
        assert (await other.wait_closed()).is_clean
        assert world.events.of(PeerLeft) == [PeerLeft("done")]
        for recorded in (world.events, world.client_events):
            kinds = [type(event) for _, event in recorded.events]
            assert (kinds[0], kinds[-1]) == (SessionOnline, SessionClosed)
        snapshot = world.listener.counters.snapshot()
        assert snapshot["frames_received"] > 2 * MESSAGES
        expected = {
            "accepted": 1,
            "online": 1,
            "handshakes_ok": 1,
            "ended.CLEAN": 1,
            "retransmissions": 0,
            "stale": 0,
        }
        assert {name: snapshot[name] for name in expected} == expected
        assert snapshot == dict(sorted(snapshot.items()))
        with pytest.raises(LocalError, match="WRONG_STATE"):
            connection.send(0, b"late")


async def test_topic_of_another_peer_is_refused(pki: Pki) -> None:
    async with serving(World(pki, topics=lambda topic: topic == 1)) as world:
        connection = await world.connect()
        connection.register_topic(1)
        connection.register_topic(2)
        await until(lambda: world.client_events.of(TopicRefused))
        assert world.client_events.of(TopicRefused) == [TopicRefused(2, "NOT_AUTHORIZED")]
        assert [event.topic for event in world.events.of(TopicRequested)] == [1]
        connection.leave()
        await connection.wait_closed()
        await until(lambda: world.listener.counters.snapshot().get("refused.NOT_AUTHORIZED") == 1)


async def test_one_peer_takes_a_few_frames_per_turn(pki: Pki) -> None:
    limits = ListenerLimits(connection=ConnectionLimits(frames_per_turn=4))
    turns: list[int] = []
    now = 0

    loop = asyncio.get_running_loop()

    def tick() -> None:
        nonlocal now
        now += 1
        loop.call_soon(tick)

    many = Settings(max_inflight=64)
    async with serving(World(pki, limits=limits, settings=many)) as world, world.raw(settings=many) as (raw, other):
        for _ in range(60):
            raw.session.send(0, b"x", loop.time())

        def note(connection: Connection, event: Event) -> None:
            if isinstance(event, MessageReceived):
                turns.append(now)
            world.events(connection, event)

        object.__setattr__(other._terms, "handler", note)
        tick()
        raw.flush()
        await until(lambda: len(turns) == 60)
    assert max(turns.count(each) for each in turns) <= 4
    assert len(set(turns)) >= 15


async def test_frames_that_had_arrived_are_taken_at_the_end(pki: Pki) -> None:
    limits = ListenerLimits(connection=ConnectionLimits(frames_per_turn=4))

    async with serving(World(pki, limits=limits)) as world, world.raw() as (raw, other):
        for _ in range(20):
            raw.session.send(0, b"x", asyncio.get_running_loop().time())
        assert other._transport is not None
        transport = other._transport
        other.data_received(b"".join(raw.session.data_to_send()))
        other.connection_lost(None)
        assert len(world.events.of(MessageReceived)) == 20
        transport.abort()


async def test_peer_that_does_not_read_is_dropped(pki: Pki) -> None:
    limits = ListenerLimits(connection=ConnectionLimits(write_timeout=0.2))

    settings = Settings(ack_timeout=600.0, max_ack_timeout=600.0)

    async with serving(World(pki, limits=limits, settings=settings)) as world, world.raw() as (_, other):
        assert other.is_writable
        for _ in range(32):
            other.send(0, bytes(700_000))
        await until(lambda: not other.is_writable)
        await until(lambda: world.listener.counters.ended == {"WRITE_TIMEOUT": 1})
        closed = await other.wait_closed()
        assert len(closed.undelivered) == 32


async def test_blocked_transport_gets_no_retransmission(pki: Pki) -> None:
    settings = Settings(ack_timeout=0.01, backoff=1, max_retries=100)

    async with serving(World(pki, settings=settings)) as world, world.raw() as (_, other):
        for _ in range(32):
            other.send(0, bytes(700_000))
        assert other._session is not None
        counts = other._session.counts
        await until(lambda: not other.is_writable)
        before = counts.frames_sent
        await until(
            lambda: counts.retransmissions >= 200
        )  # meanwhile the sockets' buffers grow: it may write, and is blocked again
        assert counts.frames_sent == before


async def test_transport_that_writes_again_gets_what_waits_before_any_retransmission(pki: Pki) -> None:
    settings = Settings(ack_timeout=0.01, backoff=1, max_retries=100)

    async with serving(World(pki, settings=settings)) as world, world.raw() as (_, other):
        for _ in range(32):
            other.send(0, bytes(700_000))
        assert other._session is not None
        counts = other._session.counts
        await until(lambda: not other.is_writable)
        before = counts.frames_sent
        other.resume_writing()
        # a timer that fires before the turn which writes
        other._session.handle_timer(asyncio.get_running_loop().time() + 1.0)
        assert other._session.data_to_send() == []
        assert counts.frames_sent == before


async def test_pause_reading_holds_messages_back(pki: Pki) -> None:
    settings = Settings(ack_timeout=0.05, backoff=1, max_retries=100)

    async with serving(World(pki)) as world:
        connection, other = await world.pair(settings=settings)
        other.pause_reading()
        connection.send(0, b"x")
        assert connection._session is not None
        counts = connection._session.counts
        await until(lambda: counts.retransmissions >= 3)
        assert world.events.of(MessageReceived) == []
        other.resume_reading()
        await until(lambda: world.client_events.of(MessageDelivered))
        assert len(world.events.of(MessageReceived)) == 1


async def test_failing_application_ends_its_session_alone(pki: Pki) -> None:
    async with serving(World(pki)) as world:

        def fail(connection: Connection, event: Event) -> None:
            if isinstance(event, MessageReceived):
                raise RuntimeError("a fault of the application")

        good, bad = await world.connect(1), await world.connect(2, handler=fail)
        await until(lambda: len(world.events.online) == 2)
        world.events.online[1].send(0, b"x")
        assert not (await bad.wait_closed()).is_clean
        await until(lambda: world.listener.counters.ended == {"INTERNAL": 1})
        assert sum("the application failed; its session ends" in line for line in world.lines) == 1
        assert good.state == "ONLINE"


async def test_nothing_secret_is_kept_or_shown(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        psk = bytes(range(100, 132))
        world.change(peering=Peering(SERVER, CLIENT, psk=psk))
        connection = await world.connect(peering=Peering(CLIENT, SERVER, psk=psk))
        connection.send(0, b"a secret payload")
        await until(lambda: world.events.of(MessageReceived))
        assert connection.secured.tx_key == connection.secured.rx_key == b""
        shown = f"{connection!r} {connection.secured!r} {vars(connection)!r} {world.events.events!r}"
        connection.leave()
        await connection.wait_closed()
        shown += " ".join(world.lines)
        for secret in (psk, b"secret payload", pki.client.key.read_bytes()):
            assert repr(secret)[2:-1] not in shown
            assert secret.hex() not in shown
        assert connection.instance_id.hex() in shown


async def test_one_line_for_each_session_and_text_of_the_peer_is_cut(pki: Pki) -> None:
    async with serving(World(pki)) as world, world.raw() as (raw, _):
        detail = "line\nline\x1b[31m" + "x" * 240
        error = write_error(ErrorCode.INTERNAL, is_fatal=True).replace(
            b"}", b',"detail":%s}' % json.dumps(detail).encode()
        )
        raw.session._link.send(Kind.ERROR, 0, 0xFFFFFFFF, error)
        raw.flush()
        await until(lambda: world.lines)
        (line,) = world.lines
        assert line.isprintable()
        assert "end=INTERNAL" in line
        assert ' peer_error="INTERNAL" detail="line\\nline\\u001b[31mxxx' in line
        assert "x" * 120 not in line
        assert f"channel={CHANNEL:016x} session=5 peer={CLIENT:032x} instance=" in line


async def test_session_is_left_when_it_is_old(pki: Pki) -> None:
    limits = ListenerLimits(connection=ConnectionLimits(max_session_age=0.1))

    async with serving(World(pki, limits=limits)) as world:
        connection = await world.connect()
        assert (await connection.wait_closed()).is_clean
        assert world.client_events.of(PeerLeft) == [PeerLeft("session age")]


async def test_close_drains_sessions(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        _, other = await world.pair(1)
        deaf = await (await RawPeer.join(world, 2)).online()
        await until(lambda: len(world.events.online) == 2)
        port = world.port
        for at in range(MESSAGES):
            other.send(0, b"%d" % at)
        closing = asyncio.ensure_future(world.listener.close(drain_s=1.0))
        await until(lambda: world.client_events.of(SessionClosed))
        assert world.client_events.of(SessionClosed)[0].is_clean
        assert len(world.client_events.of(MessageReceived)) == MESSAGES
        with pytest.raises(HandshakeFailed, match="TRANSPORT_LOST"):
            await world.connect(3, port=port)
        await closing
        assert world.listener.counters.ended == {"CLEAN": 1, "DRAINED": 1}
        deaf.close()


async def test_dead_peers_are_probed(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        connection, other = await world.pair()
        for each in (connection, other):
            assert each._transport is not None
            plain = each._transport.get_extra_info("socket")
            assert plain.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert plain.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_idle_session_has_a_small_read_buffer(pki: Pki) -> None:
    """What asyncio allocates without a parameter is set by hand, so a new version of Python may undo it."""

    async with serving(World(pki)) as world:
        connection, other = await world.pair()
        for each in (connection, other):
            assert len(each._transport._ssl_protocol.get_buffer(-1)) == ConnectionLimits().read_buffer_bytes
        connection.send(0, bytes(200_000))
        await until(lambda: world.events.of(MessageReceived))
        assert len(world.events.of(MessageReceived)[0].payload) == 200_000


# --- a pause of ours is not charged to the peer: the time of a half-read frame stands still (channel_rules 5.2) ---


async def half_read(raw: RawPeer, connection: Connection) -> bytes:
    """Send half a frame, wait until the connection has read it, and return the other half."""
    raw.session.send(0, bytes(100_000), asyncio.get_running_loop().time())
    frame = b"".join(raw.session.data_to_send())
    raw.writer.write(frame[:1_000])
    assert connection._session is not None
    timer = connection._session._link.frame_timer
    await until(lambda: timer.is_running or connection.state == "OFFLINE")
    return frame[1_000:]


@pytest.mark.parametrize("why", ["application", "output"])
async def test_half_a_frame_survives_our_pause(pki: Pki, why: str) -> None:
    async with serving(World(pki)) as world, world.raw() as (raw, connection):
        rest = await half_read(raw, connection)
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


async def test_half_a_frame_ends_the_session_after_our_pause(pki: Pki) -> None:
    """The peer sends nothing more, so only the timer that is set at the end of the pause can notice."""

    settings = Settings(frame_timeout=0.3)

    async with serving(World(pki, settings=settings)) as world, world.raw() as (raw, connection):
        loop = asyncio.get_running_loop()
        await half_read(raw, connection)
        connection.pause_reading()
        paused_at = loop.time()
        await until(lambda: loop.time() > paused_at + 0.5)
        connection.resume_reading()
        await until(lambda: world.listener.counters.ended == {"FRAME_TIMEOUT": 1})
