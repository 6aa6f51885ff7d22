# SPDX-License-Identifier: Apache-2.0
"""Benchmarks are not part of a test run, so at least each of them imports."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
