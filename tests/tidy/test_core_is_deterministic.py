# SPDX-License-Identifier: Apache-2.0
"""The core passes the lint of handlers, and imports only modules that read no clock, entropy, environment or file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validator.testing.lint import lint_source

CORE = Path(__file__).resolve().parents[2] / "validator" / "core"

IMPORTED = re.compile(
    r"from __future__ import|(?:from|import) validator\.core\b|(?:from|import) "
    r"(?:abc|bisect|collections|collections\.abc|contextlib|copy|dataclasses|enum|functools|hashlib|heapq|itertools|operator|re|struct"
    r"|types|typing)\b"
)
OF_HANDLERS = ("allow", "catch-all", "import", "private")
"""Rules of the lint that concern handlers alone."""
BY_NAME = ("getattr() of a computed name", "the attribute __dict__")
"""Findings of the rule `dynamic` that depend on nothing outside."""


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: path.relative_to(CORE).as_posix())
def test_module_of_core_is_deterministic(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = [each for each in lint_source(text, path.name) if each.rule not in OF_HANDLERS and each.what not in BY_NAME]
    assert found == []
    imports = re.findall(r"^\s*((?:from [\w.]+ )?import .*)", text, re.MULTILINE)
    assert [each for each in imports if not IMPORTED.match(each)] == []
