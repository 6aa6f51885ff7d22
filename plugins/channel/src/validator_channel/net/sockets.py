# SPDX-License-Identifier: Apache-2.0
"""TCP sockets: options, and listening on every address of a host."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from typing import Any, Final

from validator_channel.net.limits import ConnectionLimits

_IDLE: Final = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))


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


async def listen(host: str | None, port: int, backlog: int) -> list[socket.socket]:
    """Return a listening socket for each address of a host, all with one port; 0 picks a free one. Raises ``OSError``."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
    )
    sockets: list[socket.socket] = []
    with ExitStack() as on_error:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            listening = on_error.enter_context(socket.socket(family, kind, protocol))
            listening.setblocking(False)  # noqa: FBT003
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((address[0], port, *address[2:]))
            port = listening.getsockname()[1]
            listening.listen(backlog)
            sockets.append(listening)
        on_error.pop_all()
    return sockets
