# SPDX-License-Identifier: Apache-2.0
"""Looks at a process from outside, and the file by which it shows what it does."""

from __future__ import annotations

import fcntl
import mmap
import os
import signal
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from validator.lanes.apart.process import PAGE_BYTES

WORDS_BYTES_MAX: Final = 64 * 1024
"""Bytes of the last words of a process."""
WORDS_FILE_BYTES: Final = PAGE_BYTES + WORDS_BYTES_MAX

PROCESSES_MAX: Final = 10_000
"""Processes that are looked at, of those that a lane's has started: they may be new ones all the time."""


def below(*pids: int) -> list[int]:
    """Return the children of processes, and theirs."""
    found: list[int] = []
    left = list(pids)
    while left and len(found) < PROCESSES_MAX:
        children = children_of(left.pop())
        found += children
        left += children
    return found


def children_of(pid: int) -> list[int]:
    """Return the children of a process."""
    found: list[int] = []
    with suppress(OSError):
        for each in os.scandir(f"/proc/{pid}/task"):
            found += map(int, Path(each.path, "children").read_text(encoding="ascii").split())
    return found


def occupied(pid: int) -> int:
    """Return the bytes that a process has in memory, those included that it shares; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError):
        return 0


def how(code: int | None) -> str:
    """Return in words how a process has ended."""
    if code is None:
        return "unknown how"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # one that has no name
        return f"signal {-code}"


def where(words: str) -> str:
    """Return the innermost place that a process was at, as text to append; empty if its last words do not say."""
    found = next((line.strip() for line in words.splitlines() if line.startswith("  File ")), "")
    return f": {found}" if found else ""


def words_file() -> IO[bytes]:
    """Return a file with the page of a process's calls and room for its last words, whose size nothing changes."""
    if not hasattr(os, "memfd_create"):
        words = tempfile.TemporaryFile()  # noqa: SIM115 - the process's
        words.truncate(WORDS_FILE_BYTES)
        return words
    number = os.memfd_create("words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(number, WORDS_FILE_BYTES)
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return os.fdopen(number, "r+b", buffering=0)
