# SPDX-License-Identifier: Apache-2.0
"""What processes open to others: the addresses that they listen on, and the files that others can read."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import psutil

LOOPBACK: Final = {"loopback"}
"""The only address that a process of the product may listen on."""


SAMPLE_S: Final = 0.2


@contextmanager
def listeners(*pids: int | None) -> Iterator[set[tuple[str, str]]]:
    """Yield a set that gets the name and address of each listening socket of these processes and all below them, while they run."""
    found: set[tuple[str, str]] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_S):
            found.update(_listening({pid for pid in pids if pid is not None}))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def shared(folder: Path) -> list[Path]:
    """Return what others may read in a folder, itself included."""
    found = []
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            if path.stat().st_mode & 0o077:
                found.append(path)
    return found


def _listening(roots: set[int]) -> Iterator[tuple[str, str]]:
    for pid in with_children(roots):
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            for each in process.net_connections("inet"):
                if each.status == psutil.CONN_LISTEN or (each.type == socket.SOCK_DGRAM and not each.raddr):
                    host = ip_address(each.laddr.ip)
                    plain = getattr(host, "ipv4_mapped", None) or host
                    yield process.name(), "loopback" if plain.is_loopback else str(host)


def with_children(roots: set[int]) -> set[int]:
    """Return these processes and all below them."""
    found = set(roots)
    for pid in roots:
        with suppress(psutil.NoSuchProcess):
            found |= {each.pid for each in psutil.Process(pid).children(recursive=True)}
    return found


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
