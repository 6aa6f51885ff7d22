# SPDX-License-Identifier: Apache-2.0
"""A private CA, a listener that records, and clients that do what a good one never would; everything is real TLS on loopback."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from channel_world import CHANNEL, PEERS
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from validator_channel.events import Event, MessageReceived, SessionOnline
from validator_channel.hello import ConnectorHello, Credentials, Peering
from validator_channel.limits import ListenerLimits, Settings
from validator_channel.net import authority
from validator_channel.net.certificates import pin_of
from validator_channel.net.connection import Connection
from validator_channel.net.connector import connect
from validator_channel.net.listener import Listener
from validator_channel.net.peers import HandshakeFailed, Peer, peer_identity
from validator_channel.net.tls import TlsFiles, new_context
from validator_channel.session import Session
from validator_channel.wire import Role

CLIENT, SERVER = PEERS
"""The peer that connects, and the one that listens."""
SECONDS_MAX = 60.0
"""How long a test waits for what must happen: many times what a busy machine needs."""
BOTH = (authority.Usage.CLIENT, authority.Usage.SERVER)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test in its own event loop; whatever asyncio would log as a failure fails the test."""
    failures: list[dict[str, Any]] = []

    async def guarded() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        async with asyncio.timeout(SECONDS_MAX):
            await main

    asyncio.run(guarded())
    assert failures == []


async def until(condition: Callable[[], Any]) -> None:
    """Wait until a condition holds; `run` bounds it."""
    while not condition():
        await asyncio.sleep(0.005)


# --- certificates ---


