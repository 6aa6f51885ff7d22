# SPDX-License-Identifier: Apache-2.0
"""What `validator plugins check` finds in a distribution and in a protocol, and what it says that it has not run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.unit.testing import remark
from tests.unit.testing.made_distribution import make_distribution
from tests.unit.testing.made_protocol import CHECK, RAISES, make_protocol
from validator.errors import UserError
from validator.testing import check, check_points
from validator.testing.check import Outcome, Result, check_distribution

if TYPE_CHECKING:
    from validator.testing.check import Result


SOURCE = Path(remark.__file__).read_text()
MODULE = "validator_checked"
NAME = "validator-checked"
LOADS, JSON, RECORDS, SEEDS, CLEAN, ARCHIVE = (
    "loads",
    "its configuration survives json",
    "yields its records",
    "imports and yields the same under every hash seed",
    "its source is clean",
    "works from an archive",
)
CONTRACT = """
import validator_checked
from validator.testing import HandlerContract
class TestChecked(HandlerContract):
    plugin = validator_checked
    config = {"bytes_max": 5}
    examples = (b"\\x00\\x01hello", b"\\x00\\x02\\xd1\\x07\\x00\\x00")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def outcomes(results: list[Result]) -> dict[str, str]:
    return {result.point: result.outcome.value for result in results}


def failures(results: list[Result]) -> dict[str, str]:
    return {result.point: result.detail for result in results if result.outcome is Outcome.FAILED}


def test_valid_plugin_is_checked_by_name_despite_folder_of_that_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = make_distribution(folder, MODULE, SOURCE)
    here = folder / "here"
    (here / name).mkdir(parents=True)
    monkeypatch.chdir(here)
    progress: list[str] = []
    results = check_distribution(name, progress.append)
    assert outcomes(results) == {
        LOADS: "ok",
        JSON: "ok",
        RECORDS: "ok",
        SEEDS: "ok",
        CLEAN: "ok",
        "examples": "skipped",
        ARCHIVE: "ok",
    }
    assert {result.plugin for result in results} == {"remark@1.0.0", NAME}
    assert progress == [
        "remark: loads",
        *(f"remark@1.0.0: {point}" for point in (JSON, RECORDS, SEEDS, CLEAN)),
        f"{NAME}: {ARCHIVE}",
    ]
    assert [result.detail for result in results if result.point == RECORDS] == ["ask, remark"]


@pytest.mark.parametrize("by_path", [False, True])
def test_examples_of_source_folder_run(folder: Path, by_path: bool) -> None:
    make_distribution(folder, MODULE, SOURCE, editable=True)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_contract.py").write_text(CONTRACT)
    (folder / "tests" / "test_broken.py").write_text("import HandlerContract")
    results = check_distribution(str(folder) if by_path else NAME)
    assert failures(results) == {}
    ends = outcomes(results)
    assert ends["accepts its examples (TestChecked)"] == "ok"
    assert ends["is bounded by weight (TestChecked)"] == "ok"
    assert ends["is the same under every hash seed (TestChecked)"] == "ok"
    assert ends["has a readme that runs (TestChecked)"] == "skipped"
    assert ends[ARCHIVE] == "ok"
    (loads,) = (result for result in results if result.point == LOADS)
    assert loads.detail == (f"{MODULE}.py" if by_path else str(folder / f"{MODULE}.py"))


def test_unimportable_tests_are_reported(folder: Path) -> None:
    make_distribution(folder, MODULE, SOURCE, editable=True)
    (folder / "tests").mkdir()
    (folder / "tests" / "test_contract.py").write_text("import no_such_module  # HandlerContract")
    (examples,) = (result for result in check_distribution(str(folder)) if result.point == "examples")
    assert examples.outcome is Outcome.SKIPPED
    assert examples.detail.startswith("tests/test_contract.py cannot be imported (ModuleNotFoundError")


