# SPDX-License-Identifier: Apache-2.0
"""Refused connections: a line in the listener's log for each, within limits, and what the connector can say about it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from channel_tls import CLIENT, SERVER, Pki, RawPeer, World, client_context, recording_log, serving, until
from channel_world import CHANNEL
from validator_channel import limits
from validator_channel.client import ChannelClient, ClientConfig, ClientLimits, NotConnected, Status
from validator_channel.events import SessionClosed
from validator_channel.hello import Peering
from validator_channel.limits import ListenerLimits
from validator_channel.net.certificates import ALPN
from validator_channel.net.listener import RefusalLog
from validator_channel.net.outcomes import CLOSED_DURING_TLS, SILENT
from validator_channel.net.peers import HandshakeFailed, failure_of
from validator_channel.net.tls import TlsError, TlsFiles
from validator_channel.wire import format_channel, format_id

OTHER = CLIENT ^ 1


def refused(world: World) -> list[str]:
    return [line for line in world.lines if line.startswith("refused ")]


# --- the listener's log ---


def expired(world: World) -> dict[str, Any]:
    now = world.pki.now
    return {"files": world.pki.leaf("old", [CLIENT], not_before=now - timedelta(days=2), not_after=now)}


def revoked(world: World) -> dict[str, Any]:
    world.pki.revoke(world.pki.client)
    return {}


def disabled(world: World) -> dict[str, Any]:
    world.change(peering=Peering(SERVER, CLIENT, is_allowed=False))
    return {}


def wrong_key(world: World) -> dict[str, Any]:
    world.change(pins=frozenset({bytes(32)}))
    return {}


def wrong_psk(_: World) -> dict[str, Any]:
    return {"peering": Peering(CLIENT, SERVER, b"k" * 32)}


def another_peers_id(world: World) -> dict[str, Any]:
    return {"files": world.pki.leaf("both", [CLIENT, OTHER]), "peering": Peering(OTHER, SERVER)}


def not_certified(world: World) -> dict[str, Any]:
    return {"files": world.pki.leaf("other", [OTHER])}


NAMES = f"certificate={format_id(CLIENT)}"
CLAIMS = f"claims={format_id(CLIENT)}"
CAUSES: list[tuple[Callable[[World], dict[str, Any]], str, str]] = [
    (expired, ": certificate refused: certificate has expired (TLS)", SILENT),
    (revoked, ": certificate refused: certificate revoked (TLS)", SILENT),
    (disabled, f" {NAMES} {CLAIMS}: the peer is disabled (NOT_AUTHORIZED)", SILENT),
    (wrong_key, f" {NAMES} {CLAIMS}: the certificate does not name this peer, or its key is none", SILENT),
    (not_certified, f" certificate={format_id(OTHER)} {CLAIMS}: the certificate does not name this peer", SILENT),
    (another_peers_id, f" claims={format_id(OTHER)}: its channel is another peer's, {format_id(CLIENT)} (NOT_", SILENT),
    (wrong_psk, f" {NAMES}: a frame cannot be decrypted: the two ends may have different", "different pre-shared keys"),
]


@pytest.mark.parametrize(("cause", "line", "reason"), CAUSES, ids=[each[0].__name__ for each in CAUSES])
async def test_each_refusal_is_a_line_with_address_peer_and_reason(
    pki: Pki, monkeypatch: pytest.MonkeyPatch, cause: Callable[[World], dict[str, Any]], line: str, reason: str
) -> None:
    monkeypatch.setattr("validator_channel.net.tls._check_pair", lambda *_: None)  # a peer need not check its own files

    async with serving(World(pki)) as world:
        failure = await world.refusal(**cause(world))
        await until(lambda: refused(world))
        (found,) = refused(world)
        assert found.startswith("refused a connection: address=127.0.0.1:")
        assert line in found
        assert reason in failure.reason


async def test_stranger_without_tls_and_channel_without_a_peer_are_lines_too(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        with socket.create_connection(("127.0.0.1", world.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await until(lambda: len(refused(world)) == 1)
        world.peers = {}
        await world.refusal()
        await until(lambda: len(refused(world)) == 2)
    http, unknown = refused(world)
    assert http.endswith(": the other end speaks HTTP and not TLS (TLS)")
    assert f"{CLAIMS}: no peer has the channel {format_channel(CHANNEL)} (NOT_AUTHORIZED)" in unknown


async def test_connection_that_is_closed_before_tls_is_a_line(pki: Pki) -> None:
    async with serving(World(pki, limits=ListenerLimits(connects_burst=1, connects_per_s=0.001))) as world:
        await world.connect()
        await world.refusal(6)
        await until(lambda: refused(world))
        assert refused(world)[0].endswith(": its address connects too often (connects_per_s)")
        pki.crl.unlink()
        await world.refusal(7, replace(pki.client, crl=None), local_address="127.0.0.2")
        await until(lambda: len(refused(world)) == 2)
        assert refused(world)[1].endswith(": nobody can connect while the CRL is stale, missing or broken")


async def test_end_of_the_listener_is_no_refusal(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        await world.connect()
    assert refused(world) == []


# --- the limits of the log ---


class Lines(RefusalLog):
    def __init__(self) -> None:
        log, self.lines = recording_log()
        super().__init__(log, 0.0)

    def take(self, address: str, now: float) -> None:
        self.failed(address, f"{address}:1", None, HandshakeFailed("TLS", "why"), now)


def test_one_address_has_few_lines_and_the_next_one_counts_the_others() -> None:
    log = Lines()
    for _ in range(limits.REFUSALS_OF_ADDRESS_BURST + 100):
        log.take("10.0.0.1", 0.0)
    assert log.lines == ["refused a connection: address=10.0.0.1:1: why (TLS)"] * limits.REFUSALS_OF_ADDRESS_BURST
    log.take("10.0.0.2", 1.0)
    assert log.lines[-1] == "refused a connection: address=10.0.0.2:1: why (TLS); 100 more before it have no line"
    log.take("10.0.0.2", 1.0)
    assert log.lines[-1].endswith("why (TLS)")
    log.take("10.0.0.1", 1 / limits.REFUSALS_OF_ADDRESS_PER_S)
    assert "10.0.0.1" in log.lines[-1]


def test_all_addresses_together_have_a_limit_and_nothing_remains_uncounted() -> None:
    log = Lines()
    for number in range(limits.REFUSALS_BURST + 500):
        log.take(f"10.0.{number // 256}.{number % 256}", 0.0)
    assert (len(log.lines), log.suppressed) == (limits.REFUSALS_BURST, 500)
    log.flush(0.0)
    assert log.suppressed == 500  # that would be one line too many
    log.flush(1.0)
    log.flush(2.0)
    assert log.lines[limits.REFUSALS_BURST :] == ["refused 500 more connections, without a line for each"]


def test_text_of_a_peer_stays_on_its_line_and_is_cut() -> None:
    log = Lines()
    log.failed("a", "a:1", None, HandshakeFailed("X\nY", "line\nbreak" + "x" * 10_000), 0.0)
    (line,) = log.lines
    assert line.isprintable()
    assert len(line) < 300


# --- what a connector learns from alerts, which other programs send ---


@contextmanager
def tls_server(context: ssl.SSLContext) -> Iterator[int]:
    """Yield the port of a server that does TLS with one connection, as OpenSSL does it: a refusal is an alert."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            accepted, _ = listening.accept()
            accepted.settimeout(60)
            with (
                suppress(OSError),
                context.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False) as secured,
            ):
                with suppress(ssl.SSLError):
                    secured.do_handshake()
                while socket.socket.recv(secured, 65_536):  # else a reset would destroy the alert
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join(60)