class Pki:
    """A CA in a folder, and files of leaf certificates, good and bad."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.authority = authority.new_authority(name, self.now - timedelta(days=2), timedelta(days=30))
        self.ca, self.crl = folder / "ca.crt", folder / "ca.crl"
        self.ca.write_bytes(self.authority.certificate.public_bytes(Encoding.PEM))
        self.number = 0
        self.revoke()
        self.client = self.leaf("client", [CLIENT])
        self.server = self.leaf("server", [SERVER])

    def leaf(
        self,
        name: str,
        peers: Sequence[int] = (),
        *,
        usages: Sequence[authority.Usage] = BOTH,
        dns: Sequence[str] = ("localhost",),
        addresses: Sequence[str] = ("127.0.0.1",),
        not_before: datetime | None = None,
        not_after: datetime | None = None,
        key: Ed25519PrivateKey | None = None,
    ) -> TlsFiles:
        key = key or Ed25519PrivateKey.generate()
        leaf = authority.Leaf(
            name=name,
            peers=peers,
            dns=dns,
            addresses=addresses,
            usages=usages,
            not_before=not_before or self.now - timedelta(days=1),
            not_after=not_after or self.now + timedelta(days=1),
        )
        return self.write(name, authority.issue(self.authority, key.public_key(), leaf), key)

    def odd_leaf(self, name: str, key: Any, names: Iterable[x509.GeneralName]) -> TlsFiles:
        """A leaf with any key and any names, as another program might make it."""
        good = x509.load_pem_x509_certificate(self.client.certificate.read_bytes())
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(self.authority.certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.now - timedelta(days=1))
            .not_valid_after(self.now + timedelta(days=1))
        )
        for each in good.extensions:
            if not isinstance(each.value, x509.SubjectAlternativeName | x509.SubjectKeyIdentifier):
                builder = builder.add_extension(each.value, critical=each.critical)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        if names := list(names):
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return self.write(name, builder.sign(self.authority.key, None), key)

    def self_signed(self, name: str) -> TlsFiles:
        key = Ed25519PrivateKey.generate()
        alone = authority.new_authority(name, self.now, timedelta(days=1))
        leaf = authority.Leaf(
            name="test CA",
            peers=[CLIENT],
            not_before=self.now - timedelta(days=1),
            not_after=self.now + timedelta(days=1),
        )
        return self.write(
            name, authority.issue(authority.Authority(alone.certificate, key), key.public_key(), leaf), key
        )

    def write(self, name: str, certificate: x509.Certificate, key: Any) -> TlsFiles:
        files = TlsFiles(self.folder / f"{name}.crt", self.folder / f"{name}.key", self.ca, self.crl)
        files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
        files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def revoke(self, *files: TlsFiles, lifetime: timedelta = timedelta(days=1)) -> None:
        """Write a CRL that names exactly these certificates."""
        self.number += 1
        now = datetime.now(UTC).replace(microsecond=0)
        entries = [authority.revoked_entry(certificate_of(each).serial_number, now) for each in files]
        crl = authority.new_crl(self.authority, entries, self.number, now + timedelta(seconds=self.number), lifetime)
        replacement = self.folder / "crl.new"
        replacement.write_bytes(crl.public_bytes(Encoding.PEM))
        replacement.replace(self.crl)


def certificate_of(files: TlsFiles) -> x509.Certificate:
    return x509.load_pem_x509_certificate(files.certificate.read_bytes())


def pin(files: TlsFiles) -> bytes:
    key = certificate_of(files).public_key()
    return pin_of(key)  # type: ignore[arg-type]


# --- a listener that records ---


@dataclass
class Recorded:
    """The events of all sessions of one side, in order."""

    events: list[tuple[Connection, Event]] = field(default_factory=list)

    def __call__(self, connection: Connection, event: Event) -> None:
        self.events.append((connection, event))
        if isinstance(event, MessageReceived):
            connection.consumed()

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for _, event in self.events if isinstance(event, kind)]

    @property
    def online(self) -> list[Connection]:
        return [connection for connection, event in self.events if isinstance(event, SessionOnline)]


def recording_log() -> tuple[logging.Logger, list[str]]:
    """Return a log, and the list of its messages."""
    log, lines = logging.Logger("test"), []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    return log, lines


class World:
    """A listener of `SERVER` with a registry that a test changes, and ways to connect to it as `CLIENT`."""

    def __init__(
        self, pki: Pki, *, settings: Settings | None = None, limits: ListenerLimits | None = None, **peer: Any
    ) -> None:
        self.pki = pki
        self.settings = settings or Settings()
        self.peers = {CHANNEL: Peer(peering=Peering(SERVER, CLIENT), **peer)}
        self.events = Recorded()
        self.client_events = Recorded()
        self.log, self.lines = recording_log()
        self.listener = Listener(
            pki.server, lambda: self.peers, self.events, self.settings, limits or ListenerLimits(), log=self.log
        )

    @property
    def failed(self) -> dict[str, int]:
        return dict(self.listener.counters.handshakes_failed)

    def change(self, **peer: Any) -> None:
        self.peers = {CHANNEL: Peer(**{"peering": Peering(SERVER, CLIENT), **peer})}

    @property
    def port(self) -> int:
        return self.listener.port

    async def connect(self, session_id: int = 5, files: TlsFiles | None = None, **options: Any) -> Connection:
        settings = options.pop("settings", Settings(handshake_timeout=SECONDS_MAX, setup_timeout=SECONDS_MAX))
        peer = Peer(peering=options.pop("peering", Peering(CLIENT, SERVER)))
        return await connect(
            "127.0.0.1",
            options.pop("port", None) or self.port,
            files or self.pki.client,
            peer,
            session_id,
            options.pop("handler", self.client_events),
            settings,
            log=self.log,
            **options,
        )

    async def pair(self, session_id: int = 5, **options: Any) -> tuple[Connection, Connection]:
        """Connect, and return the client's and the listener's end of the session."""
        before = len(self.events.online)
        connection = await self.connect(session_id, **options)
        await until(lambda: len(self.events.online) > before)
        return connection, self.events.online[-1]

    @asynccontextmanager
    async def raw(
        self, session_id: int = 5, settings: Settings | None = None
    ) -> AsyncIterator[tuple[RawPeer, Connection]]:
        """Connect as a `RawPeer`, and yield it and the listener's end of the session."""
        before = len(self.events.online)
        raw = await (await RawPeer.join(self, session_id, settings)).online()
        try:
            await until(lambda: len(self.events.online) > before)
            yield raw, self.events.online[-1]
        finally:
            raw.close()

    async def refusal(self, session_id: int = 5, files: TlsFiles | None = None, **options: Any) -> HandshakeFailed:
        """Connect, and return why that failed; the connector must not have reported anything."""
        before = len(self.client_events.events)
        try:
            connection = await self.connect(session_id, files, **options)
        except HandshakeFailed as failure:
            assert len(self.client_events.events) == before
            return failure
        raise AssertionError(f"{connection} is not refused")

    async def attempt(self, context: ssl.SSLContext, data: bytes | None = None) -> bytes:
        """Connect as any client, send a CLIENT_HELLO, and return what the listener sent before it closed."""
        return await attempt(self.listener.port, context, client_hello() if data is None else data)


