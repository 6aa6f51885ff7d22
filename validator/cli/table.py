# SPDX-License-Identifier: Apache-2.0
"""Prints tables: fitted to a terminal, or, into a pipe or file, with their headings and one line per row, however long.

Much of what commands print comes from records, files and plugins that strangers wrote. A `VisibleConsole` takes none of it for markup and
shows control characters as escapes. Cells that strangers fill are made visible one by one, too, so that a line end does not begin a row.
What goes into a pipe is for `grep` and `less -S`: columns are aligned, nothing is wrapped, cut or coloured. Programs read ``--json``.

What does not fit into a row of a `FittedTable` comes below the row, with its heading. A column is never narrower than its cells, except for
the last one, which may wrap if it keeps some width.
"""

from __future__ import annotations

import errno
import os
import sys
from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from validator.visible import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


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


GAP: Final = 2
"""Characters between two columns."""
INDENT: Final = 4
"""Characters before what comes below a row."""
LAST_CHARACTERS_MIN: Final = 30
"""Width that the last column keeps next to the others; with less it comes below the row."""


class FittedTable:
    """A table that is printed no wider than the console. With ``one_line`` each row has one line, without what does not fit."""

    def __init__(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        numbers: Collection[str] = (),
        *,
        one_line: bool = False,
        style: Callable[[str], str] = lambda _: "",
        header_style: str = "bold",
    ) -> None:
        self._headings, self._rows, self._right = headings, rows, tuple(heading in numbers for heading in headings)
        self._one_line, self._style, self._header_style = one_line, style, header_style
        self._widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table, or its lines if something comes below the rows."""
        width = options.max_width
        fitting, below = _split(self._widths, width)
        if self._one_line or not below:
            yield self._table(fitting, below, width)
            return
        yield self._line(self._headings, fitting, lambda _: self._header_style)
        for row in self._rows:
            yield self._line(row, fitting, self._style)
            yield from _below([(self._headings[at], row[at]) for at in below if row[at]], width - INDENT)

    def _table(self, fitting: list[int], below: list[int], width: int) -> Table:
        """Return the columns that fit; one of the others has what is left of the width, if that is enough."""
        if below and width - self._total(fitting) >= GAP + LAST_CHARACTERS_MIN:
            fitting = sorted([*fitting, below[0]])
        narrow = below[0] if below else len(self._headings) - 1
        left = width - self._total(at for at in fitting if at != narrow) - GAP
        columns = [
            Column(
                self._headings[at],
                justify="right" if self._right[at] else "left",
                no_wrap=self._one_line or at != narrow,
                overflow="ellipsis" if self._one_line else "fold",
                max_width=max(left, 1) if at == narrow else None,
            )
            for at in fitting
        ]
        table = Table(*columns, box=None, padding=(0, 1), header_style=self._header_style)
        for row in self._rows:
            table.add_row(*(Text(row[at], style=self._style(row[at])) for at in fitting))
        return table

    def _line(self, cells: Sequence[str], fitting: list[int], style: Callable[[str], str]) -> Text:
        line = Text(overflow="fold")
        for at in fitting:
            space = " " * (self._widths[at] - cell_len(cells[at]))
            before, after = (space, "") if self._right[at] else ("", space)
            line.append(f" {before}").append(cells[at], style(cells[at])).append(f"{after} ")
        line.rstrip()
        return line

    def _total(self, places: Iterable[int]) -> int:
        return _total(self._widths[at] for at in places)


def _total(widths: Iterable[int]) -> int:
    """Return the width of some columns, each with a space on both sides."""
    return sum(each + GAP for each in widths)


def _split(widths: Sequence[int], width: int) -> tuple[list[int], list[int]]:
    """Return the columns that fit into a row, and the others. The first one always fits, and the last one if it may wrap."""
    if _total(widths) <= width or _total(widths[:-1]) + GAP + LAST_CHARACTERS_MIN <= width:
        return list(range(len(widths))), []
    fitting, below, used = [0], [], _total(widths[:1])
    for at, each in enumerate(widths[1:], 1):
        if used + each + GAP <= width:
            fitting.append(at)
            used += each + GAP
        else:
            below.append(at)
    return fitting, below


def _below(items: Sequence[tuple[str, str]], width: int) -> list[RenderableType]:
    """Return the lines of a row's further cells, as many in one as fit; one that is too long begins below its heading."""
    lines: list[Text] = []
    for heading, cell in items:
        item = Text().append(f"{heading}: ", "dim").append(cell)
        if lines and cell_len(lines[-1].plain) + GAP + cell_len(item.plain) <= width:
            lines[-1].append(" " * GAP).append_text(item)
        elif cell_len(item.plain) > width >= cell_len(cell):
            lines += [Text(f"{heading}:", "dim"), Text(cell)]
        else:
            lines.append(item)
    for line in lines:
        line.overflow = "fold"
    return [Padding(line, (0, 0, 0, INDENT), expand=False) for line in lines]
