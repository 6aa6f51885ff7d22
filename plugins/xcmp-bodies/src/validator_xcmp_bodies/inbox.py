# SPDX-License-Identifier: Apache-2.0
"""A recipient's folder: each message becomes a file exactly once, whatever is killed, and whoever takes the files away at any time.

A file is prepared under a hidden name, the position is stored, and only then the file gets its name. After a crash the stored position says
whether a prepared file counts: if the position names the file, it gets its name now, otherwise it is dropped and prepared again later. A
file that had its name is never written again, even if it has been taken away since.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, Final

from validator_xcmp_bodies.follow import START, MessageName

POSITION: Final = ".position"
LOCK: Final = ".lock"
PREPARED: Final = ".prepared-"
SUFFIX: Final = ".json"


class FolderError(Exception):
    """A folder cannot be used; the text says why, in one line."""


class Inbox:
    """The inbox of one para. Raises `FolderError`: another process has it, it belongs to another para, its position is damaged."""

    def __init__(self, folder: Path, lane: str, para: int, files_max: int) -> None:
        self._folder, self._files_max = folder, files_max
        self._owner = {"lane": lane, "para": para}
        self._lock = lock_folder(folder)
        try:
            self.position = self._read_position()
            self._recover()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)

    @property
    def is_full(self) -> bool:
        """Whether nothing may be added until files have been taken away."""
        with os.scandir(self._folder) as entries:
            return sum(not entry.name.startswith(".") for entry in entries) >= self._files_max

    def put(self, position: MessageName, document: dict[str, Any]) -> None:
        """Add a message; its position becomes that of the inbox."""
        name = _name(position)
        prepared = self._folder / (PREPARED + name)
        _write(prepared, json.dumps(document).encode() + b"\n")
        replace_file(self._folder / POSITION, json.dumps({**self._owner, "position": position}).encode() + b"\n")
        self.position = position
        _rename(prepared, self._folder / name)

    def _read_position(self) -> MessageName:
        path = self._folder / POSITION
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            owner = {name: stored[name] for name in self._owner}
            block, sender = stored["position"]
        except FileNotFoundError:
            return START
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise FolderError(f"{path}: expected a position, found damage ({error})") from error
        if owner != self._owner:
            raise FolderError(f"{path}: expected an inbox of {self._owner}, found one of {owner}")
        return block, sender

    def _recover(self) -> None:
        for prepared in sorted(self._folder.glob(f"{PREPARED}*")):
            name = prepared.name.removeprefix(PREPARED)
            if self.position != START and name == _name(self.position):
                _rename(prepared, self._folder / name)
            else:
                prepared.unlink()


def _name(position: MessageName) -> str:
    """Return the name of a message's file; names sort as messages do."""
    block, sender = position
    return f"{block:010}-{sender:010}{SUFFIX}"


def lock_folder(folder: Path) -> int:
    """Create a folder if it is missing, and lock it for this process; return what is to be closed. Raises `FolderError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise FolderError(f"{folder}: cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise FolderError(f"{folder}: another process has it") from None
    return handle


def replace_file(path: Path, content: bytes) -> None:
    """Give a file a new content, all of it or none, also if the machine fails."""
    new = path.with_name(f".{path.name.lstrip('.')}.new")
    _write(new, content)
    _rename(new, path)


def _write(path: Path, content: bytes) -> None:
    """Write a new file: whoever else may write to the folder cannot name another file by a link that waits there."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _rename(old: Path, new: Path) -> None:
    old.replace(new)
    folder = os.open(new.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
