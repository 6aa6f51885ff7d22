# SPDX-License-Identifier: Apache-2.0
"""What `validator plugins check` finds in a distribution, however the distribution behaves."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.unit.testing import remark
from tests.unit.testing.made_distribution import make_distribution
from validator.errors import UserError
from validator.testing import check
from validator.testing.check import Outcome, Result, check_distribution

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


def test_valid_plugin_is_ok(folder: Path) -> None:
    name = make_distribution(folder, MODULE, SOURCE)
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
