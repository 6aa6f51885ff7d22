# SPDX-License-Identifier: Apache-2.0
"""A valid plugin meets every point of the contract; each bad plugin breaks exactly its own points."""

from __future__ import annotations

import importlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.unit.testing import bad_plugins, remark
from tests.unit.testing.made_distribution import make_distribution
from validator.testing import Example, HandlerContract, contract, points
from validator.testing.case import Broken, NotApplicable
from validator.testing.lint import RULES

ASK = b"\x00\x02" + (2001).to_bytes(4, "little")


class TestRemark(HandlerContract):
    plugin = remark
    config: ClassVar = {"copy_to": 2001}
    examples = (
        b"\x00\x01hello",
        Example(b"\x00\x01again", para=2001, setup=lambda chain: chain.send(b"\x00\x01hello")),
        ASK,
    )


POINTS = {
    name: getattr(points, name) for name in points.__all__ if name not in ("snapshot", "works_from_an_archive", "is_clean")
}  # fmt: skip
SUBJECTS = [each for each in vars(bad_plugins).values() if isinstance(each, type) and hasattr(each, "breaks")]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.__name__)
def test_bad_plugin_breaks_exactly_its_points(subject: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "HASH_SEEDS", ("0", "1"))  # each seed costs a process
    broken = {}
    for name, point in POINTS.items():
        bad_plugins.SEEN.clear()
        try:
            point(subject().case())
        except Broken as what:
            broken[name] = str(what)
        except NotApplicable:
            pass
    assert set(broken) == set(subject.breaks)
    for name, text in dict(subject.breaks).items():
        assert text in broken[name]


def test_every_point_has_plugin_that_breaks_it() -> None:
    elsewhere = {"works_from_an_archive", "has_a_readme_that_runs", "is_clean", "snapshot"}
    assert {name for subject in SUBJECTS for name in subject.breaks} == set(points.__all__) - elsewhere


def test_every_point_is_an_inherited_test() -> None:
    text = Path(contract.__file__).read_text(encoding="utf-8")
    assert all(f"points.{name})" in text for name in points.__all__ if name != "snapshot")


def test_contract_without_examples_fails() -> None:
    class Empty(HandlerContract):
        plugin = remark

    with pytest.raises(AssertionError, match="give examples"):
        Empty().test_every_example_succeeds()


def test_inapplicable_point_is_skipped_with_reason() -> None:
    with pytest.raises(pytest.skip.Exception, match="no README is named"):
        TestRemark().test_its_readme_runs()


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("```python\nx = 1\n```\nand\n```python\nassert x == 1\n```\n", None),
        ("```python\n>>> 1 + 1\n2\n>>> y = 3\n```\n```python\nassert y == 3\n```\n", None),
        ("```python\n>>> 1 + 1\n3\n```\n", "Expected:\n    3"),
        ("```python\nassert 1 + 1 == 3\n```\n", "AssertionError"),
        ("```sh\nmake\n```\n", "no example in a ```python block"),
    ],
)
def test_examples_in_readme_run(text: str, failure: str | None, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(text)
    case = replace(TestRemark().case(), readme=readme)
    if failure is None:
        points.has_a_readme_that_runs(case)
    else:
        with pytest.raises(Broken, match=re.escape(failure)):
            points.has_a_readme_that_runs(case)


def test_source_of_plugin_is_linted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unclean_plugin.py").write_text(Path(remark.__file__).read_text() + "\nimport time\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("unclean_plugin")
    with pytest.raises(Broken, match=r"unclean_plugin\.py:53:1: clock: import time: time is the block number"):
        points.is_clean(replace(TestRemark().case(), plugin=module))
    with pytest.raises(NotApplicable, match="an object, not a module"):
        points.is_clean(bad_plugins.Sound().case())


CONTRACT_FILE = """
import validator_zipped
from validator.testing import HandlerContract
class TestZipped(HandlerContract):
    plugin = validator_zipped
    config = {"copy_to": 2001}
    examples = (b"\\x00\\x01hello",)
"""
NEEDS_A_FILE = "\nfrom pathlib import Path\nTABLE = Path(__file__).with_name('validator_zipped.table').read_text()\n"


@pytest.mark.parametrize(("more", "broken"), [("", None), (NEEDS_A_FILE, "NotADirectoryError")])
@pytest.mark.parametrize("editable", [False, True])
def test_plugin_works_from_bytes_of_its_wheel(
    more: str, broken: str | None, editable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(remark.__file__).read_text() + more
    make_distribution(tmp_path, "validator_zipped", source, editable=editable)
    (tmp_path / "validator_zipped.table").write_text("x")
    (tmp_path / "contract_of_zipped.py").write_text(CONTRACT_FILE)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        case = importlib.import_module("contract_of_zipped").TestZipped().case()
        if broken is None:
            points.works_from_an_archive(case)
        else:
            with pytest.raises(Broken, match=broken):
                points.works_from_an_archive(case)
    finally:
        del sys.modules["contract_of_zipped"], sys.modules["validator_zipped"]


def test_module_without_distribution_has_no_archive() -> None:
    with pytest.raises(NotApplicable, match="no installed distribution has an entry point remark = tests"):
        points.works_from_an_archive(TestRemark().case())


def test_examples_on_testing_page_run() -> None:
    pytest.importorskip("validator_remark", reason="the plugin remark is not installed")
    page = Path(__file__).parents[3] / "docs" / "plugin-testing.md"
    points.has_a_readme_that_runs(replace(TestRemark().case(), readme=page))


def test_testing_page_names_every_lint_rule() -> None:
    page = (Path(__file__).parents[3] / "docs" / "plugin-testing.md").read_text(encoding="utf-8")
    assert [rule for rule in RULES if f"`{rule}`" not in page and rule != "allow"] == []
