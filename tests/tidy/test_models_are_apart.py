# SPDX-License-Identifier: Apache-2.0
"""A plugin's simulated chains are judged by a model of their own: it imports nothing of the rules that it checks."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
PACKAGES = sorted(PLUGINS.glob("*/src/*/simulation"))
API_NAMES = {"Draws", "LeastMet", "ModelledChain", "SimulationSettings"}
"""What traffic of every protocol is made with; no rule is among it."""


def foreign_imports(source: str, package: str) -> list[tuple[int, str]]:
    """Return (line, what) of each import that is neither the standard library's, nor ``package``'s, nor a plain value of the API."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, name.name) for name in names if not own(name.name, package)]
            case ast.ImportFrom(module="validator.plugin.api", names=names):
                found += [(node.lineno, name.name) for name in names if name.name not in API_NAMES]
            case ast.ImportFrom(module=module) if node.level or not own(module or "", package):
                found.append((node.lineno, module or "."))
    return found


def own(module: str, package: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names or f"{module}.".startswith(f"{package}.")


def test_there_are_such_packages() -> None:
    assert PACKAGES


@pytest.mark.parametrize("folder", PACKAGES, ids=lambda folder: folder.parent.name)
def test_a_simulation_shares_nothing_with_the_rules(folder: Path) -> None:
    package = f"{folder.parent.name}.simulation"
    found = {
        path.name: names
        for path in sorted(folder.rglob("*.py"))
        if (names := foreign_imports(path.read_text(encoding="utf-8"), package))
    }
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "import p.rules",
        "from p.rules import Rules",
        "from p import rules",
        "from . import rules",
        "from p.simulations import Model",
        "from validator.plugin.api import message_hash",
        "from validator.core.hashing import message_hash",
        "def late():\n    import p.state",
    ],
)
def test_what_is_foreign_is_found(source: str) -> None:
    assert foreign_imports(source, "p.simulation")


@pytest.mark.parametrize(
    "source",
    [
        "import json",
        "from p.simulation import model",
        "from p.simulation.model import Model",
        "from validator.plugin.api import ModelledChain",
    ],
)
def test_what_is_its_own_is_not(source: str) -> None:
    assert foreign_imports(source, "p.simulation") == []
