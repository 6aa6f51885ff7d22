# SPDX-License-Identifier: Apache-2.0
"""A server that answers over one socket, with bounds for connections: how many there are, and how long one may take.

A connection has a time for its request, and a time to take its answer.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from validator.errors import UserError
from validator.web.limits import ANSWER_S, BODY_S, HEAD_S, IDLE_S, REQUESTS_AT_ONCE_MAX, STOP_S, STREAMS_MAX

if TYPE_CHECKING:
    from starlette.types import ASGIApp

LISTEN_EXAMPLE: Final = "127.0.0.1:8480"


def address_of(text: str) -> tuple[str, int]:
    """Return the host and the port of ``HOST:PORT`` or ``[HOST]:PORT``; port 0 lets the system choose. Raises `UserError`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port[:6]) > 65_535:
        raise UserError(f"--listen: expected HOST:PORT, such as {LISTEN_EXAMPLE}, found {text!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening(text: str) -> socket.socket:
    """Return a socket that listens on ``HOST:PORT``. Raises `UserError`."""
    host, port = address_of(text)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        raise UserError(f"--listen: {text}: {why}") from error


class RunningServer:
    """Listens from the constructor to `stop`, and answers from `start` on. Raises `UserError` if ``listen`` cannot be listened on."""

    def __init__(self, listen: str) -> None:
        self._socket = listening(listen)
        self.host, self.port = address_of(listen)[0], self._socket.getsockname()[1]
        self.stopping = asyncio.Event()
        """Set before the server waits for open answers to end: streams end then."""
        self._server: uvicorn.Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Thread | None = None

    def url(self, token: str) -> str:
        """Return the address with a token."""
        host = "127.0.0.1" if self.host == "0.0.0.0" else self.host  # noqa: S104 - compared, not listened on
        shown = f"[{host}]" if ":" in host else host
        return f"http://{shown}:{self.port}/?token={token}"

    def start(self, app: ASGIApp) -> None:
        """Begin to answer."""
        server = self._server = server_of(app)

        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await server.serve(sockets=[self._socket])

        self._thread = Thread(target=lambda: asyncio.run(main()), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the server ends by itself, or `KeyboardInterrupt`."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(1.0)

    def stop(self) -> None:
        """Stop answering, and listening."""
        if self._server is not None:
            self._server.should_exit = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.stopping.set)
        if self._thread is not None:
            self._thread.join(4 * STOP_S)
        self._socket.close()


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
