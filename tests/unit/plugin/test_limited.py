# SPDX-License-Identifier: Apache-2.0
"""Programs of strangers run within limits, and end with whatever they started."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from validator.errors import UserError
from validator.plugin import pack as packing
from validator.plugin.limited import BUILD_OUTPUT_BYTES_MAX, Ended, run_limited
from validator.plugin.pack import pack

BACKEND = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "hostile"
version = "1"
"""


def python(code: str, seconds: float = 60) -> Ended:
    return run_limited([sys.executable, "-c", code], seconds)


def source(folder: Path, code: str) -> str:
    """Write a project whose build runs some code."""
    (folder / "pyproject.toml").write_text(BACKEND)
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    (folder / "backend.py").write_text(
        f"def build_wheel(*_):\n{lines}\nprepare_metadata_for_build_wheel = build_wheel\n"
    )
    return str(folder)


def test_the_end_of_errors_is_kept() -> None:
    done = python(f"import sys; sys.stderr.write('x' * {2 * BUILD_OUTPUT_BYTES_MAX} + 'end'); sys.exit(3)")
    assert (done.code, done.late, len(done.errors)) == (3, False, BUILD_OUTPUT_BYTES_MAX)
    assert done.errors.endswith("end")


def test_memory_files_and_their_size_are_limited(tmp_path: Path) -> None:
    assert "MemoryError" in python("bytearray(8 << 30)").errors
    grown = python(f"file = open({str(tmp_path / 'big')!r}, 'wb'); file.truncate(1 << 30)")
    assert grown.code != 0
    assert "Too many open files" in python("import os\nwhile True: os.dup(0)").errors


def test_what_takes_too_long_ends_with_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    code = f"""
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
new = pathlib.Path({str(started)!r})
new.with_suffix(".new").write_text(str(child.pid))
new.with_suffix(".new").rename(new)
time.sleep(600)
"""
    done = python(code, seconds=20)
    assert done.late
    child = Path("/proc") / started.read_text()
    deadline = time.monotonic() + 60
    while child.exists() and "Z" not in (child / "stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_build_that_uses_up_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"its wheel cannot be built: .*MemoryError"):
        pack(source(tmp_path, "bytearray(8 << 30)"), tmp_path / "out")


def test_a_build_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "run_limited", lambda command: run_limited(command, 5))
    with pytest.raises(UserError, match="its wheel cannot be built: it took more than"):
        pack(source(tmp_path, "import time\ntime.sleep(600)"), tmp_path / "out")