def server_context(pki: Pki, ca: Path, alpn: str = ALPN) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki.server.certificate, pki.server.key)
    context.load_verify_locations(cafile=ca)
    context.verify_mode = ssl.CERT_REQUIRED
    context.set_alpn_protocols([alpn])
    return context


async def test_alerts_become_words(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path / "other")

    with tls_server(server_context(pki, other.ca)) as port:
        failure = await World(pki).refusal(port=port)
    assert (failure.code, failure.reason) == (
        "TLS",
        "the other end has refused us: our certificate comes from a CA that it does not know (TLS alert unknown_ca)",
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "our certificate has expired (TLS alert certificate_expired)"),
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "and we have sent none (TLS alert certificate_required)"),
        ("TLSV1_ALERT_SOMETHING_NEW", "it gives no reason (TLS alert something_new)"),
        ("WRONG_VERSION_NUMBER", "the other end does not speak TLS"),
        ("SOME_REASON", "some reason"),
    ],
)
def test_reasons_of_openssl_become_words(reason: str, words: str) -> None:
    error = ssl.SSLError(1, "text")
    error.reason = reason
    assert failure_of(error).reason.endswith(words)


# --- what the client says ---


def client_of(pki: Pki, files: TlsFiles, port: int, **fields: Any) -> ChannelClient:
    values: dict[str, Any] = {"peer": CLIENT, "gateway": SERVER, **fields}
    config = ClientConfig(gateways=(("127.0.0.1", port),), tls=files, **values)
    return ChannelClient(config, limits=ClientLimits(attempts_max=1))


async def reason_of(client: ChannelClient) -> NotConnected:
    async with client:
        with pytest.raises(NotConnected) as caught:
            await client.ready()
    return caught.value


async def test_silent_refusal_comes_with_what_is_odd_about_our_own_files(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path / "other", "another CA")

    async with serving(World(pki)) as world:
        error = await reason_of(client_of(pki, pki.leaf("other", [OTHER]), world.port))
        assert error.code == "TRANSPORT_LOST"
        assert str(error) == (
            f"127.0.0.1:{world.port}: TRANSPORT_LOST: {SILENT}; our certificate is of {format_id(OTHER)}, we are {format_id(CLIENT)}"
        )
        late = pki.leaf("late", [CLIENT], not_before=pki.now + timedelta(hours=1))
        assert ", in the future" in str(await reason_of(client_of(pki, late, world.port)))
        alien = replace(other.client, ca=pki.ca, crl=pki.crl)
        found = str(await reason_of(client_of(pki, alien, world.port)))
        assert found.endswith(f"; our certificate is not of the CA in {pki.ca}")


