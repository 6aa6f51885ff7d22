# SPDX-License-Identifier: Apache-2.0
"""The tables of ARCHITECTURE.md name existing paths, and their column of imports agrees with contracts and actual imports."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grimp
import pytest

from tests.tidy.architecture import (
    CodeMap,
    contradictions,
    expanded,
    imports_beyond,
    missing_paths,
    quoted,
    table_rows,
    unused_permissions,
)
from validator.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CODE_MAP = table_rows(TEXT, "Code map")
CHANGES = table_rows(TEXT, "Where do I change")
LINTER = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]

SAMPLE = """
## Code map
Words.

| where | what | may import |
|---|---|---|
| `app/base/` | a | nothing of ours |
| `app/low/`, `app/other/` | b | base |
| `app/high/` | c | all of `app` |
| `app/kit/` | d | all but high |
| `data/` | e | |
| `extra/` | f | `app.base.api` |

## Where do I change
"""
LAYERED = {
    "name": "one way",
    "type": "layers",
    "containers": ["app"],
    "layers": ["high", "(kit)", "low | other", "base"],
}


@cache
def imports() -> tuple[tuple[str, str], ...]:
    """Return every import between our modules; a plugin is named by the area of its folder."""
    graph = grimp.build_graph(*LINTER["root_packages"])
    pairs = [
        (importer, imported)
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
    ]
    return tuple(sorted((_in_folder(importer), _in_folder(imported)) for importer, imported in pairs))


def _in_folder(module: str) -> str:
    return f"plugins.{module}" if module.startswith("validator_") else module


def _helpers() -> frozenset[str]:
    return frozenset({"validator", *(f"validator.{path.stem}" for path in (ROOT / "validator").glob("*.py"))})


def _contracts() -> list[dict[str, Any]]:
    """Return the contracts; a whole plugin is named by the area of its folder, a module of one by its own."""
    keys = ("source_modules", "forbidden_modules")
    return [
        each | {key: [_area_of(name) for name in each[key]] for key in keys if key in each}
        for each in LINTER["contracts"]
    ]


def _area_of(name: str) -> str:
    return _in_folder(name) if "." in name else _in_folder(name).partition(".validator_")[0]


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
    packages = {f"validator.{path.parent.name}" for path in (ROOT / "validator").glob("*/__init__.py")}
    areas = CodeMap(CODE_MAP).areas
    assert packages - areas == set()
    assert {"streaming", "plugins", "tests"} <= areas


def test_imports_stay_within_the_table() -> None:
    found = imports()
    assert len(found) > 500
    assert imports_beyond(CodeMap(CODE_MAP), found, _helpers()) == []


def test_every_listed_permission_is_used() -> None:
    assert unused_permissions(CodeMap(CODE_MAP), imports()) == []


def test_table_allows_nothing_that_a_contract_forbids() -> None:
    assert contradictions(CodeMap(CODE_MAP), _contracts()) == []


# --- the checks above find what they look for ---


def test_every_form_of_a_cell_is_read() -> None:
    code_map = CodeMap(table_rows(SAMPLE, "Code map"))
    areas = {area: sorted(allowed.areas) for area, allowed in code_map.allowed.items()}
    everything = ["app.base", "app.high", "app.kit", "app.low", "app.other"]
    assert areas == {
        "app.base": [],
        "app.low": ["app.base"],
        "app.other": ["app.base"],
        "app.high": everything,
        "app.kit": [area for area in everything if area != "app.high"],
        "data": [],
        "extra": [],
    }
    assert [area for area, allowed in code_map.allowed.items() if not allowed.helpers] == ["app.base"]
    assert code_map.allowed["extra"].modules == {"app.base.api"}
    with pytest.raises(AssertionError, match="'lower': expected one folder of the table"):
        CodeMap([["`app/`", "", "lower"]])


@pytest.mark.parametrize(
    ("importer", "imported", "beyond"),
    [
        ("app.low.a", "app.base.b", False),
        ("app.low.a", "app.low.b", False),
        ("app.low.a", "app.other.b", True),
        ("app.low", "app.errors", False),
        ("app.base.a", "app.errors", True),
        ("app.high.a", "app.kit", False),
        ("app.kit.a", "app.high.b", True),
        ("extra.a", "app.base.api", False),
        ("extra.a", "app.base.other", True),
        ("unknown.a", "app.high", False),
    ],
)
def test_import_beyond_the_table_is_found(importer: str, imported: str, *, beyond: bool) -> None:
    code_map = CodeMap(table_rows(SAMPLE, "Code map"))
    found = imports_beyond(code_map, [(importer, imported)], frozenset({"app.errors"}))
    assert found == ([f"{importer} imports {imported}"] if beyond else [])


def test_unused_permission_is_found() -> None:
    code_map = CodeMap(table_rows(SAMPLE, "Code map"))
    used = [("app.low.a", "app.base"), ("app.other.a", "app.base.x")]
    assert unused_permissions(code_map, used) == ["extra does not import app.base.api"]
    assert unused_permissions(code_map, [*used, ("extra.a", "app.base.api")]) == []


def _forbidden(source: str, target: str, *ignored: str) -> dict[str, Any]:
    return {
        "name": "never",
        "type": "forbidden",
        "source_modules": [source],
        "forbidden_modules": [target],
        "ignore_imports": list(ignored),
    }


@pytest.mark.parametrize(
    ("contract", "found"),
    [
        (LAYERED, []),
        ({**LAYERED, "layers": ["base", "low"]}, ["app.low may import app.base, against 'one way'"]),
        (
            {**LAYERED, "layers": ["high | kit", "low | other", "base"]},
            ["app.high may import app.kit, against 'one way'"],
        ),
        (_forbidden("app.low", "app.base"), ["app.low may import app.base, against 'never'"]),
        (_forbidden("extra", "app"), ["extra may import app.base.api, against 'never'"]),
        (_forbidden("extra", "app", "extra -> app.base.api"), []),
        (_forbidden("app.base", "app.high"), []),
    ],
)
def test_permission_against_a_contract_is_found(contract: dict[str, Any], found: list[str]) -> None:
    assert contradictions(CodeMap(table_rows(SAMPLE, "Code map")), [contract]) == found


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