@asynccontextmanager
async def serving(world: World) -> AsyncIterator[World]:
    """Run the listener of a world, and end it without a trace."""
    await world.listener.start("127.0.0.1", 0)
    try:
        yield world
    finally:
        await world.listener.close()
        assert world.listener.half_open == 0
        assert len(world.listener.sessions) == 0


# --- clients of any kind ---


def client_context(pki: Pki, files: TlsFiles | None, alpn: Sequence[str] = ("channel/1",)) -> ssl.SSLContext:
    """A client's context that checks nothing but the CA; a test makes it as bad as it needs."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cafile=pki.ca)
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    if alpn:
        context.set_alpn_protocols(list(alpn))
    return context


async def attempt(port: int, context: ssl.SSLContext, data: bytes) -> bytes:
    """Return all bytes that a server sends before it closes; b"" also if TLS fails."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return b""
    received = b""
    try:
        writer.write(data)
        while chunk := await reader.read(65536):
            received += chunk
    except OSError:
        pass
    finally:
        writer.transport.abort()
    return received


def client_hello(peering: Peering | None = None, session_id: int = 5) -> bytes:
    key = Ed25519PrivateKey.generate()
    credentials = Credentials(key, key.public_key(), {SERVER}.__contains__, secrets.token_bytes(32))
    return ConnectorHello(peering or Peering(CLIENT, SERVER), session_id, credentials).start()


class RawPeer:
    """A connector whose frames a test sees, keeps and injects; it moves only when the test says so."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: Session) -> None:
        self.reader, self.writer, self.session = reader, writer, session
        self.sent: list[bytes] = []
        self.events: list[Event] = []

    @classmethod
    async def join(cls, world: World, session_id: int, settings: Settings | None = None) -> RawPeer:
        """Do TLS and the hello exchange, and set the session up."""
        pki = world.pki
        context = new_context(Role.CONNECTOR, checks_crl=False)
        context.load_verify_locations(cafile=pki.ca)
        context.load_cert_chain(pki.client.certificate, pki.client.key)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.listener.port, ssl=context)
        identity = peer_identity(writer.get_extra_info("ssl_object"))
        key = authority_key(pki.client)
        credentials = Credentials(key, identity.key, identity.peers.__contains__, secrets.token_bytes(32))
        hello = ConnectorHello(Peering(CLIENT, SERVER), session_id, credentials)
        writer.write(hello.start())
        while hello.result is None:
            data = await reader.read(65536)
            assert data
            writer.write(hello.receive_data(data))
        now = asyncio.get_running_loop().time()
        session = Session(Role.CONNECTOR, CHANNEL, CLIENT, SERVER, session_id, settings)
        session.open(now)
        session.secured(hello.result.tx_key, hello.result.rx_key, now)
        peer = cls(reader, writer, session)
        session.receive_data(hello.take_rest(), now)
        peer.flush()
        return peer

    def flush(self) -> None:
        frames = self.session.data_to_send()
        self.sent += frames
        self.writer.write(b"".join(frames))
        self.events += iter(self.session.next_event, None)

    async def pump(self, condition: Callable[[], Any]) -> None:
        """Move the session until a condition holds or the transport ends."""
        self.flush()
        while not condition():
            data = await self.reader.read(65536)
            if not data:
                return
            self.session.receive_data(data, asyncio.get_running_loop().time())
            self.flush()

    async def online(self) -> RawPeer:
        await self.pump(lambda: self.session.state == "ONLINE")
        assert self.session.state == "ONLINE"
        return self

    def close(self) -> None:
        self.writer.transport.abort()


def authority_key(files: TlsFiles) -> Ed25519PrivateKey:
    from validator_channel.net.certificates import load_key

    return load_key(files.key)


class SilentServer:
    """A TLS server for one client: it takes any certificate, records what the client sends first, answers nothing, and closes."""

    def __init__(self, files: TlsFiles) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.certificate, files.key)
        self._context.set_alpn_protocols(["channel/1"])
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(SECONDS_MAX)
        self.port = self._listening.getsockname()[1]
        self._received = asyncio.ensure_future(asyncio.to_thread(self._serve))

    async def received(self) -> bytes:
        """Return what the client sent inside TLS, after it has gone or been closed."""
        return await self._received

    def _serve(self) -> bytes:
        with self._listening:
            plain, _ = self._listening.accept()
        plain.settimeout(SECONDS_MAX)
        with plain:
            try:
                with self._context.wrap_socket(plain, server_side=True) as secure:
                    return secure.recv(65536)
            except OSError:
                return b""
