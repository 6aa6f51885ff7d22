# SPDX-License-Identifier: Apache-2.0
"""The examples of README.md run, and its table names every module."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

from validator_channel.replay.cases import OPERATIONS

FOLDER = Path(__file__).resolve().parents[1]
README = FOLDER / "README.md"


def test_examples_run() -> None:
    results = doctest.testfile(str(README), module_relative=False)
    assert results.attempted > 5
    assert results.failed == 0


def test_every_module_has_a_row() -> None:
    named = set(re.findall(r"`(\w+\.py)`", README.read_text(encoding="utf-8")))
    modules = {path.name for path in (FOLDER / "src" / "validator_channel").glob("*.py")}
    assert named == modules - {"__init__.py"}


def test_table_of_operations_is_complete() -> None:
    text = README.read_text(encoding="utf-8")
    table = text.partition("| `op` | `args` |")[2].partition("\n\n")[0]
    named = [
        name for cell in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)
    ]
    assert sorted(named) == sorted(OPERATIONS)
