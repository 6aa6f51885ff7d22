# SPDX-License-Identifier: Apache-2.0
"""A collator's folders: the outbox with a sender's bodies, and the inbox in which each message becomes a file exactly once.

**Outbox.** A body is a file `*.json`, a list of payloads in hex. Files are known by root and size, and are read again when they are sent,
so that memory holds none of them. Their owner adds them by renaming, and removes them. The owner need not be the user of this process,
which may have files that the owner cannot read: links are not followed, and nothing but regular files is opened for reading.

**Inbox.** A file is prepared under a hidden name, the position is stored, and only then the file gets its name. After a crash the stored
position says whether a prepared file counts: if the position names the file, it gets its name now, otherwise it is dropped and prepared
again later. A file that had its name is never written again, even if it has been taken away since.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from validator_xcmp_bodies.follow import START, MessageName
from validator_xcmp_bodies.limits import OUTBOX_FILE_BYTES_MAX
from validator_xcmp_bodies.parts import BodyError, cut, measure
from validator_xcmp_bodies.sender import Content, parse_body

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


STATE: Final = "state.json"
NOT_REGULAR: Final = "expected a regular file, found a link, a pipe or a folder"


class _Seen(NamedTuple):
    """A file as it was when it was read: ``content`` is None if it was no body."""

    stamp: tuple[int, int, int]
    content: Content | None
    refusal: str | None


class Outbox(Mapping[Content, Sequence[bytes]]):
    """The bodies of a folder, by root and size. Raises `FolderError` as `lock_folder` does."""

    def __init__(self, folder: Path, files_max: int) -> None:
        self._folder, self._files_max = folder, files_max
        self._seen: dict[str, _Seen] = {}
        self._names: dict[Content, str] = {}
        self._state: bytes | None = None
        self.uncounted = 0
        """Files beyond ``files_max`` at the last look."""
        self._lock = lock_folder(folder)

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self._lock)

    def look(self) -> None:
        """Look at the files that have come, changed or gone; at most ``files_max`` of them, by name."""
        with os.scandir(self._folder) as entries:
            found = sorted(each.name for each in entries if _is_body(each.name))
        names, self.uncounted = found[: self._files_max], max(0, len(found) - self._files_max)
        self._seen = {name: seen for name in names if (seen := self._read(name)) is not None}
        self._names = {}
        for name, seen in self._seen.items():
            if seen.content is not None:
                self._names.setdefault(seen.content, name)

    @property
    def refusals(self) -> dict[str, str]:
        """Why files are no bodies, by name."""
        return {name: seen.refusal for name, seen in self._seen.items() if seen.refusal is not None}

    def name_of(self, content: Content) -> str | None:
        """Return the file of a body, or None if there is none."""
        return self._names.get(content)

    def show(self, state: dict[str, Any]) -> None:
        """Write ``state.json`` if the state is another one than before."""
        content = json.dumps(state, indent=1).encode() + b"\n"
        if content != self._state:
            replace_file(self._folder / STATE, content)
            self._state = content

    def __getitem__(self, content: Content) -> Sequence[bytes]:
        """Return the payloads. Raises ``KeyError`` if there is no such file, or not any more."""
        try:
            payloads = parse_body(_text(self._folder / self._names[content]))
        except (OSError, BodyError):
            raise KeyError(content) from None
        found = measure(payloads)
        if (found.root, found.size) != content:
            raise KeyError(content)
        return payloads

    def __iter__(self) -> Iterator[Content]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _read(self, name: str) -> _Seen | None:
        path = self._folder / name
        try:
            found = path.lstat()
            if not stat.S_ISREG(found.st_mode):
                return _Seen((0, 0, 0), None, NOT_REGULAR)
            stamp = found.st_ino, found.st_mtime_ns, found.st_size
            before = self._seen.get(name)
            if before is not None and before.stamp == stamp:
                return before
            payloads = parse_body(_text(path))
            cut(payloads)
            measured = measure(payloads)
        except FileNotFoundError:
            return None  # its owner has removed it
        except OSError as error:
            return _Seen((0, 0, 0), None, f"cannot be read: {error.strerror}")
        except BodyError as error:
            return _Seen(stamp, None, str(error))
        return _Seen(stamp, (measured.root, measured.size), None)


def _is_body(name: str) -> bool:
    return name.endswith(SUFFIX) and not name.startswith(".") and name != STATE


def _text(path: Path) -> str:
    # O_NONBLOCK: a pipe that has taken a file's place would be waited for
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BodyError(NOT_REGULAR)
        content = file.read(OUTBOX_FILE_BYTES_MAX + 1)
    if len(content) > OUTBOX_FILE_BYTES_MAX:
        raise BodyError(f"expected at most {OUTBOX_FILE_BYTES_MAX} bytes, found more")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"expected UTF-8, found another encoding ({error.reason})") from None
