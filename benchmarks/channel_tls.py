# SPDX-License-Identifier: Apache-2.0
"""What the benchmark of Channel runs over TLS 1.3 on loopback: both peers' files, and frames of a length and a body as the baseline."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

from validator_channel.hello import Peering
from validator_channel.net.authority import Usage, create_authority, issue_files
from validator_channel.net.tls import Tls, TlsFiles
from validator_channel.wire import Role

HOST: Final = "127.0.0.1"
CHANNEL: Final = 0x0123456789ABCDEF
PEERS: Final = (CHANNEL << 64 | 1, CHANNEL << 64 | 2)
"""The connector's and the listener's peer ID."""
LENGTH_BYTES: Final = 4
NAMES: Final = ("connector", "listener")


def write_files(folder: Path) -> None:
    """Write a certificate authority, and a certificate with its key for each role."""
    create_authority(folder / "ca", "benchmark", days=2, crl_days=1)
    for name, peer in zip(NAMES, PEERS, strict=True):
        issue_files(
            folder / "ca", folder / name, name=name, peers=[peer], addresses=[HOST], usages=tuple(Usage), days=1
        )


def files_of(folder: Path, role: Role) -> TlsFiles:
    """Return the files of one role, with the CRL."""
    ca = folder / "ca"
    return TlsFiles(folder / f"{NAMES[role]}.crt", folder / f"{NAMES[role]}.key", ca / "ca.crt", ca / "ca.crl")


def peering_of(role: Role) -> Peering:
    """Return both peers as one role sees them."""
    return Peering(PEERS[role], PEERS[role.other])


def context_of(folder: Path, role: Role) -> ssl.SSLContext:
    """Return the context in which Channel itself would run TLS."""
    return Tls(files_of(folder, role), role, print).current().context


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
