# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of Channel runs over TLS 1.3 on loopback: sessions, and frames of a length and a body as their baseline."""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID
from validator_channel.events import Event
from validator_channel.hello import ConnectorHello, Credentials, ListenerHello, Peering
from validator_channel.ids import Role
from validator_channel.limits import Settings
from validator_channel.session import Session
from validator_channel.states import State

CHANNEL: Final = 0x0123456789ABCDEF
PEERS: Final = (CHANNEL << 64 | 1, CHANNEL << 64 | 2)
LENGTH_BYTES: Final = 4
NAMES: Final = ("connector", "listener")


@dataclass(frozen=True, slots=True)
class Material:
    """One side's TLS context, private key, and the peer's public key."""

    context: ssl.SSLContext
    key: Ed25519PrivateKey
    remote_key: Ed25519PublicKey


def write_certificates(folder: Path) -> None:
    """Write a certificate authority and an Ed25519 certificate with its key for each role."""
    root = Ed25519PrivateKey.generate()
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    now = datetime.datetime.now(datetime.UTC)
    for name in ("authority", *NAMES):
        key = root if name == "authority" else Ed25519PrivateKey.generate()
        certificate = (
            x509.CertificateBuilder()
            .issuer_name(authority)
            .subject_name(authority if key is root else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=key is root, path_length=None), critical=True)
            .sign(root, None)
        )
        secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (folder / f"{name}.pem").write_bytes(secret + certificate.public_bytes(Encoding.PEM))


def read_material(folder: Path, role: Role) -> Material:
    """Return the material of one role: TLS 1.3 with certificates of both sides, without session tickets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if role is Role.LISTENER else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(folder / "authority.pem")
    context.load_cert_chain(folder / f"{NAMES[role]}.pem")
    if role is Role.LISTENER:
        context.num_tickets = 0
    key = load_pem_private_key((folder / f"{NAMES[role]}.pem").read_bytes(), None)
    remote = x509.load_pem_x509_certificate((folder / f"{NAMES[role.other]}.pem").read_bytes()).public_key()
    assert isinstance(key, Ed25519PrivateKey)
    assert isinstance(remote, Ed25519PublicKey)
    return Material(context, key, remote)


class ChannelProtocol(asyncio.Protocol):
    """A session on a TLS stream: hello, then the session; one write for each turn of the loop.

    ``on_event`` takes every event of the session, with this object.
    """

    def __init__(
        self,
        role: Role,
        material: Material,
        settings: Settings,
        on_event: Callable[[ChannelProtocol, Event], None],
        session_id: int = 0,
    ) -> None:
        credentials = Credentials(material.key, material.remote_key, {PEERS[role.other]}, os.urandom(32))
        peering = Peering(PEERS[role], PEERS[role.other])
        self._hello = (
            ConnectorHello(peering, session_id, credentials)
            if role is Role.CONNECTOR
            else ListenerHello({CHANNEL: peering}, credentials)
        )
        self._role, self._settings, self._on_event = role, settings, on_event
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.session: Session | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the hello exchange."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if isinstance(self._hello, ConnectorHello):
            transport.write(self._hello.start())

    def data_received(self, data: bytes) -> None:
        """Give bytes to the hello exchange, then to the session."""
        if self.session is None:
            self.transport.write(self._hello.receive_data(data))
            secured = self._hello.result
            if secured is None:
                return
            data = self._hello.take_rest()
            self.session = Session(
                self._role, CHANNEL, secured.local_peer, secured.remote_peer, secured.session, self._settings
            )
            self.session.open(self._loop.time())
            self.session.secured(secured.tx_key, secured.rx_key, self._loop.time())
        self.session.receive_data(data, self._loop.time())
        self.turn()

    def turn(self) -> None:
        """Report events, write what there is to write, and set the timer."""
        session = self.session
        assert session is not None
        while (event := session.next_event()) is not None:
            self._on_event(self, event)
        if output := session.data_to_send():
            self.transport.write(b"".join(output))
        deadline = session.next_deadline()
        if session.is_closed:
            self.transport.close()
        elif deadline is not None and (self._timer is None or deadline < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._expire)

    def connection_lost(self, error: Exception | None) -> None:
        """End the session."""
        if self._timer is not None:
            self._timer.cancel()
        if self.session is not None and self.session.state is not State.OFFLINE:
            self.session.connection_lost(self._loop.time())
            self.turn()

    def _expire(self) -> None:
        self._timer = None
        if self.session is not None:
            self.session.handle_timer(self._loop.time())
            self.turn()


class FramedReceiver(asyncio.Protocol):
    """Frames of a length and a body; ``on_body`` takes each body."""

    def __init__(self, on_body: Callable[[bytes], None]) -> None:
        self._buffer = bytearray()
        self._on_body = on_body

    def data_received(self, data: bytes) -> None:
        """Cut frames."""
        buffer = self._buffer
        buffer += data
        start, size = 0, len(buffer)
        while size - start >= LENGTH_BYTES:
            end = start + LENGTH_BYTES + int.from_bytes(buffer[start : start + LENGTH_BYTES], "big")
            if end > size:
                break
            self._on_body(bytes(buffer[start + LENGTH_BYTES : end]))
            start = end
        del buffer[:start]


class FramedSender(asyncio.Protocol):
    """Writes ``count`` frames, each by itself, as long as the transport takes them, then closes it and sets ``closed``."""

    def __init__(self, body: bytes, count: int) -> None:
        self._frame = len(body).to_bytes(LENGTH_BYTES, "big") + body
        self._left = count
        self._is_writable = True
        self.closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._write()

    def pause_writing(self) -> None:
        """Stop."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Continue."""
        self._is_writable = True
        self._write()

    def _write(self) -> None:
        while self._is_writable and self._left:
            self._left -= 1
            self._transport.write(self._frame)
        if not self._left:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Report the end."""
        self.closed.set()
