# SPDX-License-Identifier: Apache-2.0
"""Reads the files of the job's checkpoint while the job uses it.

Spark writes a batch's offsets, then its state, then its commit, and removes files that are more than a few batches old. It never changes an
existing file. Only `follow_move` does, before a start.

*Sums.* A changed bit in the offsets of a batch, or in its commit, is still an offset, and inputs would be skipped or read again. On a
cluster Spark's driver writes a sum next to each of its files (``.17.crc``), which it compares when it reads them. In a local job it writes
none, since a crash between renaming the two would lose a good file. So the job itself adds the sums of a batch once that is complete, in
the same form. State has its own: RocksDB's of each block, and those of changelogs and zips.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any, Final, TypeVar
from zlib import crc32

from validator.errors import UserError, written_by_newer
from validator.topics import INPUT_TOPICS

T = TypeVar("T")

COMMITS, OFFSETS = "commits", "offsets"
"""Folders of the checkpoint with one file per batch."""

SNAPSHOT, CHANGELOG = ".zip", ".changelog"
"""Suffixes of the files of a state's version."""

_LOG_VERSION = "v1"
_IS_VERSION = re.compile(r"v\d+")
"""The first line of such a file."""


def last_committed_batch(checkpoint: Path) -> int:
    """Return the last committed batch. Raises `UserError` if there is no checkpoint, or no committed batch."""
    if not checkpoint.is_dir():
        raise UserError(
            f"{checkpoint}: there is no checkpoint: no job has run with this configuration's [job] directory"
        )
    batches = _batches(checkpoint, COMMITS)
    if not batches:
        raise UserError(f"{checkpoint}: the job has not finished a batch yet")
    return max(batches)


def consumed_by_batch(checkpoint: Path, batch: int) -> dict[tuple[str, int], int]:
    """Return, by topic and partition, the offset after the last record that the job had consumed with ``batch``.

    Raises `UserError` if the batch's file is missing or was not written by Spark.
    """

    def parse(_: str, sources: list[str]) -> dict[tuple[str, int], int]:
        (source,) = sources
        return _consumed([source])

    return _of_offsets(checkpoint, batch, parse)


def consumed_so_far(checkpoint: Path) -> dict[tuple[str, int], int]:
    """Return, by topic and partition, the offset after the last record of the last complete batch, of all sources; empty without a batch.

    Raises `UserError` as `consumed_by_batch`.
    """
    batch = max(_batches(checkpoint, COMMITS), default=None)
    return {} if batch is None else _of_offsets(checkpoint, batch, lambda _, sources: _consumed(sources))


def state_options(checkpoint: Path, batch: int) -> dict[str, str]:
    """Return the options of the session that determine the format of a batch's state. Raises `UserError` as `consumed_by_batch`."""

    def parse(session: str, _: list[str]) -> dict[str, str]:
        return {str(name): str(value) for name, value in json.loads(session)["conf"].items()}

    return _of_offsets(checkpoint, batch, parse)


def _consumed(sources: list[str]) -> dict[tuple[str, int], int]:
    return {
        (topic, int(partition)): int(offset)
        for source in sources
        for topic, partitions in json.loads(source).items()
        for partition, offset in partitions.items()
    }


def _of_offsets(checkpoint: Path, batch: int, parse: Callable[[str, list[str]], T]) -> T:
    """Return what is parsed from the line about the session and those about the query's sources."""
    path = checkpoint / OFFSETS / str(batch)
    try:
        version, _, rest = path.read_text(encoding="utf-8").partition("\n")
        if version != _LOG_VERSION and _IS_VERSION.fullmatch(version):
            raise written_by_newer(path, _LOG_VERSION, version)
        if version != _LOG_VERSION:
            raise ValueError(f"version {version!r}")
        session, *sources = rest.splitlines()
        return parse(session, sources)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise UserError(f"{path}: expected the offsets of a batch as Spark writes them: {error}") from error


def checkpoint_id(checkpoint: Path) -> str:
    """Return the id that Spark has given to a checkpoint. Raises `UserError`."""
    path = checkpoint / "metadata"
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: expected the id of a checkpoint as Spark writes it: {error}") from error


def has_checkpoint(checkpoint: Path) -> bool:
    """Return whether a job has begun a batch."""
    return bool(_batches(checkpoint, OFFSETS))


def last_begun_batch(checkpoint: Path) -> int:
    """Return the last batch that the job has begun; -1 if there is none."""
    return max(_batches(checkpoint, OFFSETS), default=-1)


