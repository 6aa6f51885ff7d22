# SPDX-License-Identifier: Apache-2.0
"""What a confined process can still do, and which system calls end it."""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import cache

import pytest

from validator.lanes.apart.confine import FORBIDDEN

BEGIN = """
import ctypes, os, resource, signal, socket, sys, threading
from validator.lanes.apart.confine import confine
path, forks = sys.argv[1], sys.argv[2:] == ["forks"]
print(*confine(sys.path, forks=forks), sep=", ", flush=True)
libc = ctypes.CDLL(None, use_errno=True)
"""


def confined(code: str, *given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BEGIN + code + "\nprint('done')", *(given or ("/tmp",))],
        capture_output=True,
        text=True,
        check=False,
    )


@cache
def lacks() -> str:
    return confined("").stdout


def can_restrict_files() -> bool:
    """Return whether this system has Landlock."""
    return "Landlock" not in lacks()


def can_forbid() -> bool:
    """Return whether this system has seccomp."""
    return "seccomp" not in lacks()


ALLOWED = {
    "a thread": "each = threading.Thread(target=print); each.start(); each.join()",
    "its limits": "assert resource.getrlimit(resource.RLIMIT_NOFILE)",
    "a signal to itself": "os.kill(os.getpid(), 0); signal.signal(signal.SIGALRM, print); signal.raise_signal(signal.SIGALRM)",
    "a timer": "signal.setitimer(signal.ITIMER_REAL, 0)",
    "memory": "bytearray(2**20)",
}
ENDING = {
    "a process": "os.fork()",
    "a process by C": "libc.fork()",
    "a process by vfork": "libc.syscall({vfork})",
    "TCP": "socket.socket()",
    "MPTCP": "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
    "a local socket": "socket.socket(socket.AF_UNIX)",
    "limits of others": "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))",
    "its own limits": "resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))",
    "a signal": "os.kill(os.getppid(), 0)",
    "a signal to its group": "os.killpg(0, 0)",
    "a session": "os.setsid()",
    "processors": "os.sched_setaffinity(0, {0})",
    "priorities": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "a memory file": "os.memfd_create('x')",
    "shared memory": "libc.shmget(0, 4096, 0o1600)",
    "a timer that nobody resets": "libc.timer_create(0, 0, 0)",
    "rights of a file": "os.chmod(path, 0o700)",
    "times of a file": "os.utime(path)",
    "rings": "libc.syscall(425, 8, 0)",
}


@pytest.mark.parametrize("what", ALLOWED)
def test_what_executing_needs_is_left(what: str) -> None:
    ended = confined(ALLOWED[what])
    assert (ended.returncode, ended.stdout.endswith("done\n")) == (0, True), ended.stderr


@pytest.mark.skipif(not can_forbid(), reason="this system has no seccomp, or is another machine")
@pytest.mark.parametrize("what", ENDING)
def test_what_reaches_beyond_the_process_ends_it(what: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    code = ENDING[what].replace("{vfork}", str(FORBIDDEN["x86_64"][1]["vfork"]))
    ended = confined(code, str(tmp_path_factory.mktemp("there")))
    assert (ended.returncode, "done" in ended.stdout) == (-signal.SIGSYS, False), ended.stderr


@pytest.mark.skipif(not can_forbid(), reason="this system has no seccomp, or is another machine")
def test_process_that_repeats_blocks_may_copy_itself_and_its_copies_may_not() -> None:
    code = """
from validator.lanes.apart.confine import forbid
pid = os.fork()
if not pid:
    assert forbid()
    os.fork()
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSYS
"""
    assert confined(code, "/tmp", "forks").returncode == 0


def test_machines_forbid_the_same_calls_but_those_that_only_one_has() -> None:
    (_, one, some), (_, other, others) = FORBIDDEN.values()
    assert some.keys() == others.keys()
    assert other.keys() <= one.keys()
    older = {"fork", "vfork", "chmod", "chown", "lchown", "utime", "utimes", "futimesat"}
    assert one.keys() - other.keys() == older
