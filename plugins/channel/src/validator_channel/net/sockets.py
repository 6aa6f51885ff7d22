# SPDX-License-Identifier: Apache-2.0
"""TCP: addresses, sockets, and how often one address may come. Source: channel_rules 3.3 "handshake flood"."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import re
import socket
from collections import OrderedDict
from contextlib import ExitStack
from typing import Any, Final
from weakref import WeakKeyDictionary

from validator_channel.limits import TLS_RECORD_BYTES, ConnectionLimits

PORT_MAX: Final = 65_535
_ADDRESS: Final = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]\s]+)):([0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; an IPv6 address stands in brackets. Raises ``ValueError``."""
    found = _ADDRESS.fullmatch(text)
    if found is None or int(found[3]) > PORT_MAX:
        raise ValueError(f"expected HOST:PORT, found {text!r}")
    return found[1] or found[2], int(found[3])


_IDLE: Final = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
_MISSING: Final = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}


def keep_alive(connection: Any, limits: ConnectionLimits) -> None:
    """Make TCP notice a dead peer (R20), and send each write at once."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (_IDLE, limits.keepalive_idle),
        (getattr(socket, "TCP_KEEPINTVL", None), limits.keepalive_interval),
        (getattr(socket, "TCP_KEEPCNT", None), limits.keepalive_count),
    ):
        if option is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)


_read_buffers: WeakKeyDictionary[asyncio.AbstractEventLoop, bytearray] = WeakKeyDictionary()


def share_read_buffer(transport: asyncio.BaseTransport, size: int) -> None:
    """Give the TLS transports of an event loop one read buffer, in place of the 256 KiB that asyncio allocates for each.

    There is no parameter for that, and they are several times as large as everything else of an idle session. A loop with a selector
    fills the buffer and hands its bytes to OpenSSL in one step, so no two connections use it at a time. In another loop each has its own.
    A transport without one is left alone.
    """
    protocol = getattr(transport, "_ssl_protocol", None)
    if not all(hasattr(protocol, name) for name in ("max_size", "_ssl_buffer", "_ssl_buffer_view")):
        return
    loop = asyncio.get_running_loop()
    buffer = _read_buffers.get(loop, b"")
    if len(buffer) != size:
        buffer = bytearray(size)
        if isinstance(loop, asyncio.SelectorEventLoop):
            _read_buffers[loop] = buffer
    vars(protocol).update(max_size=TLS_RECORD_BYTES, _ssl_buffer=buffer, _ssl_buffer_view=memoryview(buffer))


async def listen(host: str | None, port: int, backlog: int) -> list[socket.socket]:
    """Return a listening socket for each address of a host, all with one port; 0 picks a free one.

    Addresses that this machine does not have, such as those of IPv6, are left out. Raises ``OSError`` if none is left, or for a port that
    is in use.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    missing: OSError | None = None
    sockets: list[socket.socket] = []
    with ExitStack() as on_error:
        for family, _, _, _, address in dict.fromkeys(found):
            try:
                listening = _bound(family, (address[0], port, *address[2:]))
            except OSError as error:
                if error.errno not in _MISSING:
                    raise
                missing = error
                continue
            sockets.append(on_error.enter_context(listening))
            port = listening.getsockname()[1]
            listening.listen(backlog)
        on_error.pop_all()
    if missing is not None and not sockets:
        raise missing
    return sockets


def _bound(family: int, address: tuple[Any, ...]) -> socket.socket:
    with ExitStack() as on_error:
        listening = on_error.enter_context(socket.socket(family, socket.SOCK_STREAM))
        listening.setblocking(False)  # noqa: FBT003
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        on_error.pop_all()
    return listening


def shown_address(address: tuple[Any, ...]) -> str:
    """Return host and port of a socket's address as one text."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class TokenBucket:
    """``burst`` tokens at the start, and ``per_s`` new ones each second; ``now`` is in seconds of a monotonic clock."""

    def __init__(self, per_s: float, burst: int, now: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def set_rate(self, per_s: float, burst: int, now: float) -> None:
        """Change rate and burst; tokens above the new burst are lost."""
        self._fill(now)
        self._per_s, self._burst = per_s, burst
        self._tokens = min(self._tokens, float(burst))

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self._fill(now)
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_s

    def _fill(self, now: float) -> None:
        self._tokens = min(float(self._burst), self._tokens + max(0.0, now - self._at) * self._per_s)
        self._at = now


class TokenBuckets:
    """A token bucket for each key: ``burst`` events at once and ``per_second`` in the long run; remembers at most ``keys_max`` keys."""

    def __init__(self, per_second: float, burst: int, keys_max: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._keys_max = keys_max
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, key: str, now: float) -> bool:
        """Take a token of a key at a time in seconds, and return whether there was one; the key seen longest ago is forgotten."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._per_second, self._burst, now)
        self._buckets.move_to_end(key)
        if len(self._buckets) > self._keys_max:
            self._buckets.popitem(last=False)
        return not bucket.take(now)


def address_key(host: str) -> str:
    """Return under which key an address is limited: an IPv4 address itself, an IPv6 address with its /64 network."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), 64), strict=False))
