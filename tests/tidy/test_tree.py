# SPDX-License-Identifier: Apache-2.0
"""Rules of the tree that a reviewer would otherwise have to remember."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from tests.scheduling import LONGEST_FIRST
from tests.tidy.tree import ROOT, tracked_or_skip


def texts(*suffixes: str) -> list[tuple[Path, str]]:
    wanted = [path for name in tracked_or_skip() if (path := ROOT / name).suffix in suffixes or not suffixes]
    return [(path.relative_to(ROOT), path.read_bytes().decode("utf-8", errors="replace")) for path in wanted]


def test_no_init_file_shadows_a_package() -> None:
    assert not (ROOT / "avro" / "__init__.py").exists(), "it would shadow the PyPI package avro"
    assert not (ROOT / "plugins" / "__init__.py").exists(), "plugins are distributions, not a package"


def test_every_module_names_its_licence() -> None:
    bare = [
        str(path)
        for path, text in texts(".py")
        if text and not text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    ]
    assert bare == []


def test_no_file_names_a_registry() -> None:
    hosts = [
        "pypi" + ".org",
        "pythonhosted" + ".org",
        "maven" + ".org",
        "maven" + ".apache.org",
        "repo1" + ".",
        "--index" + "-url",
    ]
    named = [f"{path}: {host}" for path, text in texts() for host in hosts if host in text]
    assert named == []


def test_no_file_names_a_machine_path() -> None:
    # Home folders and the folder of this checkout; the patterns are split so that this file does not match.
    paths = ["/(?:home|Users)/" + "[a-z]", "/root" + "/", re.escape(str(ROOT)) + r"(?!\w)"]
    pattern = re.compile(r"(?<![\w.])(?:" + "|".join(paths) + ")")
    named = [f"{path}: {found[0]}" for path, text in texts() if (found := pattern.search(text))]
    assert named == []


def test_pinning_files_hold_no_address() -> None:
    pinning = re.compile(
        r"(pyproject\.toml|Makefile|\.ci/run|ivy/.*\.xml|docker-compose\.yml|Dockerfile|requirements.*\.txt)$"
    )
    address = re.compile(
        r"(?<!xmlns:e=\")https?://(?!schema-registry\b|0\.0\.0\.0\b|127\.0\.0\.1\b)\S+"
    )  # a name of XML, and addresses between services of the compose file, are fine
    named = [str(path) for path, text in texts() if pinning.search(path.as_posix()) and address.search(text)]
    assert named == []


def test_wheel_contains_schemas_templates_and_jar_lists(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path / "unpacked")
    schemas = {path.relative_to(ROOT / "avro").as_posix() for path in (ROOT / "avro").rglob("*.avsc")}
    assert schemas
    assert {f"validator/schemas/{name}" for name in schemas} <= names
    sample = {path.name for path in (ROOT / "examples/first-channel").iterdir()}
    assert {f"validator/first_channel/{name}" for name in sample} <= names
    templates = {path.relative_to(ROOT).as_posix() for path in (ROOT / "validator/plugin/templates").rglob("*.in")}
    assert templates
    assert templates <= names
    assets = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / "validator/console").rglob("*.*") if path.suffix != ".pyc"
    }
    assert {"validator/console/static/console.css", "validator/console/templates/base.html"} < assets
    assert assets <= names
    assert {"validator/protocols/kit/rules.md", "validator/protocols/router/rules.md"} <= names
    assert {"validator/kafka/ivy/broker.xml", "validator/kafka/ivy/broker.sha256", "streaming/__init__.py"} <= names
    assert not {name.partition("/")[0] for name in names} & {"tests", "plugins", "avro", "benchmarks"}
    # The unpacked wheel finds its own schemas, the checkout finds the ones at its root.
    program = "from validator.resources import schemas_directory as d; print(d())"
    for where, expected in ((tmp_path / "unpacked", tmp_path / "unpacked/validator/schemas"), (ROOT, ROOT / "avro")):
        found = subprocess.run([sys.executable, "-c", program], cwd=where, capture_output=True, text=True, check=True)
        assert Path(found.stdout.strip()) == expected


def test_files_that_are_scheduled_first_exist() -> None:
    listed = [file for group in LONGEST_FIRST for file in group]
    assert len(set(listed)) == len(listed)
    assert [file for file in listed if not (ROOT / file).is_file()] == []


def test_every_plugin_is_in_the_lists_of_plugins() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    lists = [
        names
        for table in (linter, *linter["contracts"])
        for names in table.values()
        if isinstance(names, list) and "validator_remark" in names
    ]
    table = (ROOT / "plugins" / "README.md").read_text(encoding="utf-8")
    assert len(lists) == 4
    for path in ROOT.glob("plugins/*/pyproject.toml"):
        folder = path.parent.name
        package = f"validator_{folder.replace('-', '_')}"
        assert f"]({folder}/README.md) |" in table, f"add a row of {folder} to plugins/README.md"
        there = [
            names
            for names in lists
            if package in names or ("validator_simulators" not in names and folder == "simulators")
        ]
        assert there == lists, (
            f"[tool.importlinter] of pyproject.toml: add {package} to each list that has validator_remark"
        )
