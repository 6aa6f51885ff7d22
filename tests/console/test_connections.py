# SPDX-License-Identifier: Apache-2.0
"""Connections that send nothing, too little or too much at once: they keep nobody out, and pass no limit."""

from __future__ import annotations

import asyncio
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.console.conftest import WAIT_S, wait_until
from validator.web import server as serve
from validator.web.limits import STREAMS_MAX
from validator.web.server import CONNECTIONS_MAX, server_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from tests.console.conftest import Web

SOON_S = 0.2


class Served(NamedTuple):
    """A console that answers on a port."""

    web: Web
    port: int

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def head(self, path: str) -> bytes:
        """Return the head of a request that carries the token."""
        token = self.web.app.secrets.token
        return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()

    def status(self, path: str, over: socket.socket | None = None) -> bytes:
        """Return the first line of an answer."""
        connection = self.connection() if over is None else over
        connection.sendall(self.head(path))
        return connection.recv(1 << 20).partition(b"\r\n")[0]


@pytest.fixture
def served(web: Web) -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = server_of(web.app.app("127.0.0.1", listening.getsockname()[1]))
        thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
        thread.start()
        wait_until(lambda: server.started)
        yield Served(web, listening.getsockname()[1])
        server.should_exit = True
        thread.join(WAIT_S)


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other end closes a connection that it sends nothing over."""
    with suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def test_silent_connections_keep_nobody_out(served: Served) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(served.connection()) for _ in range(CONNECTIONS_MAX + 5)]
        assert served.status("/healthz") == b"HTTP/1.1 200 OK"
        assert is_closed(silent[0]), "the oldest makes room"
        assert served.status("/healthz", silent[-1]) == b"HTTP/1.1 200 OK"


def test_streams_make_no_room(served: Served) -> None:
    with ExitStack() as stack:
        stream = stack.enter_context(served.connection())
        assert served.status("/events?page=/", stream) == b"HTTP/1.1 200 OK"
        for _ in range(CONNECTIONS_MAX + 5):
            stack.enter_context(served.connection())
        assert served.status("/healthz") == b"HTTP/1.1 200 OK"
        assert served.web.app.streams.open == 1


def test_request_has_to_arrive_in_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEAD_S", SOON_S)
    with served.connection() as silent, served.connection() as slow, served.connection() as stream:
        assert served.status("/events?page=/", stream) == b"HTTP/1.1 200 OK"
        with suppress(ConnectionError):
            for byte in served.head("/healthz")[:-1] * 100:
                slow.sendall(bytes([byte]))
                time.sleep(SOON_S / 20)
        assert is_closed(slow)
        assert is_closed(silent)
        assert served.web.app.streams.open == 1, "an answer may take its time"


def test_next_request_has_to_arrive_in_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEAD_S", SOON_S)
    with served.connection() as slow:
        slow.sendall(served.head("/healthz"))
        answer = b""
        while not answer.rstrip().endswith(b"ok"):  # head and body may come one after the other
            answer += slow.recv(1 << 16)
        with suppress(ConnectionError):
            for byte in served.head("/healthz")[:-1] * 100:
                slow.sendall(bytes([byte]))
                time.sleep(SOON_S / 20)
        assert is_closed(slow)


def form(served: Served, size: int) -> bytes:
    """Return the head of a form that a page of the console would send."""
    own = f"127.0.0.1:{served.port}"
    token = served.web.app.secrets.token
    return (
        f"POST /dead-letters/0/0 HTTP/1.1\r\nHost: {own}\r\nOrigin: http://{own}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {size}\r\n\r\n"
    ).encode()


@pytest.mark.parametrize("sends", ["nothing", "slowly"])
def test_body_has_to_arrive_in_time(served: Served, monkeypatch: pytest.MonkeyPatch, sends: str) -> None:
    monkeypatch.setattr(serve, "BODY_S", SOON_S)
    with served.connection() as slow:
        slow.sendall(form(served, 10_000))
        with suppress(ConnectionError):
            for _ in range(1_000 if sends == "slowly" else 0):
                slow.sendall(b"a")
                time.sleep(SOON_S / 20)
        assert is_closed(slow)
    assert served.web.log == [], "a client that goes away is no bug of the console"


def test_body_that_arrives_is_answered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "HEAD_S", SOON_S)
    body = b"form_token=wrong"
    with served.connection() as slow:
        slow.sendall(form(served, len(body)))
        time.sleep(2 * SOON_S)  # the head is complete: its time no longer counts
        slow.sendall(body)
        assert slow.recv(1 << 16).partition(b"\r\n")[0] == b"HTTP/1.1 403 Forbidden"


def test_client_that_does_not_read_is_closed(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for it would stay in memory, and a stream would hold its place forever."""
    monkeypatch.setattr(serve, "ANSWER_S", SOON_S)
    monkeypatch.setattr(type(served.web.app), "_frames", lambda *_: endless())
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.settimeout(WAIT_S)
        deaf.connect(("127.0.0.1", served.port))
        deaf.sendall(served.head("/events?page=/"))
        wait_until(lambda: served.web.app.streams.open == 1)
        wait_until(lambda: served.web.app.streams.open == 0)


async def endless() -> AsyncIterator[str]:
    """Yield more than any buffer takes."""
    while True:
        yield "x" * (1 << 20)
        await asyncio.sleep(0)


def test_streams_that_begin_at_once_are_counted(served: Served) -> None:
    with ExitStack() as stack:
        opened = [stack.enter_context(served.connection()) for _ in range(3 * STREAMS_MAX)]
        with ThreadPoolExecutor(len(opened)) as pool:
            found = list(pool.map(lambda each: served.status("/events?page=/", each), opened))
        assert found.count(b"HTTP/1.1 200 OK") == STREAMS_MAX
        assert found.count(b"HTTP/1.1 503 Service Unavailable") == 2 * STREAMS_MAX
        assert served.web.app.streams.open == STREAMS_MAX
    wait_until(lambda: served.web.app.streams.open == 0)
