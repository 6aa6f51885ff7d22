# SPDX-License-Identifier: Apache-2.0
"""Which modules a mutation run changes, and which quick tests have to notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Group:
    """Modules, as patterns below the root, and the arguments of pytest that run their tests."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Files that the patterns match and that are not changed: they hold texts, descriptions, or code of tests."""

    def files(self) -> list[str]:
        """Return the group's files."""
        found = {path.relative_to(ROOT).as_posix() for each in self.modules for path in ROOT.glob(each)}
        return sorted(file for file in found if Path(file).name not in {"__init__.py", *self.without})


GROUPS = (
    Group("core", ("validator/core/*.py",), ("tests/unit/core", "tests/router/test_suite.py")),
    Group(
        "router",
        ("validator/protocols/router/*.py", "validator/protocols/kit/*.py"),
        ("tests/router",),
        ("errors.py", "plugin.py", "presets.py", "handler_bench.py", "view.py", "traces.py"),
    ),
    Group(
        "lanes",
        ("validator/lanes/*.py",),
        (
            *(
                f"tests/unit/lanes/test_{name}.py"
                for name in (
                    *("journal", "orders", "stored", "upgrades", "parking"),
                    *("arrived", "starting_over", "store", "store_contents"),
                )
            ),
            "tests/simulation/test_simulation.py::test_each_verdict_is_emitted_once_under_any_faults",
        ),
        (*("keyed.py", "configured.py", "kept_start.py", "definition.py", "sink.py", "marker.py"),),
    ),
    Group(
        "sink",
        ("validator/lanes/sink.py", "validator/lanes/marker.py"),
        ("tests/unit/lanes/test_sink.py", "tests/unit/lanes/test_marker.py"),
    ),
    Group(
        "stages",
        ("streaming/lane_operator.py", "streaming/decode_stage.py"),
        (
            *("tests/unit/streaming/test_decode_stage.py", "tests/unit/streaming/test_job.py"),
            "tests/simulation/test_simulation.py::test_stages_of_the_job_emit_each_verdict_once",
        ),
    ),
    Group(
        "writer",
        ("streaming/transactions.py", "validator/kafka/transaction.py"),
        ("tests/unit/streaming/test_transactions.py", "tests/unit/streaming/test_sink.py"),
    ),
)


def group_of(file: str) -> Group:
    """Return the group of a file. Raises `KeyError`."""
    for group in GROUPS:
        if file in group.files():
            return group
    raise KeyError(file)
