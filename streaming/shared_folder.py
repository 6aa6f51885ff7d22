# SPDX-License-Identifier: Apache-2.0
"""Checks that executors reach the job's folder: that the path which the driver uses leads to the same folder on their machines.

Spark would not notice. An executor that finds no folder at that path creates one, and the state of its lanes stays on its own disk.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Final

from validator.errors import UserError

_PREFIX: Final = "shared-"
"""Begins the name of the file that the driver writes. Each start of a query has another name: a network file system may remember for a
while that a name did not exist, and a copy of the folder has the file of an earlier start."""

_checked: set[SharedFolder] = set()


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


def share(folder: Path) -> SharedFolder:
    """Write the file by which workers know a job's folder, and remove those of earlier starts. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for earlier in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            earlier.unlink()
    mark = folder.absolute() / f"{_PREFIX}{token_hex(8)}"
    mark.touch(mode=0o600)
    return SharedFolder(str(mark))


def checkpoint_location(checkpoint: Path | str) -> str:
    """Return the checkpoint as Spark gets it: without a scheme, a path is one of `fs.defaultFS`, say of HDFS, and not of this machine."""
    return f"file://{Path(checkpoint).absolute()}"
