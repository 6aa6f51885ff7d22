# SPDX-License-Identifier: Apache-2.0
"""Who may ask a server: its token, the addresses that it answers to, and the headers of every answer.

It defends against other users of the machine (the token), other pages in the same browser (cookie with SameSite=Strict, form token,
Origin), names that are made to resolve to this machine (Host), and markup in records (the content security policy; templates escape
every value).
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlencode

from validator.web.limits import FORM_BYTES_MAX, QUERY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

TOKEN_BYTES: Final = 32
OPEN_PATHS: Final = frozenset({"/healthz", "/static/console.css", "/static/console.js"})
"""Paths of the console that need no token: they say nothing about anybody's data."""

POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types console",
    )
)
HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # without one, browsers send forms with the Origin null
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)


def _random() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


@dataclass(frozen=True, slots=True)
class Secrets:
    """What one start of a server gives away: the token of its address, the cookie that it is changed for, the token of its forms."""

    token: str = field(default_factory=_random)
    session: str = field(default_factory=_random)
    form: str = field(default_factory=_random)


def is_same(given: str, expected: str) -> bool:
    """Compare a secret in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def in_words(_status: int, words: str) -> tuple[str, bytes]:
    """Return the type and the body of an answer: a line of text."""
    return "text/plain; charset=utf-8", f"{words}\n".encode()


@dataclass(frozen=True, slots=True)
class Guard:
    """Lets requests through to ``app``, or answers them itself.

    Checks, in order: the Host header names an IP address, localhost or the name that the server listens on; the request is not too large;
    a request that changes something has the server's own Origin; it carries the token, the cookie or, as a program, the bearer token.
    ``port`` makes cookies of several servers on one machine different. ``body_max`` 0 refuses every method but GET and HEAD.
    """

    app: ASGIApp
    secrets: Secrets
    host: str
    port: int
    name: str = "console"
    open_paths: frozenset[str] = OPEN_PATHS
    query_max: int = QUERY_MAX
    body_max: int = FORM_BYTES_MAX
    answer: Callable[[int, str], tuple[str, bytes]] = in_words

    @property
    def cookie(self) -> str:
        """The cookie's name."""
        return f"validator-{self.name}-{self.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in HEADERS}
                kept = [each for each in message.get("headers", []) if each[0].lower() not in names]
                message = {**message, "headers": [*kept, *HEADERS]}
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope, headers)
        if refused is not None:
            await self._answer(guarded, *refused)
        elif (entered := self._entering(scope)) is not None:
            await self._answer(guarded, 303, "", entered)
        elif scope["path"] not in self.open_paths and not self._is_known(headers):
            words = f"This {self.name} needs the token of the address that it printed when it started."
            await self._answer(guarded, 401, words, [(b"www-authenticate", b"Bearer")])
        else:
            await self.app(scope, receive, guarded)

    def _refused(self, scope: Scope, headers: dict[str, str]) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._is_own(host):
            return 421, f"This {self.name} does not answer to that host name: use the address that it printed."
        if max(len(scope.get("query_string", b"")), len(scope["path"])) > self.query_max:
            return 414, f"The address is too long: expected at most {self.query_max} characters."
        length = headers.get("content-length", "0")
        is_small = length.isdecimal() and len(length) <= len(str(self.body_max)) and int(length) <= self.body_max
        if "transfer-encoding" in headers or not is_small:
            return 413, f"The request is too large: expected at most {self.body_max} bytes, with their length."
        if scope["method"] not in ("GET", "HEAD"):
            if scope["method"] != "POST" or not self.body_max:
                return 405, f"Expected GET{' or POST' if self.body_max else ''}."
            origin = headers.get("origin", "")
            if origin.partition("://")[2] != host or headers.get("sec-fetch-site", "same-origin") != "same-origin":
                return 403, f"A form has to be sent from a page of this {self.name}."
        return None

    def _is_own(self, host: str) -> bool:
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        name = name.removeprefix("[").removesuffix("]").lower()
        if name in ("localhost", self.host.lower()):
            return bool(name)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _entering(self, scope: Scope) -> list[tuple[bytes, bytes]] | None:
        """Return the headers that change the token of an address for a cookie, None if there is no right one."""
        if scope["method"] != "GET":
            return None
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True)
        if not any(name == "token" and is_same(value, self.secrets.token) for name, value in query):
            return None
        rest = urlencode([each for each in query if each[0] != "token"])
        target = quote("/" + scope["path"].lstrip("/"))  # never the address of another host
        cookie = f"{self.cookie}={self.secrets.session}; HttpOnly; SameSite=Strict; Path=/"
        return [(b"location", f"{target}{'?' if rest else ''}{rest}".encode()), (b"set-cookie", cookie.encode())]

    def _is_known(self, headers: dict[str, str]) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and is_same(bearer, self.secrets.token):
            return True
        try:
            found = SimpleCookie(headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return found is not None and is_same(found.value, self.secrets.session)

    async def _answer(
        self, send: Send, status: int, words: str, headers: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        kind, body = self.answer(status, words) if words else ("text/plain; charset=utf-8", b"")
        common = [
            (b"content-type", kind.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        if status == 405:
            common.append((b"allow", b"GET, HEAD, POST" if self.body_max else b"GET, HEAD"))
        await send({"type": "http.response.start", "status": status, "headers": [*common, *(headers or [])]})
        await send({"type": "http.response.body", "body": body})
