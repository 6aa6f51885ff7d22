# SPDX-License-Identifier: Apache-2.0
"""Without its hook the build makes a pure wheel; the hook names modules of the core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_default_wheel_is_pure(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HATCH_")}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with ZipFile(wheel) as file:
        names = [name for name in file.namelist() if name.startswith("validator_channel/")]
    assert "validator_channel/session.py" in names
    assert all(name.endswith((".py", "/py.typed")) for name in names)


def test_compiled_modules_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    from hatch_build import MODULES, PACKAGE

    assert list(MODULES) == sorted(MODULES)
    assert all((ROOT / "src" / PACKAGE / f"{name}.py").is_file() for name in MODULES)
