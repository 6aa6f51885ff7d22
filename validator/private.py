# SPDX-License-Identifier: Apache-2.0
"""Folders and files that only their owner may read: 0700 and 0600."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Final

from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADMINISTRATOR: Final = 0
"""ID of the user root."""

UMASK: Final = 0o077
"""What the product's long-running processes take away from the rights of all files that they make."""


def make_private(folder: Path) -> None:
    """Make a folder, or take away the rights of others to an existing one of ours.

    Raises `OSError`, and `UserError` if it belongs to another user, who could put links in the places of our files. For the
    administrator it may belong to anyone.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found, own = folder.stat(), os.geteuid()
    if found.st_uid not in (own, ADMINISTRATOR) and own != ADMINISTRATOR:
        raise UserError(
            f"{folder}: it belongs to another user, with ID {found.st_uid}; expected a folder of user {own}"
        )
    if found.st_mode & UMASK and found.st_uid == own:
        folder.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Replace a file, or a link, at once; nobody else can read it at any time. Raises `OSError`, also if a device or a folder is there."""
    with suppress(FileNotFoundError):
        mode = path.lstat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise OSError(errno.EINVAL, "Not a regular file", str(path))
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


def open_private(path: Path) -> BinaryIO:
    """Open a file to append to. Raises `OSError`."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    os.fchmod(file.fileno(), 0o600)
    return file


@contextmanager
def alone(path: Path, mode: int = 0o600) -> Iterator[None]:
    """Hold the lock of an empty file, which is made with ``mode`` if it is missing; one program at a time does. Raises `OSError`.

    Whoever may read the file may hold the lock.
    """
    with suppress(FileExistsError):
        made = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o600)
        os.fchmod(made, mode)
        os.close(made)
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
