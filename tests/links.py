# SPDX-License-Identifier: Apache-2.0
"""TCP links that can be held or slowed, as a network between machines would be: each has its own loopback address.

A held link passes nothing on and closes nothing, so its connections look like those of a machine behind a broken switch; what was
sent meanwhile arrives once the link is released, as with TCP's retransmissions. One thing differs: a connection to a held link, or to a
process that is gone, is accepted before it hangs or is reset.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

HOST: Final = "127.0.0.1"
"""Where the targets listen."""

BYTES_AT_ONCE: Final = 1 << 16

LOOK_S: Final = 0.01
"""Seconds between two looks of a held connection at its link."""

START_S_MAX: Final = 30.0


@dataclass
class Link:
    """A listening address whose connections go to ``port`` of this machine.

    While it is ``held``, nothing passes in either direction; everything that passes does so ``delay_s`` later, one piece after another.
    """

    host: str
    port: int
    held: bool = False
    delay_s: float = 0.0

    async def passes(self) -> None:
        """Wait until the next piece may pass."""
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        while self.held:
            await asyncio.sleep(LOOK_S)


class Links:
    """Serves links in a separate thread, from entry to exit."""

    def __init__(self, links: list[Link]) -> None:
        self._links = links
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="links", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._ready.wait(START_S_MAX):
            raise TimeoutError("the links do not listen")
        if self._failed is not None:
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - the thread that started this one raises it
            self._failed = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        servers = [await self._listen(link) for link in self._links]
        self._ready.set()
        await self._ended.wait()
        for server in servers:
            server.close()  # `asyncio.run` cancels the connections

    async def _listen(self, link: Link) -> asyncio.Server:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.CancelledError):
                await _carry(link, reader, writer)

        return await asyncio.start_server(connected, link.host, link.port)


async def _carry(link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one connection until either end closes it."""
    try:
        await link.passes()
        target_reader, target = await asyncio.open_connection(HOST, link.port)
    except OSError:
        # a socket that does not linger is reset, as by a machine on which nothing listens
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return
    pumps = [asyncio.ensure_future(_pump(link, *ends)) for ends in ((reader, target), (target_reader, writer))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        for each in (writer, target):
            each.close()


async def _pump(link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(BYTES_AT_ONCE):
            await link.passes()
            writer.write(data)
            await writer.drain()
    await link.passes()  # that an end is closed is not known at the other one either
