# SPDX-License-Identifier: Apache-2.0
"""Requests that make, show, remove and resume subscriptions: JSON over HTTP with a bearer token, on loopback by default."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from validator_webhook.config import parse_definition
from validator_webhook.limits import CONNECTION_S_MAX, CONNECTIONS_MAX, REQUEST_BYTES_MAX
from validator_webhook.signing import is_same
from validator_webhook.subscriptions import NotNow

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from validator_webhook.service import Service

LOG: Final = logging.getLogger("validator_webhook")
NO_STORE: Final = {"cache-control": "no-store"}


class Listener:
    """Answers requests about the subscriptions of ``service`` from `start` to `stop`."""

    def __init__(self, service: Service, token: str, address: tuple[str, int]) -> None:
        self._service, self._token, self._address = service, token, address
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Return the port. Raises ``OSError``: the address cannot be listened on."""
        host, port = self._address
        try:
            opened = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise OSError(f"listen: {host}:{port}: {os.strerror(error.errno) if error.errno else error}") from None
        if not _is_loopback(host):
            LOG.warning("listen: other machines reach %s, and nothing is encrypted: use a proxy with TLS", host)
        settings = uvicorn.Config(
            self.app(),
            http=_BoundedProtocol,
            access_log=False,
            log_config=None,
            lifespan="off",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS_MAX,
            h11_max_incomplete_event_size=REQUEST_BYTES_MAX,
            timeout_graceful_shutdown=1,
        )
        self._server = _Server(settings)
        self._task = asyncio.ensure_future(self._server.serve(sockets=[opened]))
        found: int = opened.getsockname()[1]
        LOG.info("listening on %s port %d", host, found)
        return found

    async def stop(self) -> None:
        """Answer what is under way, and nothing more."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await asyncio.wait((self._task,), timeout=2.0)

    def app(self) -> ASGIApp:
        """Return the application."""
        routes = [
            Route("/healthz", self._health),
            Route("/subscriptions", self._list, methods=["GET"]),
            Route("/subscriptions", self._create, methods=["POST"]),
            Route("/subscriptions/{name}", self._show, methods=["GET"]),
            Route("/subscriptions/{name}", self._remove, methods=["DELETE"]),
            Route("/subscriptions/{name}/resume", self._resume, methods=["POST"]),
        ]
        handlers = {
            404: lambda *_: _error(404, "there is nothing at this address: see docs/webhooks.md"),
            405: lambda *_: _error(405, "this address does not have that method"),
            KeyError: lambda *_: _error(404, "there is no such subscription"),
            NotNow: lambda _, error: _error(409, str(error)),
            ValueError: lambda _, error: _error(422, str(error)),
        }
        return _Guard(Starlette(routes=routes, exception_handlers=handlers), self._token)

    async def _health(self, _: Request) -> Response:
        return Response("ok\n", media_type="text/plain")

    async def _list(self, _: Request) -> Response:
        found = sorted(self._service.subscriptions.items())
        return _json({"subscriptions": [self._service.shown(each) for _, each in found]})

    async def _show(self, request: Request) -> Response:
        return _json(self._service.shown(self._service.subscriptions[request.path_params["name"]]))

    async def _create(self, request: Request) -> Response:
        try:
            body = await _body(request)
        except ClientDisconnect:
            return _error(400, "the request did not arrive")
        if body is None:
            return _error(413, f"expected at most {REQUEST_BYTES_MAX} bytes")
        try:
            values = json.loads(body)
        except (ValueError, RecursionError):
            return _error(400, "expected a JSON object with url and topics")
        subscription = await self._service.create(parse_definition(values))
        answer = {**self._service.shown(subscription), "secret": subscription.secrets.newest}
        return _json(answer, 201, {"location": f"/subscriptions/{subscription.id}"})

    async def _remove(self, request: Request) -> Response:
        await self._service.remove(request.path_params["name"])
        return Response(status_code=204)

    async def _resume(self, request: Request) -> Response:
        skip = request.query_params.get("skip", "0")
        if skip not in ("0", "1"):
            raise ValueError(f"skip: expected 0 or 1, found {skip[:20]!r}")
        return _json(self._service.shown(await self._service.resume(request.path_params["name"], skip=skip == "1")))


class _Guard:
    """Lets requests with the token through; `/healthz` needs none."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/healthz" and not self._is_known(scope):
            answer = _error(401, "expected the header Authorization: Bearer TOKEN")
            answer.headers["www-authenticate"] = "Bearer"
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        found = next((value for name, value in scope["headers"] if name == b"authorization"), b"").decode("latin-1")
        scheme, _, token = found.partition(" ")
        return scheme.lower() == "bearer" and is_same(token.strip(), self._token)


class _Server(uvicorn.Server):
    """A server that leaves signals to the command."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _BoundedProtocol(H11Protocol):
    """A connection that ends after `CONNECTION_S_MAX`: every answer is short, so whoever needs longer sends or reads nothing."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self.loop.call_later(CONNECTION_S_MAX, transport.abort)


async def _body(request: Request) -> bytes | None:
    """Return the body, None if it is too large."""
    found = bytearray()
    async for chunk in request.stream():
        found += chunk
        if len(found) > REQUEST_BYTES_MAX:
            return None
    return bytes(found)


def _json(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(f"{json.dumps(content)}\n", status, {**NO_STORE, **(headers or {})}, "application/json")


def _error(status: int, words: str) -> Response:
    return _json({"error": words}, status)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
