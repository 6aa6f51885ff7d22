# SPDX-License-Identifier: Apache-2.0
"""A running worker imports no simulator."""

from __future__ import annotations

import json
import subprocess
import sys

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
