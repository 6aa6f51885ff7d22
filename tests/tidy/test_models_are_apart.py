# SPDX-License-Identifier: Apache-2.0
"""Naive models judge simulated chains; they import nothing of the rules that they check."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "plugins" / "simulators" / "src" / "validator_simulators"
PARTS = ("__init__.py", "chain.py", "kit.py", "settings.py", "early_hrmp", "router", "xcmp", "xcmp_network")
"""What makes and judges simulated chains."""
OWN = ("validator_simulators", *(f"validator_simulators.{part.removesuffix('.py')}" for part in PARTS[1:]))


def foreign_imports(source: str) -> list[tuple[int, str]]:
    """Return (line, what) of each import from outside the standard library, `PARTS` and the class of users' errors."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, name.name) for name in names if not own(name.name)]
            case ast.ImportFrom(module=module) if node.level or not own(module or ""):
                found.append((node.lineno, module or "."))
    return found


def own(module: str) -> bool:
    return (
        module.partition(".")[0] in sys.stdlib_module_names
        or module in ("validator.errors", OWN[0])
        or any(f"{module}.".startswith(f"{each}.") for each in OWN[1:])
    )


@pytest.mark.parametrize("part", PARTS)
def test_simulation_imports_nothing_of_the_rules(part: str) -> None:
    files = [FOLDER / part] if part.endswith(".py") else sorted((FOLDER / part).glob("*.py"))
    assert files
    found = {path.name: names for path in files if (names := foreign_imports(path.read_text(encoding="utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import validator_xcmp.rules",
        "from validator_xcmp import rules",
        "from . import rules",
        "from validator_simulators.installed import simulation_of",
        "from validator_simulators.routers import Model",
        "from validator.plugin.api import message_hash",
        "from validator.core.hashing import message_hash",
        "def late():\n    import validator_xcmp.state",
    ],
)
def test_foreign_import_is_found(source: str) -> None:
    assert foreign_imports(source)


@pytest.mark.parametrize(
    "source",
    [
        "import json",
        "from validator_simulators.xcmp import model",
        "from validator_simulators.xcmp.model import NaiveXcmp",
        "from validator_simulators import ModelledChain",
    ],
)
def test_own_import_is_not_found(source: str) -> None:
    assert foreign_imports(source) == []
