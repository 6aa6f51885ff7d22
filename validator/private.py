# SPDX-License-Identifier: Apache-2.0
"""Folders and files that only their owner may read: 0700 and 0600, those of earlier versions included."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from pathlib import Path

UMASK: Final = 0o077
"""What the product's long-running processes take away from the rights of all files that they make."""


def make_private(folder: Path) -> None:
    """Make a folder, or take away the rights of others to an existing one of ours. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & UMASK and folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700)


def write_private(path: Path, text: str) -> None:
    """Replace a file's contents at once; nobody else can read it at any time. Raises `OSError`."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


def open_private(path: Path) -> BinaryIO:
    """Open a file to append to. Raises `OSError`."""
    file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
    os.fchmod(file.fileno(), 0o600)
    return file
