# SPDX-License-Identifier: Apache-2.0
"""The deliberate breaks still apply to the sources; and without one, writer processes that are killed and replaced emit everything once."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest

from tests.crash.break_list import BREAKS, Break
from tests.crash.breaks import ROOT, Caught, TextMissing, broken, table
from tests.crash.writers import SHORT, play


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_break_applies_and_is_a_program(each: Break) -> None:
    source = (ROOT / each.file).read_text(encoding="utf-8")
    found = broken(source, each)
    assert found != source
    ast.parse(found)


def test_break_whose_text_is_gone_is_reported() -> None:
    gone = replace(BREAKS[0], old="text that no file has")
    with pytest.raises(TextMissing, match=r"marker ignored: validator/lanes/sink\.py has its text 0 times"):
        broken((ROOT / gone.file).read_text(encoding="utf-8"), gone)


def test_names_are_unique() -> None:
    assert len({each.name for each in BREAKS}) == len(BREAKS) >= 12


def test_table_counts_what_was_caught() -> None:
    caught = Caught("a", "f", "schedules", caught=True, tries=3, seconds=1.0, found="x")
    assert table([caught, replace(caught, caught=False)]).title == "1 of 2 caught"


def test_writers_emit_once_when_killed_and_replaced(kafka: dict[str, Any]) -> None:
    result = play(kafka, "crash-writers.", SHORT)
    assert result.found == ""
    assert result.tries == len(SHORT)
