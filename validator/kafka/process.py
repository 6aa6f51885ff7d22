# SPDX-License-Identifier: Apache-2.0
"""Distinguishes our process from another one that later got the same process id."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path


def start_time(pid: int, *, reap: bool = True) -> str | None:
    """Return a process's start time as the system reports it, or None if it is gone or a zombie without live threads.

    A child of ours that has ended is reaped, which loses its exit code; without ``reap`` it is left to whoever waits for it.
    """
    if reap:
        with suppress(ChildProcessError):
            # an ended child stays visible until it is reaped
            os.waitpid(pid, os.WNOHANG)
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        # The field numbers of proc(5) minus 3. The first thread may be dead while others still hold files and ports.
        state, threads, started = fields[0], int(fields[17]), fields[19]
        return None if state == "Z" and threads <= 1 else started
    output = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return output.stdout.strip() or None


def stop_process(pid: int, started: str, *, patience_s: float) -> bool:
    """Stop the process if it still is the one with that start time; return whether it was.

    Sends SIGTERM first, and SIGKILL after `patience_s`.
    """
    if start_time(pid) != started:
        return False
    for how, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            return True  # it has ended since the look
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if start_time(pid) != started:
                return True
            time.sleep(0.02)
    return True
