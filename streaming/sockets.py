# SPDX-License-Identifier: Apache-2.0
"""The private folder of the sockets between Spark's JVM and its Python workers.

It cannot be below the job's folder: the path of a socket has at most 104 bytes. And Spark 4.2 hands its path to workers in lower case, so
with any other letter in it nothing is found: the folder for temporary files of macOS always has some.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from validator.errors import UserError

_PREFIX: Final = "validator-"
_NOTED: Final = "sockets"
"""The file, below the job's folder for one session, that names the folder of its sockets."""

PARENT_BYTES_MAX: Final = 40
"""Bytes of the path of its parent: the rest is for its own name and those of the sockets."""

PARENTS: Final = ("/tmp", "/var/tmp")  # noqa: S108 - the folder itself is private
"""Where it is made if the folder for temporary files does not suit."""


def make_sockets_folder() -> Path:
    """Make a folder. Raises `UserError` if there is no place for it."""
    temporary = tempfile.gettempdir()
    for parent in (temporary, *PARENTS):
        if parent == parent.lower() and len(parent.encode(errors="surrogateescape")) <= PARENT_BYTES_MAX:
            with suppress(OSError):
                return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    raise UserError(
        f"TMPDIR: expected a folder that can be written, with at most {PARENT_BYTES_MAX} bytes in its path and no capital letters, for "
        f"Spark's sockets, found {temporary}, and {' and '.join(PARENTS)} cannot be written"
    )


def note_sockets_folder(sockets: Path, scratch: Path) -> None:
    """Note in the job's folder for one session which sockets belong to it."""
    (scratch / _NOTED).write_text(str(sockets), encoding="utf-8", errors="surrogateescape")


def remove_noted_sockets(scratch: Path) -> None:
    """Remove the sockets of a session that was killed."""
    with suppress(OSError):
        noted = Path((scratch / _NOTED).read_text(encoding="utf-8", errors="surrogateescape"))
        if noted.is_absolute() and noted.name.startswith(_PREFIX) and not noted.is_symlink():
            shutil.rmtree(noted, ignore_errors=True)
