# SPDX-License-Identifier: Apache-2.0
"""Cases TLS01 to TLS20 of the samples: which certificates and TLS parameters a listener takes."""

from __future__ import annotations

import asyncio
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from channel_tls import CLIENT, SERVER, Pki, World, client_context, client_hello, pin, run, serving, until
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


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "ca")


async def assert_refused_in_tls(world: World, files: TlsFiles | None, *contexts: ssl.SSLContext) -> None:
    """The listener sends no byte inside TLS, and a connector reports a failed handshake and no session."""
    for count, context in enumerate([client_context(world.pki, files), *contexts], start=1):
        assert await world.attempt(context) == b""
        await until(lambda count=count: world.failed == {"TLS": count})
    assert world.listener.counters.handshakes_ok == 0
    assert world.events.events == []


async def assert_refused_after_tls(
    world: World, code: str, context: ssl.SSLContext, hello: bytes | None = None
) -> None:
    """TLS ends well, then the listener closes without a byte, for one reason."""
    before = world.failed.get(code, 0)
    assert await world.attempt(context, hello) == b""
    await until(lambda: world.failed == {**world.failed, code: before + 1})
    assert world.listener.counters.handshakes_ok == 0


def test_tls01_valid_certificate_reaches_online(pki: Pki) -> None:
    async def main() -> None:
        async with serving(World(pki)) as world:
            files = pki.leaf("only-client", [CLIENT], usages=[Usage.CLIENT], dns=[], addresses=[])
            connection = await world.connect(files=files)
            await until(lambda: world.events.online)
            assert connection.state == world.events.online[0].state == "ONLINE"
            assert connection.instance_id == world.events.online[0].instance_id
            await until(lambda: world.listener.half_open == 0)
            assert world.failed == {}

    run(main())


def test_tls02_client_without_certificate_is_refused(pki: Pki) -> None:
    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_in_tls(world, None)

    run(main())


def test_tls03_self_signed_certificate_is_refused(pki: Pki) -> None:
    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_in_tls(world, pki.self_signed("alone"))

    run(main())


def test_tls04_other_ca_with_the_same_name_is_refused(pki: Pki) -> None:
    other = Pki(pki.folder / "other")
    assert other.authority.certificate.subject == pki.authority.certificate.subject

    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_in_tls(world, other.client)

    run(main())


def test_tls05_expired_certificate_is_refused(pki: Pki) -> None:
    files = pki.leaf("expired", [CLIENT], not_after=pki.now - timedelta(minutes=1))

    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_in_tls(world, files)

    run(main())


def test_tls06_certificate_of_tomorrow_is_refused(pki: Pki) -> None:
    tomorrow = pki.now + timedelta(days=1)
    files = pki.leaf("early", [CLIENT], not_before=tomorrow, not_after=tomorrow + timedelta(days=1))

    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_in_tls(world, files)

    run(main())


def test_tls07_revoked_certificate_is_refused(pki: Pki) -> None:
    pki.revoke(pki.client)

    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_in_tls(world, pki.client)
            await world.connect(files=pki.leaf("renewed", [CLIENT]))

    run(main())


def test_tls08_missing_stale_or_broken_crl_refuses_everybody(pki: Pki) -> None:
    def stale() -> None:
        pki.revoke(lifetime=timedelta(seconds=-60))

    async def main() -> None:
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

    run(main())


def test_tls09_server_certificate_used_by_a_client_is_refused(pki: Pki) -> None:
    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_in_tls(world, pki.leaf("server-only", [CLIENT], usages=[Usage.SERVER]))

    run(main())


def test_tls10_p256_key_is_refused(pki: Pki) -> None:
    names = [x509.UniformResourceIdentifier(peer_uri(CLIENT))]
    files = pki.odd_leaf("p256", ec.generate_private_key(ec.SECP256R1()), names)

    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_after_tls(world, "KEY_TYPE", client_context(pki, files))

    run(main())


def test_tls11_rsa_key_is_refused(pki: Pki) -> None:
    names = [x509.UniformResourceIdentifier(peer_uri(CLIENT))]
    files = pki.odd_leaf("rsa", rsa.generate_private_key(65537, 2048), names)

    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_after_tls(world, "KEY_TYPE", client_context(pki, files))

    run(main())


