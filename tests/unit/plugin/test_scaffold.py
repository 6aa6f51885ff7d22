# SPDX-License-Identifier: Apache-2.0
"""A project from a template works unchanged: its tests pass with its installed wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from validator.errors import UserError
from validator.plugin.api import API_VERSION
from validator.plugin.scaffold import KINDS, TEMPLATES, new_project
from validator.testing.check import Outcome, check_distribution

ROOT = Path(__file__).resolve().parents[3]


def render(folder: Path, kind: str, name: str = "my-kind") -> Path:
    new_project(name, kind, folder)
    return folder / f"validator-{name}"


def unpacked_wheel(project: Path, folder: Path) -> Path:
    """Build a project's wheel and unpack it, so that its entry points are found there."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.mark.parametrize("kind", KINDS)
def test_tests_of_new_project_pass(tmp_path: Path, kind: str) -> None:
    project = render(tmp_path, kind)
    site = unpacked_wheel(project, tmp_path / "wheel")
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_ADDOPTS": "",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert "failed" not in done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_new_project_passes_ruff_and_names_its_licence(tmp_path: Path, kind: str) -> None:
    project = render(tmp_path, kind)
    rules = [
        "--isolated",
        "--select",
        "B,E,F,I,PT,RUF,SIM,UP,W",
        "--ignore",
        "RUF012",
        "--line-length",
        "140",
        "--no-cache",
        ".",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *rules], cwd=project, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for module in project.rglob("*.py"):
        assert module.read_text().startswith("# SPDX-License-Identifier: "), module


@pytest.mark.parametrize("kind", KINDS)
def test_new_project_names_group_bounds_and_api(tmp_path: Path, kind: str) -> None:
    project = render(tmp_path, kind)
    metadata = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    assert metadata["entry-points"] == {f"validator.{kind}s": {"my-kind": "validator_my_kind"}}
    (requirement,) = metadata["dependencies"]
    assert requirement == "validator>=0.1,<1"
    sources = "".join(path.read_text() for path in project.rglob("*.py"))
    assert f"api_version={API_VERSION}" in sources
    assert not [path for path in project.rglob("*") if path.suffix == ".in" or "PACKAGE" in path.name]
    assert "$" not in sources


def test_plugin_name_may_contain_dots(tmp_path: Path) -> None:
    new_project("my.kind_a", "handler", tmp_path)
    metadata = tomllib.loads((tmp_path / "validator-my-kind-a" / "pyproject.toml").read_text())["project"]
    assert metadata["entry-points"] == {"validator.handlers": {"my.kind_a": "validator_my_kind_a"}}


@pytest.mark.parametrize(
    "kind", [kind if kind == "transport" else pytest.param(kind, marks=pytest.mark.long) for kind in KINDS]
)
def test_new_project_passes_plugin_check(tmp_path: Path, kind: str) -> None:
    results = check_distribution(str(render(tmp_path, kind)))
    assert [result for result in results if result.outcome is Outcome.FAILED] == []
    assert {"loads", "works from an archive"} <= {result.point for result in results}


def test_project_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^plugin name: expected 1 to 64 of a-z 0-9 \. _ - .*, found 'My kind'$"):
        new_project("My kind", "handler", tmp_path)
    with pytest.raises(UserError, match=r"^kind: expected one of handler, protocol, transport, found 'hook'$"):
        new_project("my-kind", "hook", tmp_path)
    render(tmp_path, "handler")
    with pytest.raises(UserError, match=r"validator-my-kind: expected a folder that does not exist yet$"):
        render(tmp_path, "transport")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"the project cannot be written: Not a directory$"):
        new_project("my-kind", "handler", tmp_path / "file")


def test_every_kind_has_template() -> None:
    assert sorted(path.name for path in TEMPLATES.iterdir()) == sorted(KINDS)
