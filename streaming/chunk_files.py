# SPDX-License-Identifier: Apache-2.0
"""Files through which the workers that decode hand large chunks to the lanes' workers, in a local job.

Spark would copy each chunk between five processes and files, all of it after the batch before has ended, while no lane executes: a sixth
of a batch's time. With a file Spark passes on only where the chunk is, and what is read ahead is in its file already when
Spark asks for it. A chunk lives for one batch, so its file is usually removed before the system writes it to the disk.

The files of one start of the query have a folder, which the next start removes: after a worker has died, nothing that it left is used.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

FILED_BYTES_MIN: Final = 64 * 1024
"""Bytes of a chunk that goes to a file. Passing on a smaller one costs less than opening a file, and no latency."""

_FOLDER: Final = "chunks"
_NUMBER: Final = count()


class PassedOn(NamedTuple):
    """What goes through Spark of a chunk: itself, or the file that has it from ``position`` on."""

    chunk: bytes
    file: str
    position: int
    size: int


def whole(packed: bytes) -> PassedOn:
    """Pass on the chunk itself."""
    return PassedOn(packed, "", 0, len(packed))


def chunk_of(passed_on: PassedOn) -> bytes:
    """Return a chunk. Raises `OSError` if its file does not have it."""
    chunk, file, position, size = passed_on
    if not file:
        return chunk
    with open(file, "rb", buffering=0) as opened:  # noqa: PTH123 - half the time
        found = os.pread(opened.fileno(), size, position)
    if len(found) < size:
        raise OSError(f"{file}: expected {size} bytes at {position}, found {len(found)}")
    return found


class ChunkFile:
    """The file of one task for one batch; it is made when the first chunk needs it. ``folder`` is empty if there are no files."""

    def __init__(self, folder: str, batch: int) -> None:
        self.size = 0
        """Bytes that the file has."""
        self._folder = folder
        self._batch = batch
        self._path = ""
        self._file = -1

    def put(self, packed: bytes) -> PassedOn:
        """Pass on a chunk: by the file if it is large and the disk takes it."""
        if not self._folder or len(packed) < FILED_BYTES_MIN:
            return whole(packed)
        try:
            if self._file < 0:
                self._path = f"{self._folder}/{self._batch}-{os.getpid()}-{next(_NUMBER)}"
                self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            written = 0
            while written < len(packed):
                written += os.pwrite(self._file, memoryview(packed)[written:], self.size + written)
        except OSError:  # it is full, or a later start of the query has removed the folder
            return whole(packed)
        position, self.size = self.size, self.size + len(packed)
        return PassedOn(b"", self._path, position, len(packed))

    def close(self) -> None:
        """Close the file, which stays until its batch is over."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def chunk_folder(scratch: Path, run: str) -> str:
    """Make a folder for the files of one start of the query, remove those of earlier ones, and return its path.

    The path is empty, so that there are no files, if it is not text, which it has to be in the rows of a stage.
    """
    remove_chunks(scratch)
    made = scratch.absolute() / _FOLDER / run
    made.mkdir(mode=0o700, parents=True)
    try:
        str(made).encode()
    except UnicodeEncodeError:
        return ""
    return str(made)


def remove_chunks(scratch: Path) -> None:
    """Remove the files of all starts of the query."""
    shutil.rmtree(scratch / _FOLDER, ignore_errors=True)


def remove_files_before(folder: str, batch: int) -> None:
    """Remove the files of the batches before one, which are over."""
    if not folder:
        return
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError, ValueError):  # it may be somebody else's
                if int(entry.name.partition("-")[0]) < batch:
                    os.unlink(entry.path)  # noqa: PTH108 - as it was found