async def test_wrong_pin_and_wrong_peer_of_the_gateway_are_named(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        error = await reason_of(client_of(pki, pki.client, world.port, pins=frozenset({bytes(32)})))
        assert error.code == "NOT_AUTHORIZED"
        assert str(error).endswith(" is none of the pins")
        error = await reason_of(client_of(pki, pki.client, world.port, gateway=SERVER ^ 1))
        assert f"expected the peer {format_id(SERVER ^ 1)} in it, found {format_id(SERVER)}" in str(error)


async def test_log_has_a_warning_for_news_and_status_says_what_is_next(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "validator_channel.client")
    seen = []
    config = ClientConfig(gateways=(("127.0.0.1", 1),), tls=pki.client, peer=CLIENT, gateway=SERVER)
    few = ClientLimits(attempts_max=4, pause_s_min=0.001)
    client = ChannelClient(config, limits=few, on_status=seen.append)
    await reason_of(client)
    pauses = [status for status in seen if status.pause_s]
    assert [status.failures for status in pauses] == [1, 2, 3]
    assert {status.failure for status in pauses} == {"TRANSPORT_LOST: nothing listens there"}
    assert client.status.gateway == "127.0.0.1:1"
    levels = [record.levelname for record in caplog.records if "no session with 127.0.0.1:1: " in record.message]
    assert levels == ["WARNING", "INFO", "INFO"]


async def test_client_without_a_certificate_is_a_line(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        assert await world.attempt(client_context(pki, None)) == b""
        await until(lambda: refused(world))
        assert refused(world)[0].endswith(": the other end has no certificate (TLS)")


async def test_connection_that_ends_during_tls_says_so_on_both_sides(pki: Pki, tmp_path: Path) -> None:
    """A client that refuses the listener's certificate has not shown its own one yet; one that is turned away has seen none."""
    other = Pki(tmp_path / "other")
    refusing = replace(pki.client, ca=other.ca, crl=other.crl)

    async with serving(World(pki)) as world:
        error = await reason_of(client_of(pki, refusing, world.port))
        assert error.code == "TLS"
        assert "certificate refused: " in str(error)
        await until(lambda: refused(world))
        assert CLOSED_DURING_TLS in refused(world)[0]
        assert "certificate=" not in refused(world)[0]
        pki.crl.unlink()
        alone = replace(pki.client, crl=None)
        found = str(await reason_of(client_of(pki, alone, world.port)))
        assert CLOSED_DURING_TLS in found or "Connection reset by peer" in found


async def test_peer_that_goes_before_it_is_online_is_named(pki: Pki) -> None:
    async with serving(World(pki)) as world:
        raw = await RawPeer.join(world, 5)
        raw.close()
        await until(lambda: refused(world))
    assert f" {NAMES}: the connection was lost (TRANSPORT_LOST)" in refused(world)[0]


async def test_missing_crl_of_the_peer_is_named(pki: Pki) -> None:
    missing = replace(pki.client, crl=pki.folder / "nope.crl")
    async with serving(World(pki)) as world, client_of(pki, missing, world.port) as client:
        with pytest.raises(TlsError, match=r"^CRL: .*nope\.crl: No such file or directory$"):
            await client.ready()


async def test_live_session_of_a_revoked_peer_ends_in_a_warning_and_the_peer_sees_a_lost_connection(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    statuses: list[Status] = []
    limits = ClientLimits(attempts_max=2, pause_s_min=0.001)
    config = ClientConfig(gateways=(("127.0.0.1", 0),), tls=pki.client, peer=CLIENT, gateway=SERVER)
    async with serving(World(pki)) as world:
        world.listener._terms = replace(world.listener._terms, log=logging.getLogger("listener"))
        config = replace(config, gateways=(("127.0.0.1", world.port),))
        ended = asyncio.Event()
        client = ChannelClient(
            config,
            limits=limits,
            on_status=statuses.append,
            on_event=lambda _, event: ended.set() if isinstance(event, SessionClosed) else None,
        )
        async with client:
            await until(lambda: world.listener.counters.online)
            pki.revoke(pki.client)
            await world.listener.recheck()
            await ended.wait()
            with pytest.raises(NotConnected):
                await client.ready()
    reasons = list(dict.fromkeys(status.failure for status in statuses if status.failure))
    assert reasons[0] == "the session has ended: TRANSPORT_LOST: the connection was lost"
    (line,) = [record for record in caplog.records if " end=REVOKED " in record.message]
    assert (line.levelname, f"peer={format_id(CLIENT)}" in line.message) == ("WARNING", True)
