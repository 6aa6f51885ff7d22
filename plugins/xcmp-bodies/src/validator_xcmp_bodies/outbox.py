# SPDX-License-Identifier: Apache-2.0
"""A sender's folder: files with bodies, and what the relay chain and the operator say about them.

A body is a file `*.json`, a list of payloads in hex. Files are known by root and size, and are read again when they are sent, so that
memory holds none of them. Their owner adds them by renaming, and removes them.

The owner need not be the user of this process, which may have files that the owner cannot read: links are not followed, and nothing but
regular files is opened for reading.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from validator_xcmp_bodies.bodyfile import parse_body
from validator_xcmp_bodies.inbox import SUFFIX, lock_folder, replace_file
from validator_xcmp_bodies.limits import OUTBOX_FILE_BYTES_MAX
from validator_xcmp_bodies.parts import BodyError, cut, measure
from validator_xcmp_bodies.sender import Content

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
