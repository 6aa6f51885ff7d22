# SPDX-License-Identifier: Apache-2.0
"""Takes away from a process, permanently, everything of the machine that executing a lane does not need.

Landlock and seccomp of Linux let a process without privileges do that. Landlock is about files: afterwards the process reads Python, the
system's libraries and what is on the import path, and nothing else, and writes no file. So it cannot read files or environments with
secrets, although they belong to the same user. seccomp is about everything else that a system call reaches (`FORBIDDEN`): the process opens
no socket, starts no process, reaches no other one, and has no memory that its limits do not see. Sources: Linux,
Documentation/userspace-api/landlock.rst and seccomp_filter.rst.
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Numbers of the system calls, the same on every architecture."""
_VERSION: Final = 1
_PATH_BENEATH: Final = 1
_NO_NEW_PRIVS: Final = 38

_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3

_FILE_RIGHTS: Final = ((1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15))
"""The rights to files, by the version of the interface that has them first."""
_NETWORK_VERSION, _SCOPE_VERSION = 4, 6
_BOTH: Final = 0b11
"""Binding and connecting of TCP; signals and abstract sockets."""

_SYSTEM: Final = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom", "/dev/random")

_LIBRARIES: Final = (".py", ".pyc", ".so", ".zip", ".whl", ".pth")
_METADATA: Final = (".dist-info", ".egg-info")


FORBIDDEN: Final = {
    "x86_64": (0xC000003E, {
        "socket": 41, "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "setsid": 112, "setpgid": 109,
        "setpriority": 141, "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setparam": 142, "sched_setattr": 314,
        "ioprio_set": 251, "setrlimit": 160, "timer_create": 222, "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "msgget": 68,
        "mq_open": 240, "memfd_create": 319, "memfd_secret": 447, "io_uring_setup": 425, "ptrace": 101, "process_vm_readv": 310,
        "process_vm_writev": 311, "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "tkill": 200,
        "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297, "unshare": 272, "setns": 308, "mount": 165, "umount2": 166, "chroot": 161,
        "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250, "add_key": 248, "request_key": 249, "personality": 135,
        "init_module": 175, "finit_module": 313, "reboot": 169, "chmod": 90, "fchmod": 91, "fchmodat": 268, "fchmodat2": 452,
        "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260, "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280,
        "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
    }, {"clone": 56, "clone3": 435, "prlimit64": 302, "kill": 62, "tgkill": 234}),
    "aarch64": (0xC00000B7, {
        "socket": 198, "execve": 221, "execveat": 281, "setsid": 157, "setpgid": 154,
        "setpriority": 140, "sched_setaffinity": 122, "sched_setscheduler": 119, "sched_setparam": 118, "sched_setattr": 274,
        "ioprio_set": 30, "setrlimit": 164, "timer_create": 107, "shmget": 194, "shmat": 196, "shmctl": 195, "semget": 190, "msgget": 186,
        "mq_open": 180, "memfd_create": 279, "memfd_secret": 447, "io_uring_setup": 425, "ptrace": 117, "process_vm_readv": 270,
        "process_vm_writev": 271, "pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424, "tkill": 130,
        "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "unshare": 97, "setns": 268, "mount": 40, "umount2": 39, "chroot": 51,
        "bpf": 280, "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219, "add_key": 217, "request_key": 218, "personality": 92,
        "init_module": 105, "finit_module": 273, "reboot": 142, "fchmod": 52, "fchmodat": 53, "fchmodat2": 452,
        "fchown": 55, "fchownat": 54, "utimensat": 88,
        "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
    }, {"clone": 220, "clone3": 435, "prlimit64": 261, "kill": 129, "tgkill": 131}),
}  # fmt: skip
"""By machine: its number, system calls that end the process, and those that do so depending on their arguments. Source: Linux, headers
asm/unistd_64.h and asm-generic/unistd.h."""

FORKS: Final = frozenset({"fork", "vfork", "clone", "clone3", "setsid", "timer_create", "kill", "tgkill"})
"""What a process may do that copies itself for each block; a copy may not."""

_SECCOMP, _FILTER = 22, 2
_LOAD, _JUMP_EQUAL, _JUMP_ABOVE, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _MACHINE_AT = 0, 4
_ALLOW_IT, _TRAP_IT, _KILL_IT, _ERROR = 0x7FFF0000, 0x00030000, 0x80000000, 0x00050000
_NO_CALL: Final = 38
"""ENOSYS: the C library then starts a thread by `clone`, whose arguments a filter can see."""
_THREAD: Final = 0x10000
"""CLONE_THREAD."""
_X32: Final = 0x40000000
"""From this number on, calls of another form of x86-64."""


