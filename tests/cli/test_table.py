# SPDX-License-Identifier: Apache-2.0
"""Tables in a pipe have headings and one whole row a line; on a terminal they fit its width."""

from __future__ import annotations

import pytest
from rich.table import Table

from validator.cli.table import PlainTable, print_table, several

LONG = "a detail that is much longer than a terminal is wide, " * 4


def table() -> Table:
    made = Table("name", "detail", box=None)
    made.add_row("one", LONG)
    made.add_row("two", several(["first", "second"]))
    return made


def test_pipe_gets_whole_rows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_table(table())
    headings, one, two = capsys.readouterr().out.splitlines()
    assert headings.split() == ["name", "detail"]
    assert one.split(maxsplit=1) == ["one", LONG.rstrip()]
    assert two.split(maxsplit=1) == ["two", "first, second"]


def test_terminal_gets_rows_that_fit(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "dumb")
    print_table(table())
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines[-2:]] == [["two", "first"], ["second"]]


def test_columns_are_aligned_and_only_become_wider() -> None:
    plain = PlainTable(("name", "count"), numbers={"count"})
    assert plain.lines([("a", "1"), ("longer", "10")]) == "name    count\na           1\nlonger     10\n"
    assert plain.lines([("b", "2")]) == "b           2\n"
    assert plain.lines([("the longest", "3")]) == "the longest      3\n"
    assert plain.lines([("c", "4")]) == "c                4\n"


def test_row_with_another_number_of_cells_is_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        PlainTable(("name", "count")).lines([("a",)])
