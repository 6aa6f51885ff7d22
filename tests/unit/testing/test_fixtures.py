# SPDX-License-Identifier: Apache-2.0
"""The fixtures that pytest offers wherever validator is installed."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path

from tests.unit.testing import remark
from validator.testing import fixtures
from validator.testing.case import run_python

TEST = """
from tests.unit.testing import remark

def test_harness(harness):
    assert harness(remark, {"bytes_max": 5}).send(b"\\x00\\x01hello").outcome == "ok"

def test_vectors(vectors):
    scenarios = vectors("router")
    assert len(scenarios) > 100
    assert not any(scenario.skipped for scenario in scenarios)
"""


def test_fixtures_are_available_to_tests_of_others(tmp_path: Path) -> None:
    (tmp_path / "test_plugin.py").write_text(TEST)
    root = Path(remark.__file__).parents[3]
    plugin = [] if entry_points(group="pytest11", name="validator") else ["-p", fixtures.__name__]
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_plugin.py"]
    run = run_python(arguments, cwd=tmp_path, first_on_path=[str(root)])
    assert run.returncode == 0, run.stdout + run.stderr
    assert "2 passed" in run.stdout


def test_fixtures_import_nothing_else() -> None:
    program = "import sys, validator.testing.fixtures as f; print(sorted(n for n in sys.modules if n.startswith('validator')))"
    run = run_python(["-c", program])
    assert run.stdout.strip() == "['validator', 'validator.testing', 'validator.testing.fixtures']"
    assert sys.modules[fixtures.__name__] is fixtures
