# SPDX-License-Identifier: Apache-2.0
"""The server's connections: how many there are, and how long one may stay without a whole request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from validator.console.limits import REQUEST_S, REQUESTS_AT_ONCE_MAX, STOP_S, STREAMS_MAX

if TYPE_CHECKING:
    from starlette.types import ASGIApp

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
        timeout_graceful_shutdown=STOP_S,
    )
    return uvicorn.Server(settings)


class BoundedProtocol(H11Protocol):
    """A connection that closes unless a whole head of a request arrives in `REQUEST_S` after it was made, and after each answer.

    Uvicorn only bounds the silence after an answer. If there are too many connections, the one that has been without a request for the
    longest time makes room, so that those who send nothing keep nobody out.
    """

    _timer: asyncio.TimerHandle | None = None

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
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        self._wait()
        super().on_response_complete()

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
        self._timer = self.loop.call_later(REQUEST_S, self._give_up)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        if self.is_waiting:
            self._close()

    def _close(self) -> None:
        self.connections.discard(self)
        self.transport.close()
