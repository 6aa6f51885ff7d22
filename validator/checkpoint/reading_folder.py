# SPDX-License-Identifier: Apache-2.0
"""The temporary folder in which a process reads the checkpoint of a job, and the removal of those that killed processes have left.

A process holds a lock on its folder as long as it lives. So any other process, in another container too, knows that a folder is left over
if it gets the lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFIX: Final = "reading-state-"
"""Begins the names of these folders in a job's folder."""


@contextmanager
def reading_folder(directory: Path) -> Iterator[Path]:
    """Yield a temporary folder next to the checkpoint, where links to its files work; elsewhere if that place is not writable.

    First removes the folders there whose processes are gone.
    """
    _remove_left(directory)
    try:
        folder, lock = _locked_folder(directory)
    except OSError:
        with tempfile.TemporaryDirectory(prefix=f"validator-{PREFIX}") as path:
            yield Path(path).absolute()
        return
    try:
        yield folder.absolute()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(directory: Path) -> tuple[Path, int]:
    """Make a folder, and return it with the descriptor that holds its lock. Raises ``OSError``."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=directory))
        with suppress(
            FileNotFoundError, BlockingIOError
        ):  # another process has found it without a lock, and removes it
            return folder, _lock(folder)


def _remove_left(directory: Path) -> None:
    for folder in sorted(directory.glob(f"{PREFIX}*")):
        with suppress(OSError):
            lock = _lock(folder, needed=True)
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path, *, needed: bool = False) -> int:
    """Return a descriptor that holds the lock of a folder, or none where files cannot be locked, unless it is ``needed``.

    Raises ``BlockingIOError`` if another process has the lock, ``FileNotFoundError`` if the folder is gone, and another ``OSError``.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if needed or isinstance(error, BlockingIOError):
                raise
        if not os.path.samestat(os.fstat(descriptor), folder.stat()):
            raise FileNotFoundError(folder)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
