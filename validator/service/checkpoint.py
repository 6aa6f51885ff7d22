# SPDX-License-Identifier: Apache-2.0
"""Reads the files of the job's checkpoint while the job uses it.

Spark writes a batch's offsets, then its state, then its commit, and removes files that are more than a few batches old. It never changes an
existing file. A second hard link to each file is therefore a free copy, and neither side can disturb the other.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from validator.errors import UserError
from validator.topics import INPUT_TOPICS

COMMITS, OFFSETS = "commits", "offsets"
"""Folders of the checkpoint with one file per batch."""


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
    path = checkpoint / OFFSETS / str(batch)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        # a version, the session's options, then a line for each source: here one
        version, _, source = lines
        if version != "v1":
            raise ValueError(f"version {version}")
        return {
            (topic, int(partition)): int(offset)
            for topic, partitions in json.loads(source).items()
            for partition, offset in partitions.items()
        }
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: expected the offsets of a batch as Spark writes them: {error}") from error


def has_checkpoint(checkpoint: Path) -> bool:
    """Return whether a job has begun a batch."""
    return bool(_batches(checkpoint, OFFSETS))


def last_begun_batch(checkpoint: Path) -> int:
    """Return the last batch that the job has begun; -1 if there is none."""
    return max(_batches(checkpoint, OFFSETS), default=-1)


def has_unfinished_batch(checkpoint: Path) -> bool:
    """Return whether the job has begun a batch that it did not complete; its next start repeats it."""
    return last_begun_batch(checkpoint) > max(_batches(checkpoint, COMMITS), default=-1)


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


def _batches(checkpoint: Path, folder: str) -> list[int]:
    files = checkpoint / folder
    return [int(path.name) for path in files.iterdir() if path.name.isdecimal()] if files.is_dir() else []


def link_checkpoint(checkpoint: Path, target: Path) -> None:
    """Create a folder with every file of a checkpoint as it is now: links, or copies if the file system has no links.

    Files that vanish meanwhile are skipped, since the files of a committed batch stay for some batches. Files that are still being written
    have temporary names, and are skipped too.
    """
    for folder, _, names in os.walk(checkpoint):
        into = target / Path(folder).relative_to(checkpoint)
        into.mkdir(parents=True, exist_ok=True)
        for name in names:
            if not name.endswith(".tmp"):
                with suppress(FileNotFoundError):
                    _link(Path(folder) / name, into / name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
