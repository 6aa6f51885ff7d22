# SPDX-License-Identifier: Apache-2.0
"""A bit that a disk changes in Spark's state ends the job in one line with a remedy, and what the storage leaves there does not matter."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.upgrade.record import HERE, environment, has_consumed, submit, up, wait_until
from validator import exit_codes

RECORDED = HERE / "v0.1.0.tar.xz"
CHECKPOINT = Path(".validator", "job", "checkpoint")
PARTITION = CHECKPOINT / "state" / "0" / "0"

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(RECORDED) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def ended(folder: Path) -> tuple[int, str]:
    """Run `validator up` until it ends by itself; return its exit code and what it prints on standard error."""
    program = (
        "import sys, threading, subprocess, pathlib, time\n"
        "from validator.cli.main import main\n"
        "sys.argv = ['validator', 'up']\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment(), capture_output=True, text=True, check=False, timeout=600
    )  # fmt: skip
    return done.returncode, done.stderr
