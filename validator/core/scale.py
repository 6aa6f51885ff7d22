# SPDX-License-Identifier: Apache-2.0
"""Canonical binary encoding in the style of SCALE: little endian, compact lengths, one byte for an option.

Used for the state and for candidate commitments. Decoding is strict: bytes that do not encode a value are an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple, TypeAlias, TypeVar

from validator.core.hashing import compact

T = TypeVar("T")


class DecodeError(ValueError):
    """The bytes are not a valid encoding."""


class Writer:
    """Appends encoded values to a buffer."""

    __slots__ = ("buffer",)

    def __init__(self) -> None:
        self.buffer = bytearray()

    def u8(self, value: int) -> None:
        """Append one byte."""
        self.buffer.append(value)

    def u32(self, value: int) -> None:
        """Append four bytes."""
        self.buffer += value.to_bytes(4, "little")

    def u64(self, value: int) -> None:
        """Append eight bytes."""
        self.buffer += value.to_bytes(8, "little")

    def u128(self, value: int) -> None:
        """Append sixteen bytes."""
        self.buffer += value.to_bytes(16, "little")

    def compact(self, value: int) -> None:
        """Append a compact integer."""
        self.buffer += compact(value)

    def hash(self, value: bytes) -> None:
        """Append 32 bytes unchanged."""
        self.buffer += value

    def bytes(self, value: bytes) -> None:
        """Append a length and that many bytes."""
        self.buffer += compact(len(value))
        self.buffer += value

    def option(self, value: T | None, write: Callable[[T], None]) -> None:
        """Append 0 for None, else 1 and the value."""
        if value is None:
            self.buffer.append(0)
        else:
            self.buffer.append(1)
            write(value)


class Reader:
    """Takes encoded values from bytes; raises `DecodeError` if there are too few of them."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def take(self, size: int) -> bytes:
        """Take ``size`` bytes unchanged."""
        end = self.position + size
        if end > len(self.data):
            raise DecodeError(f"{size} bytes expected at offset {self.position}, {len(self.data) - self.position} left")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def u8(self) -> int:
        """Take one byte."""
        return self.take(1)[0]

    def u32(self) -> int:
        """Take four bytes."""
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        """Take eight bytes."""
        return int.from_bytes(self.take(8), "little")

    def u128(self) -> int:
        """Take sixteen bytes."""
        return int.from_bytes(self.take(16), "little")

    def compact(self) -> int:
        """Take a compact integer, which must be in its shortest encoding."""
        start = self.position
        mode = self.u8()
        if mode & 3 == 0:
            return mode >> 2
        size = (1, 3, mode >> 2)[(mode & 3) - 1] + (4 if mode & 3 == 3 else 0)
        rest = self.take(size)
        value = (
            int.from_bytes(rest, "little") if mode & 3 == 3 else int.from_bytes(bytes((mode,)) + rest, "little") >> 2
        )
        if compact(value) != self.data[start : self.position]:
            raise DecodeError(f"compact integer at offset {start} is not in its shortest form")
        return value

    def hash(self) -> bytes:
        """Take 32 bytes."""
        return self.take(32)

    def bytes(self) -> bytes:
        """Take a length and that many bytes."""
        return self.take(self.compact())

    def option(self, read: Callable[[], T]) -> T | None:
        """Take 0 as None, or 1 and a value."""
        flag = self.u8()
        if flag > 1:
            raise DecodeError(f"option at offset {self.position - 1} starts with {flag}, expected 0 or 1")
        return read() if flag else None

    def boolean(self) -> bool:
        """Take one byte that is 0 or 1."""
        return self.choice((False, True))

    def choice(self, choices: Sequence[T]) -> T:
        """Take one byte and return the choice at that index."""
        at = self.u8()
        if at >= len(choices):
            raise DecodeError(f"byte at offset {self.position - 1} is {at}, expected one below {len(choices)}")
        return choices[at]

    def items(self, read: Callable[[], T]) -> list[T]:
        """Take a count and that many values, each of which takes a byte or more."""
        return [read() for _ in range(self.count())]

    def count(self) -> int:
        """Take the number of values that follow, each of which takes a byte or more."""
        start = self.position
        count = self.compact()
        if count > len(self.data) - self.position:
            raise DecodeError(f"{count} values expected at offset {start}, {len(self.data) - self.position} bytes left")
        return count

    def end(self) -> None:
        """Raise `DecodeError` if bytes are left over."""
        if self.position != len(self.data):
            raise DecodeError(f"{len(self.data) - self.position} bytes left over at offset {self.position}")


@contextmanager
def decoding(what: str) -> Iterator[None]:
    """Make a `DecodeError` of whatever damaged bytes lead to: numbers out of range, names that are unknown, text that is not UTF-8."""
    try:
        yield
    except DecodeError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError, struct.error) as error:
        raise DecodeError(f"{what} is damaged: {type(error).__name__}: {error}") from error


Upgrade: TypeAlias = Callable[[bytes], bytes]
"""Upgrades encoded bytes, including the leading version byte, to the next version."""


class Encoding(NamedTuple):
    """An encoding of stored bytes, whose first byte is its version. Errors call it ``name``.

    If an encoding changes that a release has written, its ``version`` grows by one, and ``upgrades`` gets, by the version before, the
    function that upgrades bytes by that one version.
    """

    name: str
    version: int = 1
    upgrades: Mapping[int, Upgrade] = MappingProxyType({})

    def begin(self) -> Writer:
        """Return a writer that holds the version byte."""
        out = Writer()
        out.u8(self.version)
        return out

    def read(self, data: bytes) -> Reader:
        """Upgrade ``data`` to the current version and return a reader positioned after the version byte.

        Raises `DecodeError` if no upgrades lead from its version to the current one.
        """
        found = data[0] if data else None
        while data and data[0] != self.version and data[0] in self.upgrades:
            data = self.upgrades[data[0]](data)
        if not data or data[0] != self.version:
            raise DecodeError(f"{self.name} version {found}, expected {self.version}")
        reader = Reader(data)
        reader.position = 1
        return reader