def has_unfinished_batch(checkpoint: Path) -> bool:
    """Return whether the job has begun a batch that it did not complete; its next start repeats it."""
    return last_begun_batch(checkpoint) > max(_batches(checkpoint, COMMITS), default=-1)


def check_files(checkpoint: Path, prefix: str | None = None) -> None:
    """Raise `UserError` if a job cannot continue from the files of its checkpoint; ``prefix`` is given if its query has one source.

    Errors, in order: the state has files that are not Spark's; files have changed since they were written; the topics have another prefix;
    a batch ends before the one before it. Each may be of a newer version.
    """
    refuse_foreign(checkpoint)
    refuse_damaged(checkpoint)
    if prefix is not None:
        refuse_another_prefix(checkpoint, prefix)
        refuse_backwards(checkpoint)


def refuse_another_prefix(checkpoint: Path, prefix: str) -> None:
    """Raise `UserError` if a checkpoint belongs to topics with another prefix: one batch on other topics would make it unusable."""
    batches = _batches(checkpoint, OFFSETS)
    if not batches:
        return
    topics = {topic for topic, _ in consumed_by_batch(checkpoint, max(batches))}
    # a later program may read more topics, so only the prefixes are compared
    found = sorted({topic.removesuffix(name) for topic in topics for name in INPUT_TOPICS if topic.endswith(name)})
    if topics and found != [prefix]:
        raise UserError(
            f"[topics] prefix: {checkpoint} belongs to topics with the prefix {', '.join(map(repr, found))}, found "
            f"{prefix!r}: put the prefix back, or use another [job] directory with it"
        )


def refuse_foreign(checkpoint: Path) -> None:
    """Raise `UserError` for the first file that Spark would take for one of its state, and then not read that state at all.

    It takes every name with its suffix, such as ``._5.zip`` of another machine; it leaves other names alone.
    """
    for operator in numbered(checkpoint / "state", Path.is_dir):
        for partition in numbered(operator, Path.is_dir):
            for path in sorted(partition.iterdir()):
                if path.suffix in (SNAPSHOT, CHANGELOG) and not _is_number(path.stem):
                    raise UserError(
                        f"{path}: expected only files that Spark has written, whose names here are numbers: remove this one"
                    )


def follow_move(checkpoint: Path) -> bool:
    """Let a checkpoint that was moved or copied name its own files; return whether it named others. No job may be using it.

    Spark keeps the paths of the schemas of its state as they were when they were written, and would look for them there.
    """
    moved = False
    for operator in numbered(checkpoint / "state", Path.is_dir):
        for path in numbered(operator / "_metadata" / "v2", Path.is_file):
            version, metadata = _state_metadata(path)
            stores = metadata["stateStoreInfo"]
            before = json.dumps(stores)
            for store in stores:
                store["stateSchemaFilePaths"] = [_beside(operator, each) for each in store["stateSchemaFilePaths"]]
            if json.dumps(stores) == before:
                continue
            written = path.with_name(f".{path.name}.moved")
            written.write_text(f"{version}\n{json.dumps(metadata, separators=(',', ':'))}", encoding="utf-8")
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)  # it is the sum of the earlier bytes
            written.replace(path)
            moved = True
    return moved


def _state_metadata(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the version and the metadata of a stateful operator. Raises `UserError`."""
    try:
        version, _, body = path.read_text(encoding="utf-8").partition("\n")
        metadata: dict[str, Any] = json.loads(body)
        for store in metadata["stateStoreInfo"]:
            for each in store["stateSchemaFilePaths"]:
                each.rpartition("/")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path}: expected the metadata of a state as Spark writes it: {error}") from error
    return version, metadata


def _beside(operator: Path, schema: str) -> str:
    """Return the path of a schema in an operator's folder as Spark writes it, if the file is there, else the path as it is."""
    here = operator / "_stateSchema" / schema.rpartition("/_stateSchema/")[2]
    return f"file:{here}" if schema.startswith("file:") and here.is_file() else schema


def _batches(checkpoint: Path, folder: str) -> list[int]:
    return [int(path.name) for path in numbered(checkpoint / folder, Path.is_file)]


def numbered(folder: Path, kind: Callable[[Path], bool]) -> list[Path]:
    """Return, by their numbers, the files or folders that Spark names by a number; empty without the folder.

    A folder also holds sums of files (``.0.crc``), files that are being written, and what the storage, other machines and editors leave.
    """
    if not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if _is_number(path.name) and kind(path))
    return sorted(found, key=lambda path: int(path.name))


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and str(int(name)) == name


# --- sums --------------------------------------------------------------------------------------------------------------------------------


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
