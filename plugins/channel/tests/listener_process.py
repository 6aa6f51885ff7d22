# SPDX-License-Identifier: Apache-2.0
"""A listener in a process that a test can kill: ``listener_process.py FOLDER PORT``; it prints its port."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from validator_channel.events import Event, MessageReceived
from validator_channel.hello import Peering
from validator_channel.net.connection import Connection
from validator_channel.net.listener import Listener
from validator_channel.net.peers import Peer
from validator_channel.net.tls import TlsFiles

CHANNEL = 0x0123456789ABCDEF
CLIENT, SERVER = 0x0123456789ABCDEF0011223344556677, 0x0123456789ABCDEFFEDCBA9876543210


def echo(connection: Connection, event: Event) -> None:
    """Send each message back."""
    if isinstance(event, MessageReceived):
        connection.consumed()
        connection.send(event.topic, event.payload)


async def main(folder: Path, port: int) -> None:
    files = TlsFiles(folder / "server.crt", folder / "server.key", folder / "ca.crt", folder / "ca.crl")
    peers = {CHANNEL: Peer(peering=Peering(SERVER, CLIENT))}
    listener = Listener(files, lambda: peers, echo)
    await listener.start("127.0.0.1", port)
    print(listener.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
