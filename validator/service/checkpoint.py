# SPDX-License-Identifier: Apache-2.0
"""The files of the job's checkpoint, looked at from outside while the job works on it.

Spark writes a batch's offsets, then its state, then that it is committed, and removes what is more than a few batches old. It never changes
a file that is there. So a second link to each file is a copy that costs nothing, that nobody disturbs and that disturbs nobody.
"""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

from validator.errors import UserError

COMMITS, OFFSETS = "commits", "offsets"
"""Folders of the checkpoint with a file for each batch."""


def last_committed_batch(checkpoint: Path) -> int:
    """Return the last batch that is committed. Raises `UserError` where there is no checkpoint, or none is."""
    if not checkpoint.is_dir():
        raise UserError(
            f"{checkpoint}: there is no checkpoint: no job has run with this configuration's [job] directory"
        )
    commits = checkpoint / COMMITS
    batches = [int(path.name) for path in commits.iterdir() if path.name.isdecimal()] if commits.is_dir() else []
    if not batches:
        raise UserError(f"{checkpoint}: the job has not finished a batch yet")
    return max(batches)


def consumed_by_batch(checkpoint: Path, batch: int) -> dict[tuple[str, int], int]:
    """Return by topic and partition the offset after the last record that a batch and those before it took.

    Raises `UserError` where its file is not there or is none of Spark's.
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


def link_checkpoint(checkpoint: Path, target: Path) -> None:
    """Make a folder that holds every file of a checkpoint as it is now: by links, or by copies where the file system has no links.

    Files that vanish meanwhile are left out: what a committed batch needs stays for some batches. Files that are being written have
    names of their own until they are whole.
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
