# SPDX-License-Identifier: Apache-2.0
"""A running console: its readers, its socket and its server.

The server bounds connections: how many there are, and how long one may take for a request, and to take its answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, Self

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from validator.console.app import WebConsole
from validator.console.context import ConsoleContext
from validator.console.follow import Follower, StoredLanes
from validator.console.letters import Letters
from validator.console.limits import ANSWER_S, BODY_S, HEAD_S, IDLE_S, REQUESTS_AT_ONCE_MAX, STOP_S, STREAMS_MAX
from validator.console.model import Model
from validator.console.security import Secrets
from validator.errors import UserError
from validator.lanes.configured import configured_codec
from validator.plugin.pack import use_artefacts
from validator.transports.lines import fed_lanes

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from starlette.types import ASGIApp

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


CONNECTIONS_MAX: Final = REQUESTS_AT_ONCE_MAX + STREAMS_MAX


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Return a server of an application that logs nothing."""
    settings = uvicorn.Config(
        app,
        http=BoundedProtocol,
        access_log=False,
        log_config=None,
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX + 1,  # uvicorn refuses from this number on
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    return uvicorn.Server(settings)


class BoundedProtocol(H11Protocol):
    """A connection that closes unless a request's head arrives in `HEAD_S`, its body in `BODY_S`, and its answer is taken in `ANSWER_S`.

    Uvicorn only bounds the silence after an answer. If there are too many connections, the one that has been without a request for the
    longest time makes room, so that those who send nothing keep nobody out.
    """

    _timer: asyncio.TimerHandle | None = None
    """Ends the wait for a head, or for a body."""
    _untaken: asyncio.TimerHandle | None = None
    """Ends the wait for a client that does not read."""
    _is_reading_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._wait()
        waiting = [each for each in self.connections if isinstance(each, BoundedProtocol) and each.is_waiting]
        if len(self.connections) > CONNECTIONS_MAX and waiting:
            min(waiting, key=lambda each: each.deadline_s)._close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._cancel()
        self._cancel_untaken()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        """Note whether a head has arrived, or a body."""
        super().handle_events()
        cycle: Any = self.cycle
        if self.is_waiting or self._is_reading_body == cycle.more_body:
            return
        self._cancel()
        self._is_reading_body = cycle.more_body
        if cycle.more_body:
            self._timer = self.loop.call_later(BODY_S, self.transport.abort)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Begin to wait for the client to read."""
        super().pause_writing()
        self._cancel_untaken()
        self._untaken = self.loop.call_later(ANSWER_S, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._cancel_untaken()

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    @property
    def deadline_s(self) -> float:
        """When it closes, by the clock of the event loop."""
        return 0.0 if self._timer is None else self._timer.when()

    def _wait(self) -> None:
        self._cancel()
        self._is_reading_body = False
        self._timer = self.loop.call_later(HEAD_S, self._give_up)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _cancel_untaken(self) -> None:
        if self._untaken is not None:
            self._untaken.cancel()

    def _give_up(self) -> None:
        if self.is_waiting:
            self._close()

    def _close(self) -> None:
        """Close once the client has taken what waits for it, or after `ANSWER_S`."""
        self.connections.discard(self)
        self.transport.close()
        self._cancel_untaken()
        self._untaken = self.loop.call_later(ANSWER_S, self.transport.abort)
