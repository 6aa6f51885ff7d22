# SPDX-License-Identifier: Apache-2.0
"""Sums of the small files by which Spark knows where it is: the offsets of each batch, and its commit.

A changed bit there is still an offset, and inputs would be skipped or read again. On a cluster Spark's driver writes a sum next to each of
its files (``.17.crc``), which it compares when it reads them. In a local job it writes none, since a crash between renaming the two would
lose a good file. So the job itself adds the sums of a batch once that is complete, in the same form. State has its own: RocksDB's of each
block, and those of changelogs and zips.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from validator.checkpoint.files import COMMITS, OFFSETS, consumed_by_batch, last_begun_batch, numbered
from validator.errors import UserError

_HEADER: Final = Struct(">4sI")
"""`_MAGIC`, and the bytes of the file that each sum is of. Source: `ChecksumFileSystem` of Hadoop 3."""
_MAGIC: Final = b"crc\0"
_SUM: Final = Struct(">I")
_PART_BYTES: Final = 512

REMEDY: Final = "restore the checkpoint from a backup, or remove it and start with --rebuild (docs/upgrade.md)"


def keep_sums(checkpoint: Path) -> None:
    """Write the sums that are missing of complete batches. A disk that takes none is left to Spark."""
    with suppress(OSError):
        for commit in numbered(checkpoint / COMMITS, Path.is_file):
            for path in (checkpoint / OFFSETS / commit.name, commit):
                if not _sums_of(path).exists():
                    written = path.with_name(f".{path.name}.crc.new")
                    written.write_bytes(_HEADER.pack(_MAGIC, _PART_BYTES) + _sums(path.read_bytes(), _PART_BYTES))
                    written.replace(_sums_of(path))


def refuse_damaged(checkpoint: Path) -> None:
    """Raise `UserError` if the files from which Spark continues are not as they were written.

    Errors, in order: a file has another sum than the one next to it; a batch ends before the one before it.
    """
    last = last_begun_batch(checkpoint)
    needed = [
        path
        for folder in (OFFSETS, COMMITS)
        for path in numbered(checkpoint / folder, Path.is_file)
        if int(path.name) >= last - 1
    ]
    for path in needed:
        if not _has_its_sum(path):
            raise UserError(
                f"{path} does not have the sum that {_sums_of(path).name} next to it says: one of them has changed since it was written, "
                f"as by a fault of the disk: {REMEDY}"
            )


def refuse_backwards(checkpoint: Path) -> None:
    """Raise `UserError` if the last batch of a query with one source ends before the batch before it, or lacks a partition of it."""
    last = last_begun_batch(checkpoint)
    if not (checkpoint / OFFSETS / str(last - 1)).is_file():
        return
    before, after = consumed_by_batch(checkpoint, last - 1), consumed_by_batch(checkpoint, last)
    for (topic, partition), offset in sorted(before.items()):
        end = after.get((topic, partition))
        if end is None or end < offset:
            found = "has no such partition" if end is None else f"says {end}"
            raise UserError(
                f"{checkpoint / OFFSETS / str(last)}: batch {last - 1} ends at offset {offset} of {topic}[{partition}], and batch {last} "
                f"{found}: one of the two files has changed since it was written: {REMEDY}"
            )


def _has_its_sum(path: Path) -> bool:
    """Return whether a file has the sums that are next to it, if there are any: a crash may leave no file of them, or an empty one."""
    try:
        kept, data = _sums_of(path).read_bytes(), path.read_bytes()
    except FileNotFoundError:
        return True
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    if len(kept) <= _HEADER.size:
        return True
    magic, part_bytes = _HEADER.unpack_from(kept)
    return magic == _MAGIC and part_bytes > 0 and kept[_HEADER.size :] == _sums(data, part_bytes)


def _sums_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _sums(data: bytes, part_bytes: int) -> bytes:
    parts = (data[at : at + part_bytes] for at in range(0, len(data), part_bytes))
    return b"".join(_SUM.pack(crc32(part)) for part in parts)
