# SPDX-License-Identifier: Apache-2.0
"""What executors do with the job's folder: each checks that it reaches it, and notes there what a task has raised.

Spark would not notice an executor on whose machine the driver's path leads to another folder. An executor that finds none creates it, and
the state of its lanes stays on its own disk.

On a cluster Spark gives a task a second attempt (`streaming.options.ATTEMPTS_MAX`), whether its executor was lost or it has raised an
exception. Only the first is meant. The job decides about the second: a task that another job has fenced off would take its lane back, so
would that job's, and neither would ever stop. So the second attempt raises what the first has noted.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

from pyspark import TaskContext

from streaming.options import is_one_jvm
from validator.errors import UserError

_PREFIX: Final = "shared-"
"""Begins the name of the file that the driver writes. Each start of a query has another name: a network file system may remember for a
while that a name did not exist, and a copy of the folder has the file of an earlier start."""

_checked: set[SharedFolder] = set()


class AlreadyFailed(Exception):
    """What an earlier attempt at the task has raised, as text."""


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A job's folder by the path ``mark`` of the file that the driver has written there."""

    mark: str

    def check(self) -> None:
        """Check once per worker that it reaches the folder. Raises `UserError`."""
        if self in _checked:
            return
        folder, host = Path(self.mark).parent, socket.gethostname()
        try:
            os.stat(self.mark)  # noqa: PTH116 - `exists` says False for what may not be read
        except OSError as error:
            raise UserError(
                f"[job] directory {folder}: the executor on {host} does not find the driver's files there ({error.strerror}): mount one "
                "shared file system, such as NFS or CephFS, at this path on the driver's machine and on every executor's"
            ) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(
                f"[job] directory {folder}: the executor on {host} may not write there: let it run as the driver's user"
            )
        _checked.add(self)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Execute a part of a task, after `check`.

        Raises `AlreadyFailed` if an earlier attempt at the task has raised, `UserError`, and what is raised inside.
        """
        task = TaskContext.get()
        note = None if task is None else Path(f"{self.mark}-{task.stageId()}-{task.partitionId()}")
        if note is not None and task is not None and task.attemptNumber() > 0:
            with suppress(OSError):
                raise AlreadyFailed(note.read_text(encoding="utf-8"))
        try:
            self.check()
            yield
        except Exception:
            if note is not None:
                with suppress(OSError):
                    note.write_text(traceback.format_exc(), encoding="utf-8")
            raise


def attempt_with(shared: SharedFolder | None) -> AbstractContextManager[None]:
    """Return `SharedFolder.attempt`, or nothing if there is no folder."""
    return nullcontext() if shared is None else shared.attempt()


def share(folder: Path) -> SharedFolder:
    """Write the file by which workers know a job's folder, and remove those of earlier starts. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for earlier in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            earlier.unlink()
    mark = folder.absolute() / f"{_PREFIX}{token_hex(8)}"
    mark.touch(mode=0o600)
    return SharedFolder(str(mark))


def shared_by(master: str | None, folder: Path) -> SharedFolder | None:
    """Return `share` of a job's folder, None in one JVM: no other machine is to reach it, and no task has a second attempt."""
    return None if master is None or is_one_jvm(master) else share(folder)
