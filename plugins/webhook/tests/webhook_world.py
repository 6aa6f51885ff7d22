# SPDX-License-Identifier: Apache-2.0
"""Receivers that do what a test says, and verdicts to deliver."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from standardwebhooks import Webhook
from validator_webhook.delivery import Clocks
from validator_webhook.limits import POLL_S
from validator_webhook.sending import Names
from validator_webhook.service import Service

from validator.testing.transport import MemoryTransport

KEY = bytes(range(32))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
PATIENCE_S = 60.0
LOOPBACK = "127.0.0.0/8"


class Request(NamedTuple):
    """A request as a receiver got it."""

    at_s: float
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def place(self) -> tuple[str, int, int]:
        topic, partition, offset, _ = self.id.rsplit("-", 3)
        return topic, int(partition), int(offset)


class Receiver:
    """An HTTP server on loopback; ``answer`` gets a handler and the request, and writes what the test wants."""

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler, Request], None] | None = None) -> None:
        self.answer = answer or respond(204)
        self.requests: list[Request] = []
        self.accepted: list[Request] = []
        """Those that were answered with 2xx."""
        self._lock = Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # the sender was killed
                    self.close_connection = True
                    return
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = self.request_seen = Request(time.monotonic(), self.path, headers, body)
                with outer._lock:
                    outer.requests.append(request)
                with suppress(OSError):
                    outer.answer(self, request)

            def send_response(self, code: int, message: str | None = None) -> None:
                if 200 <= code < 300:
                    with outer._lock:
                        outer.accepted.append(self.request_seen)
                super().send_response(code, message)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign] # clients that leave
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def offsets(self) -> list[int]:
        """Return the offsets of what was accepted, in order."""
        return [request.place[2] for request in self.accepted]


def respond(status: int, **headers: str) -> Callable[[BaseHTTPRequestHandler, Request], None]:
    def answer(handler: BaseHTTPRequestHandler, _: Request) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", "0")
        handler.end_headers()

    return answer


@contextmanager
def receiving(answer: Callable[[BaseHTTPRequestHandler, Request], None] | None = None) -> Iterator[Receiver]:
    receiver = Receiver(answer)
    try:
        yield receiver
    finally:
        receiver.close()


def secret_file(folder: Path, name: str = "secret", text: str = SECRET) -> str:
    path = folder / name
    path.write_text(text + "\n", encoding="ascii")
    path.chmod(0o600)
    return str(path)


def verified(request: Request, secret: str = SECRET) -> Any:
    """Return the body of a request whose signature the package of Standard Webhooks accepts."""
    return Webhook(secret).verify(request.body, dict(request.headers))


def verdict(number: int, *, ok: bool = True, lane: str = "polkadot", para: int = 2000) -> dict[str, Any]:
    error = {"kind": "OutboundHrmp/NoSuchChannel", "clause": "x", "recipient": 2001, "sender": para}
    return {
        "lane": lane, "block": number, "kind": "candidate", "index": 0, "para_id": para, "ok": ok, "error": None if ok else error,
        "enacted": ok, "messages": [], "received": [], "effective_session": None, "expires_session": None, "candidate_hash": None,
        "signals": [], "runtime_digest": "0x" + "00" * 32, "id": f"0x{number:032x}",
    }  # fmt: skip


def receipt(number: int, lane: str = "polkadot") -> dict[str, Any]:
    return {
        "lane": lane, "block": number, "parent_number": number - 1, "session": 0, "accepted": 1, "rejected": 0, "enacted": 1,
        "dispatched": 0, "weight_used": 0, "runtime_digest": "0x" + "00" * 32, "state_root": None,
    }  # fmt: skip


def until(is_so: Callable[[], bool], what: str = "it", seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.01)


class Hanging:
    """A receiver that takes a connection and never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/hook"
        self.connections: list[socket.socket] = []
        self.ended = Event()
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        with suppress(OSError):
            while True:
                self.connections.append(self._socket.accept()[0])

    def close(self) -> None:
        self._socket.close()
        for each in self.connections:
            each.close()


class Running:
    """The transport on a `MemoryTransport`, in a thread; pauses are as short as the test says."""

    def __init__(self, memory: MemoryTransport, pause_s: float | None = 0.01, names: Names | None = None) -> None:
        self.memory = memory
        self.pauses: list[float] = []
        self.slept_s = 0.0
        """How far the wall clock is ahead: pauses that were cut short count in full."""
        self.error: BaseException | None = None
        self._pause_s, self._names = pause_s, names
        self._ready = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()
        until(lambda: self._ready.is_set() or self.error is not None, "the start")
        if self.error is not None:
            raise self.error

    async def _sleep(self, seconds: float) -> None:
        if seconds != POLL_S:
            self.pauses.append(seconds)
            self.slept_s += seconds if self._pause_s is not None else 0.0
        await asyncio.sleep(seconds if self._pause_s is None else min(seconds, self._pause_s))

    def _run(self) -> None:
        try:
            with self.memory.open(live=True) as context:
                clocks = Clocks(chance=Random(7).random, sleep=self._sleep, wall_s=lambda: time.time() + self.slept_s)
                self.service = Service(context, context.config, clocks=clocks, names=self._names)
                asyncio.run(self.service.run(self._ready.set))
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.error = error

    def stop(self) -> None:
        self.memory.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def state(self, name: str) -> dict[str, Any]:
        return self.service.shown(self.service.subscriptions[name])


@contextmanager
def running(memory: MemoryTransport, pause_s: float | None = 0.01, names: Names | None = None) -> Iterator[Running]:
    """Yield the running transport, and stop it. Raises what the transport has raised."""
    started = Running(memory, pause_s, names)
    try:
        yield started
    finally:
        started.stop()
    if started.error is not None:
        raise started.error


def memory_of(
    folder: Path,
    subscriptions: Mapping[str, Mapping[str, Any]],
    protocols: Mapping[str, str] | None = None,
    **table: Any,
) -> MemoryTransport:
    """Return a transport in memory with subscriptions to verdicts from the beginning, which may use loopback and http."""
    common = {"topics": ["verdicts"], "start": "beginning", "secret_file": secret_file(folder)}
    made = {name: common | dict(each) for name, each in subscriptions.items()}
    return MemoryTransport(
        "webhook",
        {"allow_http": True, "allow_networks": [LOOPBACK], "subscriptions": made} | table,
        protocols=protocols,
    )