def test_archive_is_checked_unchanged(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    make_distribution(tmp_path / "source", MODULE, SOURCE)
    archive = tmp_path / "plugin.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for file in (tmp_path / "source").rglob("*"):
            out.write(file, str(file.relative_to(tmp_path / "source")))
    results = check_distribution(str(archive))
    assert failures(results) == {}
    assert results[0] == Result("remark@1.0.0", LOADS, Outcome.OK, f"{MODULE}.py")


def test_points_that_need_configuration_are_skipped(folder: Path) -> None:
    source = SOURCE.replace("bytes_max: int = 64", "bytes_max: int").replace("| None = None", "| None")
    make_distribution(folder, MODULE, source)
    results = check_distribution(NAME)
    ends = outcomes(results)
    assert (ends[LOADS], ends[JSON], ends[RECORDS], ends[CLEAN]) == ("ok", "skipped", "skipped", "ok")
    assert "config.bytes_max" in next(result.detail for result in results if result.point == JSON)


def test_transport_is_not_linted(folder: Path) -> None:
    source = (
        "import time\nfrom validator.plugin.api import Manifest, Transport, hookimpl\n"
        "@hookimpl\ndef validator_manifest():\n    return Manifest('remark', '1.0.0', (2, 0))\n"
        "@hookimpl\ndef validator_transports():\n    yield Transport('print', print)\n"
    )
    make_distribution(folder, MODULE, source, group="validator.transports")
    results = check_distribution(NAME)
    assert failures(results) == {}
    assert (outcomes(results)[CLEAN], outcomes(results)[RECORDS]) == ("skipped", "ok")
    assert "examples" not in outcomes(results)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no-such-distribution", "expected one that is installed"),
        ("./no-such-folder", "no such file or folder"),
        ("gone.whl", "no such file or folder"),
        ("pluggy", "no plugin: it has no entry point of validator.handlers"),
    ],
)
def test_name_without_plugin_is_refused(name: str, text: str) -> None:
    with pytest.raises(UserError, match=text):
        check_distribution(name)


@pytest.mark.long
def test_product_is_checked_by_name_despite_folder_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    results = [result for result in check_distribution("relay-validator") if result.plugin.startswith("router@")]
    assert failures(results) == {}
    assert (outcomes(results)[LOADS], outcomes(results)[CLEAN]) == ("ok", "skipped")


def test_plugin_that_never_ends_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "CHECK_SECONDS_MAX", 3)
    name = make_distribution(folder, MODULE, f"{SOURCE}\nimport time\ntime.sleep(3600)\n")
    assert "the process was ended after 3 s at: " in failures(check_distribution(name))["runs to completion"]


def test_plugin_that_takes_all_memory_fails_alone(folder: Path) -> None:
    name = make_distribution(folder, MODULE, f"{SOURCE}\nTAKEN = bytearray(8 << 30)\n")
    assert "MemoryError" in str(failures(check_distribution(name)))


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


def test_contract_of_the_source_folder_is_used_and_finds_each_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = ('"TooManyCandidates"', '"TooMany"')
    effect = (CHECK, f"{CHECK}    state.session_index += 1\n")
    results = checked(tmp_path, monkeypatch, "checkedb", kind, effect, tests=True)
    found = failures(results)
    assert "TooManyCandidates" in found[f"{SCENARIOS} (TestProtocol)"]
    assert "TooMany: no entry" in found["rules page has every error (TestProtocol)"]
    assert "no scenario" in found["suite covers every error with all fields (TestProtocol)"]
    assert "has changed something" in found["rejected input changes nothing (TestProtocol)"]
    assert ERRORS not in outcomes(results)


def test_protocol_of_the_page_that_adds_a_rule_to_the_router_is_ok(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (ROOT / "docs" / "write-a-protocol.md").read_text(encoding="utf-8")
    project = make_protocol(tmp_path, "turns")
    package = project / "src" / "validator_turns"
    (package / "schemas" / "validator_turns.Candidate.avsc").unlink()
    for path in ("records.py", "rules.py", "conformance/counting.json"):
        (package / path).unlink()
    files = re.findall(r"^`((?:src|tests)/\S+)`:\n\n```\w+\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(files) == 4
    for path, text in files:
        (project / path).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(project / "src")
    results = check_distribution("validator-turns")
    assert failures(results) == {}
    ends = outcomes(results)
    for point in (
        "violations names every error of the package",
        "lane gives expected results",
        "hash seeds do not matter",
    ):
        assert ends[f"{point} (TestProtocol)"] == "ok"


def test_error_that_the_contract_never_saw_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a rule, but no entry on the page, no scenario, and no place among the errors that the tests list."""
    error = 'class ParaOutOfTurn(Violation, kind="ParaOutOfTurn", clause="rules.md C-02", rule="C-02"):\n    """Out of turn."""\n\n\n'
    before = "class TooManyCandidates("
    found = failures(checked(tmp_path, monkeypatch, "checkedd", (before, error + before), tests=True))
    assert found == {
        "violations names every error of the package (TestProtocol)": "ParaOutOfTurn (validator_checkedd.rules): not in violations"
    }


def test_protocol_whose_rule_raises_fails_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = failures(checked(tmp_path, monkeypatch, "checkedc", RAISES))
    assert (
        "candidates[0]: plugin checkedc of validator-checkedc 0.1.0 raised AttributeError at validator_checkedc/rules.py:"
        in found[SCENARIOS]
    )
    assert all("raised AttributeError at" in text for text in found.values())
    assert all(len(text.splitlines()) == 1 for text in found.values())


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
