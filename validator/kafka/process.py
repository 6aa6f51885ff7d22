# SPDX-License-Identifier: Apache-2.0
"""Tells a process of ours from a stranger that was given its number later."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path


def start_time(pid: int, *, reap: bool = True) -> str | None:
    """Return when a process started, in the system's own words, or None if it is gone, or a zombie to its last thread.

    A child of ours that has ended is reaped, which loses its exit code; without ``reap`` it is left to whoever waits for it.
    """
    if reap:
        with suppress(ChildProcessError):
            # a child that ended stays visible until somebody asks
            os.waitpid(pid, os.WNOHANG)
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        # The numbers of proc(5) less 3. Its first thread may be dead while others still hold its files and ports.
        state, threads, started = fields[0], int(fields[17]), fields[19]
        return None if state == "Z" and threads <= 1 else started
    told = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return told.stdout.strip() or None


def stop_process(pid: int, started: str, *, patience_s: float) -> bool:
    """Stop the process if it is still the one that started then; return whether it was.

    It is asked first (SIGTERM), killed after `patience_s`.
    """
    if start_time(pid) != started:
        return False
    for how, wait_s in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        os.kill(pid, how)
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline:
            if start_time(pid) != started:
                return True
            time.sleep(0.02)
    return True
