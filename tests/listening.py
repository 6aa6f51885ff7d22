# SPDX-License-Identifier: Apache-2.0
"""What processes open to others: the addresses that they listen on, and the files that others can read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

LOOPBACK: Final = {"loopback"}
"""The only address that a process of the product may listen on."""

_LOOPBACK: Final = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
"""127.0.0.1, the same mapped into IPv6, and ::1, as Linux writes them."""

_TCP_LISTENS: Final = "0A"
_UDP_IS_BOUND: Final = "07"

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
    sockets = dict(_sockets())
    for pid in with_children(roots):
        with suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
            for handle in os.scandir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    if (address := sockets.get(str(Path(handle.path).readlink()))) is not None:
                        yield name, address


def _sockets() -> Iterator[tuple[str, str]]:
    """Yield the listening sockets of this machine, as the links in /proc name them, with their addresses."""
    for table, state in (
        ("tcp", _TCP_LISTENS),
        ("tcp6", _TCP_LISTENS),
        ("udp", _UDP_IS_BOUND),
        ("udp6", _UDP_IS_BOUND),
    ):
        for row in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            columns = row.split()
            address = columns[1].partition(":")[0]
            if columns[3] == state:
                yield f"socket:[{columns[9]}]", "loopback" if address in _LOOPBACK else address


def with_children(roots: set[int]) -> set[int]:
    """Return these processes and all below them."""
    parents = {}
    for folder in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[1]
            )
    found = set(roots)
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return found
