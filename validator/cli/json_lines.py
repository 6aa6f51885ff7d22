# SPDX-License-Identifier: Apache-2.0
"""Reads files of JSON lines, and standard input, with a limit on each line."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from validator.core.limits import RECORD_BYTES_MAX
from validator.document import printable
from validator.errors import UserError
from validator.strict_json import JsonRefused, read_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LINE_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""Bytes of a line: hex doubles the payloads, and the field names are short in comparison."""

STANDARD_INPUT: Final = "-"


@contextmanager
def opened(file: str) -> Iterator[tuple[IO[bytes], str]]:
    """Open a file, or standard input for ``-``, and yield it with its name for errors. Raises `UserError` if it cannot be read."""
    if file == STANDARD_INPUT:
        yield sys.stdin.buffer, "standard input"
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115 - closed below, where other errors may come from whoever uses it
    except OSError as error:
        raise UserError(f"{file}: cannot be read: {error.strerror}") from error
    with stream:
        yield stream, file


def lines(stream: IO[bytes], name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers. Raises `UserError` for one that is too long or cannot be read."""
    for number, line in enumerate(_bounded(stream, name), start=1):
        if len(line) > LINE_BYTES_MAX:
            raise UserError(f"{name}, line {number}: expected at most {LINE_BYTES_MAX} bytes, found more")
        if line.strip():
            yield number, line


def parse(line: bytes, where: str) -> Any:
    """Return a line's JSON value. Raises `UserError` that begins with ``where``."""
    try:
        return read_json(line.rstrip(b"\r\n"))
    except JsonRefused as error:
        place = printable(error.place.removeprefix("."))
        at = (
            f"{where}, column {place.rpartition(':')[2]}"
            if place.startswith(":")
            else f"{where}: {place}"
            if place
            else where
        )
        raise UserError(f"{at}: {error} in {_start(line)}") from None


def _bounded(stream: IO[bytes], name: str) -> Iterable[bytes]:
    try:
        while line := stream.readline(LINE_BYTES_MAX + 1):
            yield line
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from error


def _start(line: bytes) -> str:
    text: Any = line.strip().decode("utf-8", "replace")
    return repr(text if len(text) <= 40 else f"{text[:37]}...")
