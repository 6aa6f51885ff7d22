# SPDX-License-Identifier: Apache-2.0
"""Reads a JSON file and keeps the path of each value, so that an error fits one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import Any, Final

from validator_channel.limits import SECONDS_MAX
from validator_channel.printing import printable

SHOWN_CHARACTERS_MAX: Final = 60
"""Maximum characters of a wrong value in an error."""


class DocumentError(Exception):
    """A malformed file: one line that says where, what was expected and what was found."""


class Node:
    """A JSON value with its path; every accessor raises `DocumentError` for a value of another shape."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, expected: str) -> DocumentError:
        """Return the error that this value is not what was expected."""
        return DocumentError(f"{self.path}: expected {expected}, found {_shown(self.value)}")

    def has(self, key: str) -> bool:
        """Return whether an object has this member, also if it is null."""
        return key in self.object()

    def __getitem__(self, key: str) -> Node:
        """Return a member that must exist."""
        if not self.has(key):
            raise DocumentError(f"{self.path}: key {key!r} is missing")
        return Node(self.value[key], f"{self.path}.{key}")

    def object(self) -> dict[str, Any]:
        """Return an object."""
        if not isinstance(self.value, dict):
            raise self.fail("an object")
        return self.value

    def items(self) -> Iterator[Node]:
        """Yield the items of an array."""
        if not isinstance(self.value, list):
            raise self.fail("an array")
        for at, item in enumerate(self.value):
            yield Node(item, f"{self.path}[{at}]")

    def integer(self, low: int, high: int) -> int:
        """Return an integer of a range."""
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.fail(f"an integer from {low} to {high}")
        return self.value

    def any_integer(self) -> int:
        """Return an integer of any size, to give it to a call that checks it."""
        if type(self.value) is not int:
            raise self.fail("an integer")
        return self.value

    def seconds(self) -> float:
        """Return a time in seconds."""
        if type(self.value) not in {int, float} or not isfinite(self.value) or not 0 <= self.value <= SECONDS_MAX:
            raise self.fail(f"seconds from 0 to {SECONDS_MAX}")
        return float(self.value)

    def boolean(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.fail("true or false")
        return self.value

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            raise self.fail("a string")
        return self.value

    def utf8(self) -> bytes:
        """Return a string in UTF-8."""
        try:
            return self.text().encode()
        except UnicodeEncodeError:
            raise self.fail("a string without unpaired surrogates") from None

    def one_of(self, *choices: str) -> str:
        """Return one of some strings."""
        if self.value not in choices:
            raise self.fail(f"one of {', '.join(choices)}")
        return self.text()

    def hex(self, size: int | None = None) -> bytes:
        """Return bytes from lower-case hex, exactly ``size`` of them if that is given."""
        expected = "bytes in lower-case hex" if size is None else f"{size} bytes in lower-case hex"
        text = self.text()
        try:
            data = bytes.fromhex(text)
        except ValueError:
            raise self.fail(expected) from None
        if data.hex() != text or (size is not None and len(data) != size):
            raise self.fail(expected)
        return data

    def number(self, size: int) -> int:
        """Return the integer behind ``size`` bytes in hex, big-endian."""
        return int.from_bytes(self.hex(size), "big")


def read_document(path: Path) -> Node:
    """Return a JSON file's value. Raises `DocumentError` if the file cannot be read or is not JSON.

    The reader is not the strict one of the protocol: a file may describe bad frames, so duplicate names, NaN and surrogates pass.
    """
    name = printable(str(path))
    try:
        return Node(json.loads(path.read_bytes().decode("utf-8")), name)
    except OSError as error:
        raise DocumentError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise DocumentError(f"{name}: not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise DocumentError(f"{name}:{error.lineno}:{error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise DocumentError(f"{name}: nested too deeply") from None
    except ValueError as error:
        raise DocumentError(f"{name}: {printable(str(error))}") from None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else text[: SHOWN_CHARACTERS_MAX - 3] + "..."
