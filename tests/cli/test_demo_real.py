# SPDX-License-Identifier: Apache-2.0
"""`validator demo --real`: recorded blocks from a node to verdicts, and the chain agrees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from validator_simulators.relay_chain.recording import SHIPPED

from tests.cli.follower import invoke
from tests.crash.processes import processes


@pytest.mark.long
@pytest.mark.spark
def test_every_verdict_of_the_recorded_run_agrees_with_the_chain(tmp_path: Path) -> None:
    environment = os.environ | {"VALIDATOR_HOME": str(tmp_path), "VALIDATOR_KAFKA__BOOTSTRAP__SERVERS": "127.0.0.1:1"}
    if "VALIDATOR_HOME" not in os.environ and "XDG_CACHE_HOME" not in os.environ:
        (tmp_path / "cache").symlink_to(Path.home() / ".cache" / "validator")
    arguments = [sys.executable, "-m", "validator", "demo", "--real", "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["ok"], summary["problems"], summary["partner"]) == (True, [], "the chain")
    assert summary["verdicts"] == summary["agreed"] == 158
    assert summary["accounting"]["consumed"] == summary["records"] == 91
    assert summary["chain"].startswith("compared with the chain up to block 17844556: 86 candidates, 72 inclusions, ")
    assert summary["chain"].endswith("; disagreements: none")
    assert list((tmp_path / "demo").iterdir()) == []
    assert [each for each in processes() if str(tmp_path) in each.command] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--recorded=x"], "--recorded: expected only with --real"),
        (["--real", "--recorded=/no/such/folder"], "--recorded: /no/such/folder: expected files"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = invoke("demo", f"--directory={tmp_path / 'new'}", *arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_shipped_folder_is_a_recording() -> None:
    assert (SHIPPED / "README.md").exists()
