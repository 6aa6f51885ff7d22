# SPDX-License-Identifier: Apache-2.0
"""Prints tables: fitted to a terminal, or, into a pipe or file, with their headings and one line per row, however long.

Much of what commands print comes from records, files and plugins that strangers wrote. A `VisibleConsole` takes none of it for markup and
shows control characters as escapes. Cells that strangers fill are made visible one by one, too, so that a line end does not begin a row.
What goes into a pipe is for `grep` and `less -S`: columns are aligned, nothing is wrapped, cut or coloured. Programs read ``--json``.
"""

from __future__ import annotations

import errno
import os
import sys
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from rich.console import ConsoleOptions, RenderableType

PIPED_CHARACTERS_MAX: Final = 1_000_000
"""Characters of a line in a pipe, beyond which rich would wrap it."""


class VisibleConsole(Console):
    """A console that prints text as text: nothing in it is markup, an emoji's name, or an instruction to the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"highlight": False, **options, "markup": False, "emoji": False})

    def on_broken_pipe(self) -> None:
        """Raise `BrokenPipeError`; rich would exit with 1, which says that a command's answer is no."""
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of what is printed, with escapes in place of what is not visible."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(printable_lines(segment.text), segment.style)


def cells(texts: Iterable[str]) -> Iterator[Text]:
    """Yield texts as the cells of a row, each on one line."""
    return (Text(printable(text)) for text in texts)


def several(parts: Iterable[str]) -> str:
    """Return the parts of one cell: one below the other on a terminal, in one line in a pipe."""
    return ("\n" if VisibleConsole().is_terminal else ", ").join(map(printable, parts))


def cut(text: str, characters: int) -> str:
    """Return a text, or its beginning if it is longer."""
    return text if len(text) <= characters else f"{text[:characters]}…"


def cut_on_terminal(text: str, characters: int) -> str:
    """Return a text in full for a pipe, and on a terminal its beginning if it is longer."""
    return cut(text, characters) if VisibleConsole().is_terminal else text


def table_of(*headings: str, numbers: int = 0) -> Table:
    """Return a table whose last ``numbers`` columns hold numbers."""
    first_number = len(headings) - numbers
    columns = (
        Column(heading, justify="right" if at >= first_number else "left", overflow="fold")
        for at, heading in enumerate(headings)
    )
    return Table(*columns, box=None, padding=(0, 2, 0, 0))


def print_table(table: RenderableType) -> None:
    """Print a table, or a group of tables and texts, on standard output."""
    console = VisibleConsole()
    if console.is_terminal:
        console.print(table)
        return
    text = StringIO()
    VisibleConsole(file=text, width=PIPED_CHARACTERS_MAX, color_system=None).print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in text.getvalue().removesuffix("\n").split("\n")))


class PlainTable:
    """A table for a pipe, written in parts: the headings come before the first part, and columns only become wider."""

    def __init__(self, headings: Sequence[str], numbers: Collection[str] = ()) -> None:
        self._headings = tuple(headings)
        self._right = tuple(heading in numbers for heading in headings)
        self._widths = [len(heading) for heading in headings]
        self._begun = False

    def lines(self, rows: Iterable[Sequence[str]]) -> str:
        """Return the lines of some rows, and of the headings if these are the first."""
        shown = [*([] if self._begun else [self._headings]), *(tuple(map(printable, row)) for row in rows)]
        self._begun = True
        for row in shown:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        return "".join(f"{self._line(row)}\n" for row in shown)

    def _line(self, row: Sequence[str]) -> str:
        cells = zip(row, self._widths, self._right, strict=True)
        return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in cells).rstrip()
