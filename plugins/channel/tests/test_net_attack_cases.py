# SPDX-License-Identifier: Apache-2.0
"""Cases TLS21 to TLS32 of the samples: the end of an identity, hostile connections, and what a connector refuses."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from channel_tls import (
    CLIENT,
    SERVER,
    Pki,
    RawPeer,
    SilentServer,
    World,
    client_context,
    client_hello,
    serving,
    until,
)
from validator_channel.events import SessionClosed
from validator_channel.hello import Peering
from validator_channel.limits import ConnectionLimits, ListenerLimits, Settings
from validator_channel.net.peers import Peer

QUICK_POLL = ListenerLimits(poll_interval=0.05)
SHORT = Settings(handshake_timeout=0.5)


async def test_tls21_revoked_peer_is_disconnected(pki: Pki) -> None:
    async with serving(World(pki, limits=QUICK_POLL)) as world:
        for code, revoke in {
            "REVOKED": lambda: pki.revoke(pki.client),
            "NOT_AUTHORIZED": lambda: world.change(peering=Peering(SERVER, CLIENT, is_allowed=False)),
        }.items():
            connection, _ = await world.pair()
            revoke()
            assert not (await connection.wait_closed()).is_clean
            await until(lambda code=code: world.listener.counters.ended[code] == 1)
            assert world.events.of(SessionClosed)[-1].is_clean is False
            pki.revoke()
        world.peers.clear()
        assert (await world.refusal()).code == "TRANSPORT_LOST"


async def test_tls22_session_ends_before_the_certificate(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
        good = pki.leaf("good", [CLIENT], not_after=ends)
        pki.client = pki.leaf("deaf", [CLIENT], not_after=ends)
        connection = await world.connect(1, good)
        deaf = await (await RawPeer.join(world, 2)).online()
        assert (await connection.wait_closed()).is_clean
        await until(lambda: len(world.events.of(SessionClosed)) == 2)
        assert datetime.now(UTC) > ends - timedelta(seconds=1)
        assert world.listener.counters.ended == {"CLEAN": 1, "EXPIRED": 1}
        deaf.close()


async def test_tls23_other_protocols_are_closed(pki: Pki) -> None:
    inputs = [b"hello\r\n" * 3, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", os.urandom(65536)]

    async with serving(World(pki)) as world:
        for data in inputs:
            reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
            writer.write(data)
            answer = b""
            with suppress(ConnectionError):
                answer = await reader.read()
            assert b"SERVER_HELLO" not in answer
            writer.transport.abort()
        await until(lambda: sum(world.failed.values()) == len(inputs))
        assert world.failed == {"TLS": 3}
        assert len(world.lines) == 3
        assert all(line.startswith("refused a connection: address=127.0.0.1:") for line in world.lines)
        assert all(line.isprintable() and line.endswith(" (TLS)") for line in world.lines)


async def test_tls24_silence_after_tcp_is_closed(pki: Pki) -> None:
    async with serving(World(pki, settings=SHORT)) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        assert await reader.read() == b""
        await until(lambda: world.failed == {"HANDSHAKE_TIMEOUT": 1})
        writer.close()


async def test_tls25_silence_after_tls_is_closed_at_the_same_time(pki: Pki) -> None:
    """The time runs from accepting: TLS that takes half of it leaves the other half for the hello exchange."""

    async with serving(World(pki, settings=Settings(handshake_timeout=1.0))) as world:
        loop = asyncio.get_running_loop()
        accepted = loop.time()
        plain = socket.create_connection(("127.0.0.1", world.listener.port))
        plain.setblocking(False)  # noqa: FBT003
        await asyncio.sleep(0.6)
        reader, writer = await asyncio.open_connection(
            sock=plain, ssl=client_context(pki, pki.client), server_hostname="127.0.0.1"
        )
        secured = loop.time()
        assert await reader.read() == b""
        assert secured - accepted >= 0.6
        await until(lambda: world.failed == {"HANDSHAKE_TIMEOUT": 1})
        (timeout,) = [world.settings.handshake_timeout]
        assert loop.time() - secured < timeout or loop.time() - accepted > 2 * timeout  # else the machine stalled
        writer.transport.abort()


async def test_tls26_slow_hello_is_closed(pki: Pki) -> None:
    async with serving(World(pki, settings=SHORT)) as world:
        context = client_context(pki, pki.client)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port, ssl=context)
        end = asyncio.ensure_future(reader.read())
        hello, sent = client_hello(), 0
        while not end.done():
            writer.write(hello[sent : sent + 1])
            sent += 1
            await asyncio.wait([end], timeout=0.05)
        assert end.exception() is not None or end.result() == b""
        assert sent < len(hello)
        await until(lambda: world.failed == {"HANDSHAKE_TIMEOUT": 1})
        writer.transport.abort()


async def test_tls27_hello_of_1025_bytes_is_closed_at_its_length(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        assert await world.attempt(client_context(pki, pki.client), (1025).to_bytes(4, "big")) == b""
        await until(lambda: world.failed == {"BAD_HELLO": 1})


@pytest.mark.parametrize(("share", "held"), [(4, 4), (16, 16)])
async def test_tls28_one_address_cannot_keep_another_out(pki: Pki, share: int, held: int) -> None:
    """The handshake timeout is longer than the test: nothing becomes free by waiting."""
    limits = ListenerLimits(half_open_max=16, half_open_per_address=share)

    async with serving(World(pki, settings=Settings(handshake_timeout=600.0), limits=limits)) as world:
        silent = [await asyncio.open_connection("127.0.0.1", world.listener.port) for _ in range(16)]
        await until(lambda: world.listener.half_open == held)
        await until(lambda: world.listener.counters.turned_away.total() == 16 - held)
        connection = await world.connect(local_address="127.0.0.2")
        assert connection.state == "ONLINE"
        assert world.listener.counters.turned_away["full"] == 0
        for _, writer in silent:
            writer.transport.abort()


async def test_place_of_a_client_that_is_silent_after_tls_is_given_away(pki: Pki) -> None:
    limits = ListenerLimits(half_open_max=2, half_open_per_address=2)

    async with serving(World(pki, settings=Settings(handshake_timeout=600.0), limits=limits)) as world:
        context = client_context(pki, pki.client)
        silent = [await asyncio.open_connection("127.0.0.1", world.listener.port, ssl=context) for _ in range(2)]
        await world.connect(local_address="127.0.0.2")
        assert await silent[0][0].read() == b""
        assert world.failed == {"DISPLACED": 1}
        await until(lambda: world.listener.half_open == 1)
        silent[1][1].transport.abort()


async def test_tls29_connector_refuses_another_server_before_it_sends(pki: Pki) -> None:
    server = SilentServer(pki.leaf("other", [SERVER + 1]))
    assert (await World(pki).refusal(port=server.port)).code == "NOT_AUTHORIZED"
    assert await server.received() == b""


async def test_tls30_connector_checks_the_host_name(pki: Pki) -> None:
    pki.server = pki.leaf("named", [SERVER], dns=["gateway.example"], addresses=[])

    async with serving(World(pki)) as world:
        for name in (None, "other.example"):
            failure = await world.refusal(server_hostname=name)
            assert failure.code == "TLS"
            assert "match" in failure.reason
        await world.connect(server_hostname="gateway.example")


async def test_tls31_refusal_after_our_tls_is_a_failed_handshake(pki: Pki) -> None:
    revoked = pki.leaf("revoked", [CLIENT])
    pki.revoke(revoked)

    async with serving(World(pki)) as world:
        failure = await world.refusal(files=revoked)
        assert failure.code in {"TRANSPORT_LOST", "TLS"}
        await until(lambda: world.failed == {"TLS": 1})
        assert world.listener.counters.handshakes_ok == 0
    server = SilentServer(pki.server)
    failure = await world.refusal(port=server.port)
    assert failure.code in {"TRANSPORT_LOST", "TLS"}
    assert b"CLIENT_HELLO" in await server.received()


async def test_tls32_peer_that_meets_itself_is_refused(pki: Pki) -> None:
    """With the listener's own certificate, as the listener's own peer, and a listener that answers with the connector's peer."""

    async with serving(World(pki)) as world:
        mirrored = client_hello(Peering(SERVER, CLIENT))
        assert await world.attempt(client_context(pki, pki.server), mirrored) == b""
        both = pki.leaf("both", [CLIENT, SERVER])
        assert await world.attempt(client_context(pki, both), mirrored) == b""
        await until(lambda: world.failed == {"NOT_AUTHORIZED": 2})
        failure = await world.refusal(files=pki.server)
        assert failure.code == "NOT_AUTHORIZED"
        assert failure.reason == "the peer has this side's own key"
    with pytest.raises(ValueError, match="two peers"):
        Peer(peering=Peering(CLIENT, CLIENT))