def test_tls12_common_name_is_not_consulted(pki: Pki) -> None:
    async def main() -> None:
        async with serving(World(pki)) as world:
            for name in (format_id(CLIENT), peer_uri(CLIENT)):
                files = pki.odd_leaf(name, Ed25519PrivateKey.generate(), [])
                await assert_refused_after_tls(world, "NOT_AUTHORIZED", client_context(pki, files))

    run(main())


def test_tls13_certificate_of_another_channel_is_refused(pki: Pki) -> None:
    files = pki.leaf("elsewhere", [CLIENT + (1 << 64)])

    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_after_tls(world, "NOT_AUTHORIZED", client_context(pki, files))

    run(main())


def test_tls14_second_of_two_uris_is_used(pki: Pki) -> None:
    files = pki.leaf("two", [CLIENT + (1 << 64), CLIENT])

    async def main() -> None:
        async with serving(World(pki)) as world:
            connection = await world.connect(files=files)
            assert connection.state == "ONLINE"

    run(main())


def test_tls15_uri_in_another_form_never_matches(pki: Pki) -> None:
    text = format_id(CLIENT)
    uris = [
        f"channel:peer:{text.upper()}",
        f"channel:peer:{text[:-1]}",
        f"channel:peer:0{text}",
        f"channel:peer:%{ord(text[0]):02x}{text[1:]}",
        f"channel:peer:{text}.",
        f"channel:peer:{text}\0",
        f"channel:peer:{text}\n",
        f"channel:peer: {text}",
        f"Channel:peer:{text}",
        f"channel:peer:{text}?",
    ]

    async def main() -> None:
        async with serving(World(pki)) as world:
            for at, uri in enumerate(uris):
                names = [x509.UniformResourceIdentifier(uri)]
                files = pki.odd_leaf(f"odd{at}", Ed25519PrivateKey.generate(), names)
                await assert_refused_after_tls(world, "NOT_AUTHORIZED", client_context(pki, files))
            assert world.failed == {"NOT_AUTHORIZED": len(uris)}

    run(main())


def test_tls16_key_that_is_not_pinned_is_refused(pki: Pki) -> None:
    async def main() -> None:
        async with serving(World(pki, pins=frozenset({bytes(32)}))) as world:
            await assert_refused_after_tls(world, "NOT_AUTHORIZED", client_context(pki, pki.client))
            world.change(pins=frozenset({pin(pki.client)}), needs_uri=False)
            await world.connect(files=pki.client)

    run(main())


def test_tls17_pins_rotate(pki: Pki) -> None:
    new = pki.leaf("new", [CLIENT])

    async def main() -> None:
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

    run(main())


def test_tls18_tls12_is_refused(pki: Pki) -> None:
    context = client_context(pki, pki.client)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def main() -> None:
        async with serving(World(pki)) as world:
            assert await world.attempt(context) == b""
            await until(lambda: world.failed == {"TLS": 1})

    run(main())


@pytest.mark.parametrize("protocols", [(), ("h2",)])
def test_tls19_other_alpn_is_refused(pki: Pki, protocols: tuple[str, ...]) -> None:
    async def main() -> None:
        async with serving(World(pki)) as world:
            await assert_refused_after_tls(world, "ALPN", client_context(pki, pki.client, protocols))

    run(main())


def test_tls20_no_session_is_resumed(pki: Pki) -> None:
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

    async def main() -> None:
        async with serving(World(pki)) as world:
            first = await asyncio.to_thread(handshake, world.listener.port, None)
            assert first is not None
            assert not first.has_ticket
            await asyncio.to_thread(handshake, world.listener.port, first)
            await until(lambda: world.failed == {"TRANSPORT_LOST": 2})

    run(main())


def test_registry_of_two_channels_proves_only_the_named_peer(pki: Pki) -> None:
    """A certificate of one channel's peer does not open the other channel, whatever its hello claims."""
    other = Peering(SERVER + (1 << 64), CLIENT + (1 << 64))

    async def main() -> None:
        async with serving(World(pki)) as world:
            world.peers[CHANNEL + 1] = Peer(peering=other)
            hello = client_hello(Peering(other.remote_peer, other.local_peer))
            await assert_refused_after_tls(world, "NOT_AUTHORIZED", client_context(pki, pki.client), hello)

    run(main())
