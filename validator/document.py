# SPDX-License-Identifier: Apache-2.0
"""Reads JSON documents and keeps the path of each value, so that errors can be reported in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

from validator.core.limits import U32_MAX, U128_MAX
from validator.core.types import Para, ParaKind
from validator.errors import UserError
from validator.strict_json import JsonRefused, read_json
from validator.visible import cut

T = TypeVar("T")
D = TypeVar("D")


class Node:
    """A JSON value and its path; every accessor raises `UserError` with the path, what was expected and what was found."""

    __slots__ = ("path", "value")

    def __init__(self, value: Any, path: str) -> None:
        self.value = value
        self.path = path

    def fail(self, expected: str) -> UserError:
        """Return the error that this value is not what was expected."""
        return UserError(f"{self.path}: expected {expected}, found {_shown(self.value)}")

    def has(self, key: str) -> bool:
        """Return whether an object has this key with a value other than null."""
        return self.object().get(key) is not None

    def __getitem__(self, key: str) -> Node:
        """Return a member that must exist."""
        members = self.object()
        if key not in members:
            raise UserError(f"{self.path}: key {key!r} is missing")
        return Node(members[key], f"{self.path}.{key}")

    def get(self, key: str, take: Callable[[Node], T], default: D) -> T | D:
        """Return a member read by ``take``, or the default if it is absent or null."""
        return take(self[key]) if self.has(key) else default

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

    def members(self) -> Iterator[tuple[str, Node]]:
        """Yield the members of an object."""
        for key, value in self.object().items():
            yield key, Node(value, f"{self.path}.{printable(key)}")

    def integer(self, maximum: int = U32_MAX) -> int:
        """Return an integer from 0 to ``maximum``."""
        if type(self.value) is not int or not 0 <= self.value <= maximum:
            raise self.fail(f"an integer from 0 to {maximum}")
        return self.value

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

    def one_of(self, choices: list[str]) -> str:
        """Return one of some strings."""
        if self.value not in choices:
            raise self.fail(f"one of {', '.join(choices)}")
        return self.text()

    def hex(self, size: int | None = None) -> bytes:
        """Return bytes written in lower-case hex without a prefix, exactly ``size`` of them if that is given."""
        expected = "bytes in hex" if size is None else f"{size} bytes in hex"
        text = self.text()
        if text.startswith("0x"):
            expected += " without the prefix 0x"
        try:
            data = bytes.fromhex(text)
        except ValueError:
            is_odd = len(text) % 2 and text.isalnum()
            raise self.fail(f"{expected}, an even number of digits" if is_odd else expected) from None
        if size is not None and len(data) != size:
            raise self.fail(expected)
        if data.hex() != text:  # bytes.fromhex accepts capitals, and white space between bytes
            raise self.fail(f"{expected} without capitals and white space")
        return data

    def refuse_misspelt(self, known: tuple[str, ...]) -> None:
        """Reject keys that look like a misspelling of a known one; any other unknown key is allowed."""
        for key in self.object():
            if key not in known and (close := get_close_matches(key, known, n=1, cutoff=0.85)):
                raise UserError(f"{self.path}: unknown key {key!r}, did you mean {close[0]!r}?")

    def refuse_foreign(self, known: tuple[str, ...], expected: str) -> None:
        """Reject an object that has keys, but none of the known ones: it is something else."""
        if self.object() and self.object().keys().isdisjoint(known):
            raise self.fail(expected)


def read_document(path: Traversable) -> Node:
    """Return a JSON file's value. Raises `UserError` if the file cannot be read or is not JSON."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    return parse_document(data, str(path))


def parse_document(data: bytes, name: str) -> Node:
    """Return the value of a JSON text, which errors call ``name``. Raises `UserError` if it is not `read_json`'s JSON."""
    try:
        return Node(read_json(data), name)
    except JsonRefused as error:
        raise UserError(f"{name}{printable(error.place)}: {error}") from None


def read_para(node: Node) -> Para:
    """Return a para that becomes valid. Raises `UserError`. See `docs/trace-format.md`, "Para"."""
    kind = node["kind"].one_of(list(ParaKind)) if node.has("kind") else ParaKind.PARACHAIN
    return Para(
        node["para_id"].integer(), ParaKind(kind), node.get("balance", lambda member: member.integer(U128_MAX), 0)
    )


def printable(text: str) -> str:
    """Return a text that fits on one line of any terminal: unchanged, or escaped as in JSON if it holds anything unprintable."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _shown(value: Any) -> str:
    return cut(json.dumps(value, default=str))
