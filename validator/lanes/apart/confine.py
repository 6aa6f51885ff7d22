# SPDX-License-Identifier: Apache-2.0
"""Takes away from a process, permanently, everything of the machine that executing a lane does not need.

Landlock of Linux lets a process without privileges do that. Afterwards it, and whatever it starts, reads Python, the system's libraries and
what is on the import path, and nothing else; writes no file; opens no TCP connection; and reaches no other process by signals or as a
debugger. So it cannot read files or environments with secrets, although they belong to the same user. Source: Linux, Documentation/
userspace-api/landlock.rst.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable
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


def confine(import_path: Iterable[str]) -> bool:
    """Confine this process permanently, and return whether the system can do that."""
    libc = ctypes.CDLL(None, use_errno=True)
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
