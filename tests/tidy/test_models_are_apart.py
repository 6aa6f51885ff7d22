# SPDX-License-Identifier: Apache-2.0
"""Naive models judge simulated chains; they import nothing of the rules that they check."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "validator.simulate": ROOT / "validator" / "simulate",
    **{f"{folder.parent.name}.simulation": folder for folder in sorted(ROOT.glob("plugins/*/src/*/simulation"))},
    **{
        f"validator.protocols.{folder.parent.name}.simulation": folder
        for folder in sorted(ROOT.glob("validator/protocols/*/simulation"))
    },
}
"""The folder of each package, by package name."""
OTHERS = tuple(package for package in PACKAGES if package != "validator.simulate")
SHARED = ("validator.simulate", "validator.errors")
"""What every simulation may import; it contains no rules."""


def foreign_imports(source: str, package: str) -> list[tuple[int, str]]:
    """Return (line, what) of each import from outside the standard library, ``package``, other simulations and `SHARED`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [(node.lineno, name.name) for name in names if not own(name.name, package)]
            case ast.ImportFrom(module=module) if node.level or not own(module or "", package):
                found.append((node.lineno, module or "."))
    return found


def own(module: str, package: str) -> bool:
    return (
        module.partition(".")[0] in sys.stdlib_module_names
        or module in SHARED
        or any(f"{module}.".startswith(f"{each}.") for each in (package, *OTHERS))
    )


def test_every_protocol_with_a_simulation_is_checked() -> None:
    assert {
        *("validator.simulate", "validator_early_hrmp.simulation", "validator_xcmp.simulation"),
        "validator_xcmp_network.simulation",
    } < set(PACKAGES)
    assert len(PACKAGES) > 3


@pytest.mark.parametrize("package", PACKAGES)
def test_simulation_imports_nothing_of_the_rules(package: str) -> None:
    found = {
        path.name: names
        for path in sorted(PACKAGES[package].rglob("*.py"))
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
        "from validator.simulate.hashing import compact",
        "import validator.simulation",
        "from validator.core.hashing import message_hash",
        "def late():\n    import p.state",
    ],
)
def test_foreign_import_is_found(source: str) -> None:
    assert foreign_imports(source, "p.simulation")


@pytest.mark.parametrize(
    "source",
    [
        "import json",
        "from p.simulation import model",
        "from p.simulation.model import Model",
        "from validator.simulate import ModelledChain",
    ],
)
def test_own_import_is_not_found(source: str) -> None:
    assert foreign_imports(source, "p.simulation") == []
