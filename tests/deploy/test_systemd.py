# SPDX-License-Identifier: Apache-2.0
"""The unit for systemd keeps what the documents promise of exit codes and of a stop; systemd itself takes it, where it is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streaming.run import STOP_BATCH_S_MAX
from tests.tidy.tree import ROOT
from validator import exit_codes
from validator.cli.main import app
from validator.job.deployment import JOB_RESTARTS_MAX

UNIT = ROOT / "deploy" / "systemd" / "validator.service"


def settings() -> dict[str, str]:
    """Return the unit's settings by name; each is given once."""
    lines = [line for line in UNIT.read_text(encoding="utf-8").splitlines() if line and line[0] not in "#["]
    found = dict(line.split("=", 1) for line in lines)
    assert len(found) == len(lines)
    return found


def test_restarts_are_for_the_codes_after_which_a_start_helps() -> None:
    found = settings()
    assert found["Restart"] == "on-failure"  # a signal too, and code 3; not 0
    never = set(map(int, found["RestartPreventExitStatus"].split()))
    assert never == {exit_codes.USER_ERROR, exit_codes.INTERNAL_ERROR}
    assert exit_codes.STOPPED not in never
    assert int(found["StartLimitBurst"]) == JOB_RESTARTS_MAX
    assert found["OOMPolicy"] == "continue"  # systemd would stop all of the job for one worker that is killed


def test_a_stop_has_the_documented_time() -> None:
    found = settings()
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    documented = re.search(r"grace period of (\d+) s", page)
    assert documented is not None
    assert int(found["TimeoutStopSec"]) == int(documented[1]) > STOP_BATCH_S_MAX
    assert (found["KillSignal"], found["KillMode"]) == ("SIGTERM", "mixed")  # workers do not end before the batch does


def test_only_conventional_paths_are_named() -> None:
    paths = set(re.findall(r"(?<![\w.])/[\w./-]+", "\n".join(settings().values())))
    assert paths == {"/var/lib/validator", "/etc/validator/environment", "/etc/validator/validator.toml"}


def test_command_has_its_options() -> None:
    program, command, *options = settings()["ExecStart"].split()
    assert (program, command) == ("validator", "up")
    help_text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
    assert [each for each in options if each.startswith("--") and each not in help_text] == []


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed: it comes with systemd")
    unit = tmp_path / UNIT.name
    unit.write_text(
        UNIT.read_text(encoding="utf-8").replace("ExecStart=validator ", "ExecStart=/bin/true "), encoding="utf-8"
    )
    ended = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    said = [line for line in ended.stderr.splitlines() if UNIT.name in line]
    assert said == []
    assert ended.returncode == 0, ended.stderr
