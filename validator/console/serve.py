# SPDX-License-Identifier: Apache-2.0
"""A running console: its readers, its socket and its server."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from threading import Thread
from typing import TYPE_CHECKING, Final, Self

from validator.console.app import WebConsole
from validator.console.connections import server_of
from validator.console.context import ConsoleContext
from validator.console.follow import Follower
from validator.console.letters import Letters
from validator.console.limits import STOP_S
from validator.console.model import Model
from validator.console.security import Secrets
from validator.console.stored import StoredLanes
from validator.errors import UserError
from validator.lanes.configured import configured_codec
from validator.plugin.pack import use_artefacts
from validator.transports.lines import fed_lanes

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from validator.config import Config

LISTEN_DEFAULT: Final = "127.0.0.1:8480"


def address_of(text: str) -> tuple[str, int]:
    """Return the host and the port of ``HOST:PORT`` or ``[HOST]:PORT``; port 0 lets the system choose. Raises `UserError`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port[:6]) > 65_535:
        raise UserError(f"--listen: expected HOST:PORT, such as {LISTEN_DEFAULT}, found {text!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class RunningConsole:
    """A console that answers from `start` to `stop`, both part of its context manager.

    ``config`` has the brokers' addresses. Errors of the constructor, in order, each a `UserError`: the address cannot be listened on, Kafka
    does not answer, a topic is missing.
    """

    def __init__(self, config: Config, listen: str, say: Callable[[str], None], *, read_only: bool = False) -> None:
        host, port = address_of(listen)
        self._socket = _listening(host, port, listen)
        try:
            use_artefacts(config.plugins.artefacts)
            self.model = Model(config.chains, configured_codec(config))
            self.follower = Follower(config, self.model, say)
        except BaseException:
            self._socket.close()
            raise
        self.host, self.port = host, self._socket.getsockname()[1]
        self.secrets = Secrets()
        console = ConsoleContext(
            config, self.model, self.follower, StoredLanes(config), Letters(config, say), read_only, fed_lanes(config)
        )
        self._web = WebConsole(console, self.secrets, say)
        self._server = server_of(self._web.app(host, self.port))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        """The address with its token."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host  # noqa: S104 - compared, not listened on
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/?token={self.secrets.token}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to read and to answer."""
        self.follower.start()
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server ends by itself, or `KeyboardInterrupt`."""
        while self._thread.is_alive():
            self._thread.join(1.0)

    def stop(self) -> None:
        """Stop answering, then reading."""
        self._server.should_exit = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._web.stopping.set)
        self._thread.join(4 * STOP_S)
        self.follower.stop()
        self._socket.close()

    def _serve(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._socket])

        asyncio.run(main())


def _listening(host: str, port: int, text: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"--listen: {text}: {why}") from error
