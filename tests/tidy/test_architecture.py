# SPDX-License-Identifier: Apache-2.0
"""The tables of ARCHITECTURE.md name existing paths and commands, and every package."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.tidy.architecture import expanded, missing_paths, quoted, table_rows
from validator.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CODE_MAP = table_rows(TEXT, "Code map")
CHANGES = table_rows(TEXT, "Where do I change")


def test_both_tables_have_rows() -> None:
    assert len(CODE_MAP) > 10
    assert len(CHANGES) > 10


@pytest.mark.parametrize("row", [*CODE_MAP, *CHANGES], ids=lambda row: row[0][:40])
def test_every_path_exists(row: list[str]) -> None:
    assert list(missing_paths(ROOT, row)) == []


@pytest.mark.parametrize("row", CHANGES, ids=lambda row: row[0][:40])
def test_every_command_exists(row: list[str]) -> None:
    for words in (token.split() for cell in row for token in quoted(cell)):
        if words[:2] == ["python", "-m"]:
            assert find_spec(words[2]) is not None, words
        elif words[0] == "validator" and len(words) > 1:
            assert words[1] in COMMANDS, words


def test_every_package_has_a_row() -> None:
    listed = {path.rstrip("/") for row in CODE_MAP for path in quoted(row[0])}
    packages = {f"validator/{path.parent.name}" for path in (ROOT / "validator").glob("*/__init__.py")}
    assert packages - listed == set()
    assert {"streaming", "plugins", "tests"} <= listed


def _paths(tmp_path: Path) -> Iterator[Path]:
    for name in ("validator/core/a.py", "validator/core/b.py", "docs/x.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        yield path


@pytest.mark.parametrize(
    ("cell", "missing"),
    [
        ("`core/a.py`, its test in `b.py`", []),
        ("`validator/core/{a,b}.py`", []),
        ("`core/{a,c}.py`", ["core/c.py"]),
        ("`docs/*.md`, `docs/<name>.md`, `validator/core/`", []),
        ("`docs/*.py`", ["docs/*.py"]),
        ("`EFFECTS`, `python -m tests.x`", []),
        ("`b.py`", ["b.py"]),
    ],
)
def test_missing_path_is_found(tmp_path: Path, cell: str, missing: list[str]) -> None:
    assert len(list(_paths(tmp_path))) == 3
    assert list(missing_paths(tmp_path, [cell])) == missing


def test_braces_expand_to_every_choice() -> None:
    assert expanded("a/{b,c}/{d,e}.py") == ["a/b/d.py", "a/b/e.py", "a/c/d.py", "a/c/e.py"]
