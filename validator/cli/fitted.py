# SPDX-License-Identifier: Apache-2.0
"""Lays out a table for a terminal that may be too narrow for it: what does not fit into a row comes below it, with its heading.

A column is never narrower than its cells, except for the last one, which may wrap if it keeps some width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

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
