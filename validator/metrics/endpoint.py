# SPDX-License-Identifier: Apache-2.0
"""The HTTP endpoint that Prometheus scrapes.

It has no login, and may listen on an address that others reach. So a client has a bounded time for its request and for the answer, and all
clients together a bounded number of connections, each of which is a thread and a file of a process that has other things to do.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from validator.errors import UserError
from validator.metrics.address import parse_address
from validator.metrics.limits import ANSWER_S_MAX, CONNECTIONS_MAX, REQUEST_S_MAX
from validator.metrics.store import MetricStore

PAGE: Final = "/metrics"
BRIEF: Final = "/metrics/brief"
"""The page with the few values that `validator health` reads: those of every lane and para take seconds of processor time."""


class _Handler(WSGIRequestHandler):
    """Reads a request and writes its answer, and logs nothing."""

    timeout = REQUEST_S_MAX
    server: _Server

    def parse_request(self) -> bool:
        """Read the head of a request, after which the client waits for us; that of a dropped connection only seems to be complete."""
        complete = super().parse_request() and self.server.has_asked(self.connection)
        if complete:
            self.connection.settimeout(ANSWER_S_MAX)
        return complete

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class _Server(ThreadingWSGIServer):
    """Answers each client in a thread, and bounds how many there are and how long they take."""

    daemon_threads = True
    request_queue_size = 4 * CONNECTIONS_MAX  # the system lets a client that finds it full wait for a second

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._asking: dict[socket.socket, float] = {}
        """The open connections without a complete request, the oldest first, and when each was accepted."""
        self._dropped: set[socket.socket] = set()
        """Connections that were shut down, and whose threads have not closed them yet."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a new connection, if necessary in the place of one that does not say what it wants."""
        with self._lock:
            if len(self._open) >= CONNECTIONS_MAX and (oldest := next(iter(self._asking), None)) is not None:
                self._drop(oldest)
            refused = len(self._open) >= CONNECTIONS_MAX or len(self._dropped) >= CONNECTIONS_MAX
            if not refused:
                self._open.add(request)
                self._asking[request] = time.monotonic()
        if refused:
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def has_asked(self, request: socket.socket) -> bool:
        """Note that a connection's request is complete; return False for one that was dropped."""
        with self._lock:
            return self._asking.pop(request, None) is not None

    def service_actions(self) -> None:
        """Drop connections whose request takes too long, however many pieces it comes in; called twice a second."""
        latest_s = time.monotonic() - REQUEST_S_MAX
        with self._lock:
            for request in [each for each, began_s in self._asking.items() if began_s < latest_s]:
                self._drop(request)

    def close_request(self, request: Any) -> None:
        """Close a connection, which gives its place to others."""
        with self._lock:
            self._open.discard(request)
            self._dropped.discard(request)
            self._asking.pop(request, None)
            super().close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what is wrong, unless a client has just gone or was too slow."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def _drop(self, request: socket.socket) -> None:
        """Wake the thread of a connection, which closes it."""
        self._asking.pop(request, None)
        self._open.discard(request)
        self._dropped.add(request)
        with suppress(OSError):  # the client has gone
            request.shutdown(socket.SHUT_RDWR)


@contextmanager
def endpoint(listen: str, key: str, store: MetricStore, brief: Collection[str] = ()) -> Iterator[str]:
    """Serve a store's metrics, and those of this process, until the end; yield the page's address.

    The page `BRIEF` has the metrics named in ``brief`` alone. ``key`` names the setting in messages. Raises `UserError` if the address
    cannot be used, say because its port is busy.
    """
    registry, chosen = CollectorRegistry(auto_describe=False), CollectorRegistry(auto_describe=False)
    registry.register(store)
    ProcessCollector(registry=registry)
    chosen.register(store.only(brief))
    pages = {BRIEF: make_wsgi_app(chosen)} if brief else {}
    whole = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        return pages.get(environ["PATH_INFO"], whole)(environ, start_response)

    host, port = parse_address(listen)
    try:
        server = _listening(host, port, answer)
    except OSError as error:
        raise UserError(f"{key} {listen}: metrics cannot be served there: {error.strerror or error}") from error
    thread = threading.Thread(target=server.serve_forever, name="metrics-endpoint", daemon=True)
    thread.start()
    try:
        shown = f"[{host}]" if ":" in host else host
        yield f"http://{shown}:{server.server_port}{PAGE}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _listening(host: str, port: int, answer: Any) -> WSGIServer:
    """Return a server at an address of either family. Raises ``OSError``."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]

    class OfFamily(_Server):
        address_family = family

    return make_server(str(address[0]), port, answer, OfFamily, handler_class=_Handler)
