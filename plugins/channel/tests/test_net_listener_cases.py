# SPDX-License-Identifier: Apache-2.0
"""Cases TLS01 to TLS20 of the samples: which certificates and TLS parameters a listener takes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from channel_tls import CLIENT, SERVER, Pki, World, client_context, client_hello, pin, serving, until
from channel_world import CHANNEL
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from validator_channel.hello import Peering
from validator_channel.net.authority import Usage
from validator_channel.net.certificates import peer_uri
from validator_channel.net.peers import Peer
from validator_channel.net.tls import TlsFiles
from validator_channel.wire import format_id


async def assert_refused_in_tls(world: World, files: TlsFiles | None) -> None:
    """The listener sends no byte inside TLS, and reports a failed handshake and no session."""
    assert await world.attempt(client_context(world.pki, files)) == b""
    await until(lambda: world.failed == {"TLS": 1})
    assert world.listener.counters.handshakes_ok == 0
    assert world.events.events == []


async def assert_refused_after_tls(
    world: World, code: str, context: ssl.SSLContext, hello: bytes | None = None
) -> None:
    """TLS ends well, then the listener closes without a byte, for one reason."""
    assert await world.attempt(context, hello) == b""
    await until(lambda: world.failed == {code: 1})
    assert world.listener.counters.handshakes_ok == 0


def of_tomorrow(pki: Pki) -> TlsFiles:
    tomorrow = pki.now + timedelta(days=1)
    return pki.leaf("early", [CLIENT], not_before=tomorrow, not_after=tomorrow + timedelta(days=1))


REFUSED_IN_TLS: dict[str, Callable[[Pki], TlsFiles | None]] = {
    "tls02 none": lambda _: None,
    "tls03 self-signed": lambda pki: pki.self_signed("alone"),
    "tls04 of another CA with the same name": lambda pki: Pki(pki.folder / "other").client,
    "tls05 expired": lambda pki: pki.leaf("expired", [CLIENT], not_after=pki.now - timedelta(minutes=1)),
    "tls06 of tomorrow": of_tomorrow,
    "tls09 of a server": lambda pki: pki.leaf("server-only", [CLIENT], usages=[Usage.SERVER]),
}


@pytest.mark.parametrize("case", REFUSED_IN_TLS)
async def test_certificate_that_tls_refuses(pki: Pki, case: str) -> None:
    async with serving(World(pki)) as world:
        await assert_refused_in_tls(world, REFUSED_IN_TLS[case](pki))


def odd(key: Callable[[], Any] = Ed25519PrivateKey.generate, *, uri: str | None = None, name: str = "odd") -> Any:
    """Return what makes a certificate with any key, any URI (None: no name at all) and any common name."""
    names = [] if uri is None else [x509.UniformResourceIdentifier(uri)]
    return lambda pki: pki.odd_leaf(name, key(), names)


TEXT = format_id(CLIENT)
REFUSED_AFTER_TLS: dict[str, tuple[str, Callable[[Pki], TlsFiles]]] = {
    "tls10 key on P-256": ("KEY_TYPE", odd(lambda: ec.generate_private_key(ec.SECP256R1()), uri=peer_uri(CLIENT))),
    "tls11 RSA key": ("KEY_TYPE", odd(lambda: rsa.generate_private_key(65537, 2048), uri=peer_uri(CLIENT))),
    **{
        f"tls12 common name {name}": ("NOT_AUTHORIZED", odd(name=name))
        for name in (format_id(CLIENT), peer_uri(CLIENT))
    },
    "tls13 of another channel": ("NOT_AUTHORIZED", lambda pki: pki.leaf("elsewhere", [CLIENT + (1 << 64)])),
    **{
        f"tls15 URI {uri!r}": ("NOT_AUTHORIZED", odd(uri=uri))
        for uri in (
            f"channel:peer:{TEXT.upper()}",
            f"channel:peer:{TEXT[:-1]}",
            f"channel:peer:0{TEXT}",
            f"channel:peer:%{ord(TEXT[0]):02x}{TEXT[1:]}",
            f"channel:peer:{TEXT}.",
            f"channel:peer:{TEXT}\0",
            f"channel:peer:{TEXT}\n",
            f"channel:peer: {TEXT}",
            f"Channel:peer:{TEXT}",
            f"channel:peer:{TEXT}?",
        )
    },
}


@pytest.mark.parametrize("case", REFUSED_AFTER_TLS)
async def test_certificate_that_proves_no_peer(pki: Pki, case: str) -> None:
    code, files = REFUSED_AFTER_TLS[case]
    async with serving(World(pki)) as world:
        await assert_refused_after_tls(world, code, client_context(pki, files(pki)))


@pytest.mark.parametrize("protocols", [(), ("h2",)])
async def test_tls19_other_alpn_is_refused(pki: Pki, protocols: tuple[str, ...]) -> None:
    async with serving(World(pki)) as world:
        await assert_refused_after_tls(world, "ALPN", client_context(pki, pki.client, protocols))


async def test_tls01_valid_certificate_reaches_online(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        files = pki.leaf("only-client", [CLIENT], usages=[Usage.CLIENT], dns=[], addresses=[])
        connection, other = await world.pair(files=files)
        assert connection.state == other.state == "ONLINE"
        assert connection.instance_id == other.instance_id
        await until(lambda: world.listener.half_open == 0)
        assert world.failed == {}


async def test_tls07_revoked_certificate_is_refused(pki: Pki) -> None:
    pki.revoke(pki.client)

    async with serving(World(pki)) as world:
        await assert_refused_in_tls(world, pki.client)
        await world.connect(files=pki.leaf("renewed", [CLIENT]))


async def test_tls08_missing_stale_or_broken_crl_refuses_everybody(pki: Pki) -> None:
    def stale() -> None:
        pki.revoke(lifetime=timedelta(seconds=-60))

    async with serving(World(pki)) as world:
        for alarms, spoil in enumerate((pki.crl.unlink, stale, lambda: pki.crl.write_bytes(b"no CRL")), start=1):
            spoil()
            failure = await world.refusal(files=TlsFiles(pki.client.certificate, pki.client.key, pki.ca))
            assert failure.code in {"TRANSPORT_LOST", "TLS"}
            assert world.listener.counters.turned_away["CRL"] == 1
            assert world.listener.counters.alarms == alarms
            assert "every connection is refused: CRL: " in world.lines[-2]
            assert "nobody can connect while the CRL is stale, missing or broken" in world.lines[-1]
            world.listener.counters.turned_away.clear()
            pki.revoke()
            connection = await world.connect()
            connection.leave()
            await connection.wait_closed()


async def test_tls14_second_of_two_uris_is_used(pki: Pki) -> None:
    files = pki.leaf("two", [CLIENT + (1 << 64), CLIENT])

    async with serving(World(pki)) as world:
        connection = await world.connect(files=files)
        assert connection.state == "ONLINE"


async def test_tls16_key_that_is_not_pinned_is_refused(pki: Pki) -> None:
    async with serving(World(pki, pins=frozenset({bytes(32)}))) as world:
        await assert_refused_after_tls(world, "NOT_AUTHORIZED", client_context(pki, pki.client))
        world.change(pins=frozenset({pin(pki.client)}), needs_uri=False)
        await world.connect(files=pki.client)


async def test_tls17_pins_rotate(pki: Pki) -> None:
    new = pki.leaf("new", [CLIENT])

    async with serving(World(pki, pins=frozenset({pin(pki.client), pin(new)}))) as world:
        old_session, new_session = await world.connect(1, pki.client), await world.connect(2, new)
        await until(lambda: len(world.events.online) == 2)
        world.change(pins=frozenset({pin(new)}))
        await world.listener.recheck()
        closed = await old_session.wait_closed()
        assert not closed.is_clean
        assert world.listener.counters.ended == {"NOT_AUTHORIZED": 1}
        assert new_session.state == "ONLINE"
        assert (await world.refusal(3, pki.client)).code == "TRANSPORT_LOST"
        await world.connect(4, new)


async def test_tls18_tls12_is_refused(pki: Pki) -> None:
    context = client_context(pki, pki.client)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async with serving(World(pki)) as world:
        assert await world.attempt(context) == b""
        await until(lambda: world.failed == {"TLS": 1})


async def test_tls20_no_session_is_resumed(pki: Pki) -> None:
    context = client_context(pki, pki.client)

    def handshake(port: int, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        import socket

        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1", session=session) as secure,
        ):
            secure.sendall(client_hello())
            assert b"SERVER_HELLO" in secure.recv(4096)  # a ticket would have come before it
            assert not secure.session_reused
            return secure.session

    async with serving(World(pki)) as world:
        first = await asyncio.to_thread(handshake, world.listener.port, None)
        assert first is not None
        assert not first.has_ticket
        await asyncio.to_thread(handshake, world.listener.port, first)
        await until(lambda: world.failed == {"TRANSPORT_LOST": 2})


async def test_registry_of_two_channels_proves_only_the_named_peer(pki: Pki) -> None:
    """A certificate of one channel's peer does not open the other channel, whatever its hello claims."""
    other = Peering(SERVER + (1 << 64), CLIENT + (1 << 64))

    async with serving(World(pki)) as world:
        world.peers[CHANNEL + 1] = Peer(peering=other)
        hello = client_hello(Peering(other.remote_peer, other.local_peer))
        await assert_refused_after_tls(world, "NOT_AUTHORIZED", client_context(pki, pki.client), hello)