def confine(import_path: Iterable[str], *, forks: bool = False) -> list[str]:
    """Confine this process permanently, and return what of that the system cannot do. With ``forks`` it may do `FORKS`."""
    libc = ctypes.CDLL(None, use_errno=True)
    missing = [] if _restrict_files(libc, import_path) else ["this system has no Landlock"]
    return missing if forbid(forks=forks) else [*missing, "this system has no seccomp, or another machine's calls"]


def forbid(*, forks: bool = False) -> bool:
    """Let a system call that is forbidden end this process with SIGSYS from now on; return whether the system can do that."""
    if sys.platform != "linux" or platform.machine() not in FORBIDDEN:
        return False
    program = b"".join(_filter(*FORBIDDEN[platform.machine()], os.getpid(), FORKS if forks else frozenset()))
    libc = ctypes.CDLL(None, use_errno=True)
    kept = ctypes.create_string_buffer(program)
    about = struct.pack("@HP", len(program) // 8, ctypes.addressof(kept))
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    return bool(libc.prctl(_SECCOMP, _FILTER, ctypes.c_char_p(about), 0, 0) == 0)


def _filter(
    machine: int, always: Mapping[str, int], sometimes: Mapping[str, int], own: int, allowed: frozenset[str]
) -> Iterator[bytes]:
    """Yield the instructions of a filter. A thread is no process; limits may be read, and signals sent to oneself."""

    def step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("<HBBI", code, if_true, if_false, value)

    def argument(number: int) -> bytes:  # its lower half
        return step(_LOAD, 16 + 8 * number)

    allow, trap = step(_RETURN, _ALLOW_IT), step(_RETURN, _TRAP_IT)
    yield from (step(_LOAD, _MACHINE_AT), step(_JUMP_EQUAL, machine, 1), step(_RETURN, _KILL_IT))
    yield from (step(_LOAD, _NUMBER_AT), step(_JUMP_ABOVE, _X32, 0, 1), step(_RETURN, _KILL_IT))
    for name, number in always.items():
        if name not in allowed:
            yield from (step(_JUMP_EQUAL, number, 0, 1), trap)
    bodies = {
        "clone": [argument(0), step(_JUMP_SET, _THREAD, 0, 1), allow, trap],
        "clone3": [step(_RETURN, _ERROR | _NO_CALL)],
        "prlimit64": [argument(0), step(_JUMP_EQUAL, 0, 1), trap, argument(2), step(_JUMP_EQUAL, 0, 1), trap, allow],
        "kill": [argument(0), step(_JUMP_EQUAL, own, 0, 1), allow, trap],
        "tgkill": [argument(0), step(_JUMP_EQUAL, own, 0, 1), allow, trap],
    }
    for name, body in bodies.items():
        if name not in allowed:
            yield from (step(_JUMP_EQUAL, sometimes[name], 0, len(body)), *body)
    yield allow


def _restrict_files(libc: ctypes.CDLL, import_path: Iterable[str]) -> bool:
    """Restrict this process to some files, and return whether the system can do that."""
    version = _call(libc, _CREATE_RULESET, None, 0, _VERSION) if sys.platform == "linux" else -1
    if version < 1:
        return False
    handled = sum(rights for since, rights in _FILE_RIGHTS if since <= version)
    attributes = struct.pack(
        "<QQQ", handled, _BOTH if version >= _NETWORK_VERSION else 0, _BOTH if version >= _SCOPE_VERSION else 0
    )
    size = 24 if version >= _SCOPE_VERSION else 16 if version >= _NETWORK_VERSION else 8
    rules = _call(libc, _CREATE_RULESET, attributes, size, 0)
    if rules < 0:
        return False
    try:
        for path, rights in _readable(import_path):
            _allow(libc, rules, path, rights)
        _allow(libc, rules, os.devnull, _READ_FILE | _WRITE_FILE)
        libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        return _call(libc, _RESTRICT_SELF, rules, 0) == 0
    finally:
        os.close(rules)


def _readable(import_path: Iterable[str]) -> Iterable[tuple[str, int]]:
    """Yield what the process reads: whole folders of Python and the system, and on the import path what can be imported."""
    whole = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    for folder in sorted({*whole, *_SYSTEM}):
        yield folder, _READ_FILE | _READ_DIR
    for place in import_path:
        yield place, _READ_FILE if os.path.isfile(place) else _READ_DIR  # noqa: PTH113
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                if entry.name.endswith((*_LIBRARIES, *_METADATA)) or Path(entry.path, "__init__.py").exists():
                    yield entry.path, _READ_FILE | _READ_DIR


def _allow(libc: ctypes.CDLL, rules: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine
        return
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= ~_READ_DIR
        _call(libc, _ADD_RULE, rules, _PATH_BENEATH, struct.pack("<Qi", rights, opened), 0)
    finally:
        os.close(opened)


def _call(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    return int(
        libc.syscall(
            ctypes.c_long(number), *(ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
        )
    )
