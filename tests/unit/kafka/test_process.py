# SPDX-License-Identifier: Apache-2.0
"""A process counts as gone only when all its threads have ended."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from validator.kafka import process as process_module
from validator.kafka.process import start_time, stop_process

FIRST_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("started", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="distinguishes threads by Linux's /proc")
def test_process_with_dead_first_thread_still_runs() -> None:
    with subprocess.Popen([sys.executable, "-c", FIRST_THREAD_ENDS], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            stat = Path(f"/proc/{process.pid}/stat")
            deadline = time.monotonic() + 300
            while stat.read_text().rpartition(")")[2].split()[0] != "Z":
                assert time.monotonic() < deadline
                time.sleep(0.01)
            started = start_time(process.pid, reap=False)
            assert started is not None
            assert stop_process(process.pid, started, patience_s=10.0)
            assert start_time(process.pid) is None
        finally:
            process.kill()


def test_ended_process_is_gone_and_left_for_its_parent_to_reap() -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as process:
        deadline = time.monotonic() + 300
        while start_time(process.pid, reap=False) is not None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.wait() == 7


def test_process_that_ends_between_look_and_signal_counts_as_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"]) as process:
        process.wait()
        monkeypatch.setattr(process_module, "start_time", lambda _pid: "then")
        assert stop_process(process.pid, "then", patience_s=10.0)