async def test_nothing_of_a_hostile_connection_remains(pki: Pki) -> None:
    """Hundreds of failed handshakes of all kinds leave no descriptor, no entry and no growing memory behind."""
    import gc
    import tracemalloc

    limits = ListenerLimits(connects_per_s=1e6, connects_burst=10**6, connection=ConnectionLimits())
    good, bad = client_context(pki, pki.client), client_context(pki, pki.self_signed("alone"))

    async def fail(world: World) -> None:
        assert await world.attempt(bad) == b""
        assert await world.attempt(good, (1025).to_bytes(4, "big")) == b""
        assert await world.attempt(good, client_hello() + b"\0\0\0\0") == b""
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await asyncio.wait([asyncio.ensure_future(reader.read())])
        writer.transport.abort()

    def held() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), tracemalloc.get_traced_memory()[0]  # noqa: PTH208

    async def attack(world: World, rounds: int) -> None:
        for _ in range(rounds):
            await fail(world)
        await until(lambda: world.listener.half_open == 0)
        await asyncio.sleep(0)

    async with serving(World(pki, limits=limits)) as world:
        tracemalloc.start()
        try:
            await attack(world, 15)
            descriptors, memory = held()
            await attack(world, 30)

            def nothing_remains() -> bool:
                later_descriptors, later_memory = held()
                return later_descriptors <= descriptors + 4 and later_memory - memory < 30 * 4 * 200

            await until(
                nothing_remains
            )  # asyncio may still be closing sockets; less than 200 bytes for each connection
        finally:
            tracemalloc.stop()
        assert sum(world.failed.values()) == 180
        assert set(world.failed) == {"TLS", "BAD_HELLO"}
