# SPDX-License-Identifier: Apache-2.0
"""One attempt at a delivery: a POST to an address that was checked, bounded in time and bytes, never redirected.

`httpcore` is the client because its network backend is a public seam: the backend resolves the name, checks each address and connects to
the very address that it has checked, while TLS still verifies the certificate for the name. It follows no redirects and knows no proxies.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from threading import Thread
from typing import Any, Final, TypeAlias

import httpcore

from validator_webhook import __version__
from validator_webhook.addresses import Network, is_within, refusal
from validator_webhook.limits import (
    ADDRESSES_MAX,
    ANSWER_BYTES_MAX,
    ANSWER_S_MAX,
    IDLE_S,
    REASON_CHARACTERS_MAX,
    RESOLUTIONS_MAX,
)
from validator_webhook.schedule import Answer, Failure, Outcome

Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host. Raises ``OSError``."""

HEADERS: Final = (("content-type", "application/json"), ("user-agent", f"validator-webhook/{__version__}"))

_KINDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (httpcore.TimeoutException, "timeout"),
    (ssl.SSLError, "tls"),
    (httpcore.ConnectError, "connection"),
    (httpcore.NetworkError, "connection"),
    (httpcore.ProtocolError, "protocol"),
    (OSError, "connection"),
)
KINDS: Final = ("address", "connection", "protocol", "status", "timeout", "tls")
"""Every kind of failed attempt."""


class Refused(Exception):
    """No address of the host may be used."""


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to public addresses, and to those of the networks that are allowed."""

    def __init__(self, resolve: Resolve, allowed: Iterable[Network]) -> None:
        self._resolve, self._allowed = resolve, tuple(allowed)
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Return a connection to the first address that may be used and answers. Raises `Refused`, and as httpcore does."""
        try:
            addresses = await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host}: {error.strerror or error}") from error
        refused = {address: refusal(address, self._allowed) for address in addresses}
        usable = [address for address, why in refused.items() if why is None]
        if not usable:
            raise Refused(next((why for why in refused.values() if why is not None), f"{host} has no address"))
        failed: Exception | None = None
        for address in usable[:ADDRESSES_MAX]:
            try:
                stream = await self._backend.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
                continue
            own, peer = (stream.get_extra_info(name) for name in ("client_addr", "server_addr"))
            if own and peer and own[0] == peer[0] and not is_within(address, self._allowed):
                await stream.aclose()
                raise Refused(f"{address} is an address of this machine; allow_networks does not allow it")
            return stream
        raise failed or httpcore.ConnectError(host)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Sender:
    """The connection of one subscription. After a failed attempt it begins with a new one."""

    def __init__(self, network: CheckedNetwork, tls: ssl.SSLContext, attempt_s: float) -> None:
        self._network, self._tls, self._attempt_s = network, tls, attempt_s
        self._pool: httpcore.AsyncConnectionPool | None = None

    async def post(self, url: str, headers: Sequence[tuple[str, str]], body: bytes) -> Outcome:
        """Return what became of an attempt. The status decides: how an answer's body ends does not matter."""
        answer: Answer | None = None
        is_whole = False
        try:
            async with asyncio.timeout(self._attempt_s):
                async with self._opened().stream("POST", url, headers=[*HEADERS, *headers], content=body) as response:
                    found = next((value for name, value in response.headers if name.lower() == b"retry-after"), None)
                    answer = Answer(response.status, None if found is None else found.decode("latin-1")[:100])
                    is_whole = await _drained(response)
        except Exception as error:  # noqa: BLE001 - whatever a receiver does is an outcome
            if answer is None:
                await self.close()
                return _failure(error, self._attempt_s)
        if answer is None or not is_whole or not 200 <= answer.status < 300:
            await self.close()
        assert answer is not None
        return answer

    async def close(self) -> None:
        """Close the connection."""
        pool, self._pool = self._pool, None
        if pool is not None:
            with suppress(Exception):
                await pool.aclose()

    def _opened(self) -> httpcore.AsyncConnectionPool:
        if self._pool is None:
            self._pool = httpcore.AsyncConnectionPool(
                self._tls, max_connections=1, keepalive_expiry=IDLE_S, network_backend=self._network
            )
        return self._pool


async def _drained(response: httpcore.Response) -> bool:
    """Read the rest of an answer within the bounds; return whether that was all."""
    size = 0
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            async for chunk in response.aiter_stream():
                size += len(chunk)
                if size > ANSWER_BYTES_MAX:
                    return False
    except TimeoutError:
        return False
    return True


def _failure(error: BaseException, attempt_s: float) -> Failure:
    if isinstance(error, Refused):
        return Failure("address", str(error)[:REASON_CHARACTERS_MAX])
    if isinstance(error, TimeoutError | httpcore.TimeoutException):
        return Failure("timeout", f"no answer within {attempt_s:g} s")
    text = " ".join(str(error).split()) or type(error).__name__
    kind = (
        "tls"
        if "CERTIFICATE" in text or "SSL" in text
        else next((kind for each, kind in _KINDS if isinstance(error, each)), "protocol")
    )
    printable = "".join(each if each.isprintable() else "?" for each in text)
    return Failure(kind, f"{kind}: {printable}"[:REASON_CHARACTERS_MAX])


class Names:
    """Resolves names, each in a daemon thread: a resolver that hangs holds up no other name, and not the end of the process."""

    def __init__(self, addresses_of: Callable[[str, int], list[str]] | None = None) -> None:
        self._addresses_of = addresses_of or _addresses_of
        self._running = 0

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host. Raises ``OSError``."""
        if self._running >= RESOLUTIONS_MAX:
            raise OSError(f"{RESOLUTIONS_MAX} names are being resolved already")
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()
        self._running += 1
        Thread(target=self._run, args=(loop, found, host, port), name="resolver", daemon=True).start()
        return await found

    def _run(self, loop: asyncio.AbstractEventLoop, found: asyncio.Future[list[str]], host: str, port: int) -> None:
        result: list[str] | OSError
        try:
            result = self._addresses_of(host, port)
        except (OSError, UnicodeError) as error:
            result = error if isinstance(error, OSError) else OSError(str(error))
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._set, found, result)

    def _set(self, found: asyncio.Future[list[str]], result: list[str] | OSError) -> None:
        self._running -= 1
        if found.done():  # nobody waits any more
            return
        if isinstance(result, OSError):
            found.set_exception(result)
        else:
            found.set_result(result)


def _addresses_of(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
