# SPDX-License-Identifier: Apache-2.0
"""The examples of README.md run, and its table names every module."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

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
