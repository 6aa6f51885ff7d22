# SPDX-License-Identifier: Apache-2.0
"""Who imports what: the core stays deterministic, protocols and models stay apart, workers import no simulator, and benchmarks import."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
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


ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\b(router|early[-_ ]?hrmp|xcmp)(?!_rules)", re.IGNORECASE)
"""A protocol's name; that of a document of rules is none."""
DEFAULT = ("validator/config/table.py", 'DEFAULT_PROTOCOL: Final = "router"')


def texts() -> Iterator[tuple[str, str]]:
    for folder in ("validator", "streaming"):
        for path in sorted((ROOT / folder).rglob("*")):
            place = path.relative_to(ROOT).as_posix()
            is_protocol = re.match(r"validator/protocols/(?!kit/)[^/]+/", place)
            if path.is_file() and "__pycache__" not in place and not is_protocol:
                yield place, path.read_text(encoding="utf-8", errors="replace")


def test_only_the_default_of_the_configuration_names_a_protocol() -> None:
    found = [(place, line.strip()) for place, text in texts() for line in text.splitlines() if NAME.search(line)]
    assert found == [DEFAULT]


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


WORKER = """
import json, sys
import streaming.lane_operator
import validator.lanes.store
from validator.plugin.registry import discover
from validator.plugin.runtime import RuntimePlan, make_runtime

names = sorted(found.name for found in discover("validator.protocols"))
for name in names:
    make_runtime(RuntimePlan(protocol=name))
{more}
print(json.dumps([names, sorted(sys.modules)]))
"""


def simulators(more: str = "") -> tuple[list[str], list[str]]:
    """Return the protocols whose runtimes a process has made, and the simulator modules that it has imported."""
    program = WORKER.format(more=more)
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    names, modules = json.loads(run.stdout)
    return names, [each for each in modules if each.partition(".")[0] == "validator_simulators"]


def test_worker_of_every_protocol_imports_no_simulator() -> None:
    names, imported = simulators()
    assert {"early-hrmp", "xcmp", "xcmp-network"} < set(names)
    assert imported == []


def test_import_of_simulator_is_found() -> None:
    _, imported = simulators("import validator_simulators.xcmp.model")
    assert {"validator_simulators", "validator_simulators.xcmp.model"} <= set(imported)


MODULES = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py") if not path.stem.startswith("__"))
NOT_IN_THE_TEST_ENVIRONMENT = {"matplotlib", "quixstreams"}


@pytest.mark.parametrize("module", MODULES)
def test_benchmark_imports(module: str) -> None:
    try:
        import_module(f"benchmarks.{module}")
    except ModuleNotFoundError as error:
        if error.name not in NOT_IN_THE_TEST_ENVIRONMENT:
            raise
        pytest.skip(f"{error.name} comes with the extra bench")
