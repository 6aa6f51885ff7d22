# SPDX-License-Identifier: Apache-2.0
"""The deliberate breaks still apply to the sources; and without one, writer processes that are killed and replaced emit everything once."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from tests.crash.break_list import BREAKS, Break
from tests.crash.breaks import ROOT, broken
from tests.crash.writers import SHORT, play


@pytest.mark.parametrize("each", BREAKS, ids=lambda each: each.name)
def test_break_applies_and_is_a_program(each: Break) -> None:
    source = (ROOT / each.file).read_text(encoding="utf-8")
    found = broken(source, each)
    assert found != source
    ast.parse(found)


def test_writers_emit_once_when_killed_and_replaced(kafka: dict[str, Any]) -> None:
    result = play(kafka, "crash-writers.", SHORT)
    assert result.found == ""
    assert result.tries == len(SHORT)
