# SPDX-License-Identifier: Apache-2.0
"""`validator plugins check` plays a protocol's suite and its simulated chains, and says what it has not run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.testing.made_protocol import CHECK, RAISES, make_protocol
from tests.unit.testing.test_check import failures, outcomes
from validator.testing import check_points
from validator.testing.check import check_distribution

if TYPE_CHECKING:
    from validator.testing.check import Result

ROOT = Path(__file__).resolve().parents[3]
SCENARIOS = "scenarios pass"
ERRORS = "suite and rules page have every error"
SIMULATED = "simulated chains match their model"
REST = "other tests of the project"


def checked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, *changes: tuple[str, str], tests: bool = False
) -> list[Result]:
    project = make_protocol(folder, name, *changes)
    if not tests:
        shutil.rmtree(project / "tests")
    monkeypatch.syspath_prepend(project / "src")
    return check_distribution(f"validator-{name}")


def test_good_protocol_is_ok_and_what_is_not_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = checked(tmp_path, monkeypatch, "checkeda")
    assert failures(results) == {}
    ends = outcomes(results)
    ran = (
        "scenarios pass",
        "restored state equals saved state",
        "rejected input changes nothing",
        "hash seeds do not matter",
    )
    assert {ends[point] for point in (*ran, "lane gives expected results")} == {"ok"}
    assert {ends[point] for point in (ERRORS, SIMULATED, REST)} == {"skipped"}
    assert all(result.detail for result in results if result.outcome.value == "skipped")


def test_contract_of_the_source_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = ('"TooManyCandidates"', '"TooMany"')
    results = checked(tmp_path, monkeypatch, "checkedb", change, tests=True)
    found = failures(results)
    assert "TooManyCandidates" in found[f"{SCENARIOS} (TestProtocol)"]
    assert "TooMany: no entry" in found["rules page has every error (TestProtocol)"]
    assert "no scenario" in found["suite covers every error with all fields (TestProtocol)"]
    assert ERRORS not in outcomes(results)


def test_protocol_whose_rule_raises_fails_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = failures(checked(tmp_path, monkeypatch, "checkedc", RAISES))
    assert (
        "candidates[0]: plugin checkedc of validator-checkedc 0.1.0 raised AttributeError at validator_checkedc/rules.py:"
        in found[SCENARIOS]
    )
    assert all("raised AttributeError at" in text for text in found.values())
    assert all(len(text.splitlines()) == 1 for text in found.values())


def test_rejected_input_that_changes_something_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change = (CHECK, f"{CHECK}    state.session_index += 1\n")
    found = failures(checked(tmp_path, monkeypatch, "checkedd", change))
    assert "has changed something" in found["rejected input changes nothing"]


def test_no_point_begins_after_the_time_is_over() -> None:
    with pytest.raises(check_points.NotApplicable, match="the points before it took 120 s"):
        check_points._bounded(lambda: None, "router", end=0)


def test_tests_of_a_project_that_is_not_installed_say_so_once(tmp_path: Path) -> None:
    project = make_protocol(tmp_path, "absent")
    (info,) = (project / "src").glob("*.dist-info")
    shutil.rmtree(info)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(["src", str(ROOT)]), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "1 failed, " in done.stdout
    assert " skipped" in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("protocol 'absent' is not installed")]
    assert "run `pip install --editable .`" in line
    assert len(done.stdout.splitlines()) < 20, done.stdout
