# SPDX-License-Identifier: Apache-2.0
"""An artefact holds the files of its distribution, and its plugins are found once it is on the path."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.distributions import install, on_path, plugin_source
from validator.errors import UserError
from validator.plugin.files import distribution_files, files_digest, find_distribution
from validator.plugin.pack import check_artefact, check_artefacts_in_use, pack, use_artefacts
from validator.plugin.registry import discover, installed
from validator.plugin.scaffold import new_project

ROOT = Path(__file__).resolve().parents[3]


def refused(source: str, folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        pack(source, folder)
    text = str(caught.value)
    assert "\n" not in text
    assert not list(folder.glob("*.zip"))
    return text


def test_source_folder_wheel_and_installed_distribution_give_same_bytes(tmp_path: Path) -> None:
    new_project("my-kind", "handler", tmp_path)
    project = tmp_path / "validator-my-kind"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    subprocess.run(build, cwd=project, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(wheel)], check=True, capture_output=True)

    of_folder = pack(str(project), tmp_path / "1").path
    of_wheel = pack(str(wheel), tmp_path / "2").path
    with on_path(tmp_path / "site"):
        of_installed = pack("validator_my.kind", tmp_path / "3").path
        digest = files_digest(distribution_files(find_distribution("validator-my-kind")))
    assert of_folder.name == of_wheel.name == of_installed.name == f"validator_my_kind-0.1.0-{digest[:8]}.zip"
    assert of_folder.read_bytes() == of_wheel.read_bytes() == of_installed.read_bytes()
    with on_path(of_folder):
        assert files_digest(distribution_files(find_distribution("validator-my-kind"))) == digest
    with zipfile.ZipFile(of_folder) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == sorted(archive.namelist())
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_another_process_finds_entry_points_of_artefact(tmp_path: Path) -> None:
    install(tmp_path / "site", "memo", plugin_source("memo"))
    with on_path(tmp_path / "site"):
        artefact = pack("dist-memo", tmp_path / "out").path
    shutil.rmtree(tmp_path / "site")
    program = (
        "from validator.plugin.registry import installed; print(*installed('validator.handlers', ['memo']).values())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(artefact), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("memo@1.0.0 (dist-memo 1.0.0, ")
    assert str(artefact) in done.stdout


def test_protocol_runs_from_artefact_with_schemas_and_suite(tmp_path: Path) -> None:
    new_project("my-rules", "protocol", tmp_path)
    artefact = pack(str(tmp_path / "validator-my-rules"), tmp_path / "out").path
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(artefact), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", "validator", "replay", "--suite", "my-rules"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith(" passed, 0 failed")
    assert not done.stdout.splitlines()[-1].startswith("0 ")


def test_configured_artefacts_precede_installed_plugins(tmp_path: Path) -> None:
    install(tmp_path / "new", "memo", plugin_source("memo", "2.0.0"), version="2.0.0")
    install(tmp_path / "old", "memo", plugin_source("memo"))
    with on_path(tmp_path / "new"):
        artefact = pack("dist-memo", tmp_path).path
    before = list(sys.path)
    with on_path():
        sys.path.append(str(tmp_path / "old"))
        assert list(installed("validator.handlers", ["memo"])) == [("memo", "1.0.0")]
        assert use_artefacts([str(artefact)]) == [artefact]
        assert use_artefacts([str(artefact)]) == [artefact]
        assert sys.path.count(str(artefact)) == 1
        (found,) = [each for each in discover() if each.name == "memo"]
        assert found.distribution_version == "2.0.0"
    assert sys.path == before


def test_artefact_that_would_hide_one_in_use_is_refused(tmp_path: Path) -> None:
    paths = []
    for version in ("1.0.0", "2.0.0"):
        install(tmp_path / version, "memo", plugin_source("memo", version), version=version)
        with on_path(tmp_path / version):
            paths.append(pack("dist-memo", tmp_path).path)
    old, new = paths
    with on_path():
        use_artefacts([str(old)])
        with pytest.raises(
            UserError, match=f"{old.name} is in use, another version of the same distribution, and a pr"
        ):
            use_artefacts([str(new)])
        assert list(installed("validator.handlers", ["memo"])) == [("memo", "1.0.0")]


def test_artefact_lists_needed_distributions(tmp_path: Path) -> None:
    requires = (
        "relay-validator>=1.0",
        "pydantic>2",
        "dist-helper",
        "Dist.Other; python_version > '3'",
        "absent; extra == 'x'",
    )
    install(tmp_path / "site", "memo", plugin_source("memo"), requires=requires)
    install(tmp_path / "site", "helper", "", requires=("dist-deeper",))
    install(tmp_path / "site", "deeper", "")
    install(tmp_path / "site", "other", "")
    with on_path(tmp_path / "site"):
        assert pack("dist-memo", tmp_path).needs == ("dist-deeper", "dist-helper", "dist-other")


def test_distribution_that_cannot_run_from_archive_is_refused(tmp_path: Path) -> None:
    site, out = tmp_path / "site", tmp_path / "out"
    install(site, "fast", plugin_source("fast"), files={"fast_c.cpython-311-x86_64-linux-gnu.so": b"\x7fELF"})
    install(site, "hook", plugin_source("hook"), files={"hook.pth": b"import hook"})
    install(site, "needy", plugin_source("needy"), requires=("dist-fast",))
    install(site, "lonely", plugin_source("lonely"), requires=("dist-absent>=3",))
    editable = {"dist_linked-1.0.0.dist-info/direct_url.json": b'{"dir_info": {"editable": true}, "url": "file:///x"}'}
    install(site, "linked", plugin_source("linked"), files=editable)
    with on_path(site):
        text = "\n".join(refused(f"dist-{name}", out) for name in ("fast", "hook", "needy", "lonely", "linked"))
    compiled = "fast_c.cpython-311-x86_64-linux-gnu.so is compiled and cannot be imported from an archive: install"
    assert text.splitlines() == [
        f"distribution dist-fast 1.0.0: {compiled} the distribution where workers run",
        "distribution dist-hook 1.0.0: hook.pth has no effect in an archive: install the distribution where workers run",
        f"distribution dist-needy 1.0.0: it needs dist-fast, whose {compiled} both where workers run",
        "distribution dist-lonely 1.0.0: it needs dist-absent, which is not installed here: pack it on a machine that has it",
        "distribution dist-linked: it is installed editable: give its source folder instead",
    ]
    assert refused("absent", out).startswith("distribution 'absent': expected one that is installed")
    assert refused("no/such", out).startswith("no/such: expected a source folder with a pyproject.toml, a wheel or")
    (tmp_path / "broken.whl").write_bytes(b"no zip")
    assert refused(str(tmp_path / "broken.whl"), out).startswith(f"{tmp_path}/broken.whl: expected a zip archive: ")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "pyproject.toml").write_text("[build-system]\nrequires = []\nbuild-backend = 'absent'\n")
    assert refused(str(tmp_path / "broken"), out).startswith(f"{tmp_path}/broken: its wheel cannot be built: ")


def artefact(
    folder: Path,
    files: dict[str, bytes],
    extra: dict[str, bytes] | None = None,
    name: str = "dist-own",
    named: str = "dist_own-1.0",
) -> Path:
    """Write an archive as anybody can make one, with the right digest in its name. The digest does not cover what is ``extra``."""
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    contents = {**files, "dist_own-1.0.dist-info/METADATA": metadata}
    path = folder / f"{named}-{files_digest(contents)[:8]}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for member, content in {**contents, "dist_own-1.0.dist-info/RECORD": b"", **(extra or {})}.items():
            archive.writestr(member, content)
    return path


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"json/__init__.py": b""}, "json/__init__.py would hide module json, which every worker has"),
        ({"random.py": b""}, "random.py would hide module random, which every worker has"),
        ({"validator/core/lane.py": b""}, "validator/core/lane.py would hide module validator, which every worker has"),
        ({"streaming/run.py": b""}, "streaming/run.py would hide module streaming, which every worker has"),
        ({"plugins/__init__.py": b""}, "plugins/__init__.py would hide module plugins, which every worker has"),
        ({"pyspark/__init__.py": b""}, "pyspark/__init__.py would hide module pyspark of pyspark"),
        ({"confluent_kafka/__init__.py": b""}, "would hide module confluent_kafka of confluent-kafka"),
        ({"fastavro.py": b""}, "fastavro.py would hide module fastavro of fastavro"),
        ({"pytest/__init__.py": b""}, "pytest/__init__.py would hide module pytest of pytest"),
        ({"own/native.so": b""}, "own/native.so is compiled and cannot be imported from an archive"),
        ({"own.pth": b"import os"}, "own.pth has no effect in an archive"),
        ({"../outside.py": b""}, "expected paths inside the archive, found '../outside.py'"),
        ({"/outside.py": b""}, "expected paths inside the archive, found '/outside.py'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("by", ["configuration", "worker"])
def test_artefact_that_packing_would_refuse_is_refused_where_it_is_used(
    tmp_path: Path, files: dict[str, bytes], expected: str, by: str
) -> None:
    path = artefact(tmp_path, files)
    if by == "configuration":
        with pytest.raises(UserError, match=re.escape(expected)) as caught:
            use_artefacts([str(path)])
    else:
        with on_path(path), pytest.raises(UserError, match=re.escape(expected)) as caught:
            check_artefacts_in_use()
    assert "\n" not in str(caught.value)
    assert str(path) not in sys.path


def test_artefact_with_files_that_its_digest_leaves_out_is_refused(tmp_path: Path) -> None:
    """Python imports compiled modules from archives, and the digest of a distribution does not cover them."""
    files = {"own/__init__.py": b""}
    check_artefact(artefact(tmp_path, files))
    for extra in (
        "json.pyc",
        "__pycache__/json.cpython-311.pyc",
        "own-1.0.data/scripts/run",
        "dist_own-1.0.dist-info/direct_url.json",
    ):
        with pytest.raises(
            UserError, match=re.escape(f"expected files that the digest in its name covers, found '{extra}'")
        ):
            check_artefact(artefact(tmp_path, files, {extra: b"nothing"}))


def test_artefact_of_another_distribution_than_its_name_says_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"it holds other 1\.0: expected it to be named other-1\.0-[0-9a-f]{8}\.zip$"):
        check_artefact(artefact(tmp_path, {"own.py": b""}, name="other"))
    with pytest.raises(UserError, match=r"distribution relay-validator 1\.0: it is the program that plugins extend"):
        check_artefact(artefact(tmp_path, {"own.py": b""}, name="relay-validator", named="relay_validator-1.0"))


def test_artefact_with_the_same_path_twice_is_refused_where_it_is_used(tmp_path: Path) -> None:
    path = artefact(tmp_path, {"own.py": b"one"})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("own.py", b"other")
    with pytest.raises(UserError, match=r"expected each path once, found 'own\.py' twice"):
        use_artefacts([str(path)])


def test_artefact_of_an_installed_distribution_may_replace_its_modules(tmp_path: Path) -> None:
    module = install(tmp_path / "site", "own", plugin_source("own"))
    with on_path(tmp_path / "site"):
        check_artefact(artefact(tmp_path, {f"{module}.py": b""}))
        text = refused(wheel(tmp_path / "hostile-1.0-py3-none-any.whl", {f"{module}.py": b""}), tmp_path / "out")
    assert text.endswith(f"{module}.py would hide module {module} of dist-own")


def test_damaged_artefact_is_one_line(tmp_path: Path) -> None:
    path = artefact(tmp_path, {"own.py": b"text " * 100})
    whole = path.read_bytes()
    refusals = 0
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            check_artefact(path)
        except UserError as error:
            refusals += "\n" not in str(error)
    assert refusals > len(whole) / 14


def test_artefact_that_does_not_match_its_name_is_refused(tmp_path: Path) -> None:
    install(tmp_path / "site", "memo", plugin_source("memo"))
    with on_path(tmp_path / "site"):
        artefact = pack("dist-memo", tmp_path).path
    check_artefact(artefact)
    with zipfile.ZipFile(artefact, "a") as archive:
        archive.writestr("more.py", "")
    with pytest.raises(
        UserError,
        match=r": expected files with the digest [0-9a-f]{8} given in its name, found [0-9a-f]{8}: pack it again$",
    ):
        use_artefacts([str(artefact)])
    assert str(artefact) not in sys.path
    with pytest.raises(UserError, match=r"memo\.zip: expected an artefact named <distribution>-<version>-<sha8>\.zip"):
        check_artefact(tmp_path / "memo.zip")
    with pytest.raises(UserError, match=re.escape("the archive cannot be read: No such file or directory")):
        check_artefact(tmp_path / "dist_memo-1.0.0-00000000.zip")


def wheel(path: Path, files: dict[str, bytes], *, name: str = "hostile", version: str = "1.0") -> str:
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in {**files, "hostile-1.0.dist-info/METADATA": metadata}.items():
            archive.writestr(member, content)
    return str(path)


@pytest.mark.parametrize(
    ("files", "named", "expected"),
    [
        ({}, {"name": "../../../elsewhere"}, "METADATA Name: expected up to 100 characters that match "),
        ({}, {"name": "/tmp/elsewhere"}, "found '/tmp/elsewhere'"),
        ({}, {"version": "1/../../2"}, "METADATA Version: expected up to 100 characters that match "),
        ({}, {"name": "n" * 101}, "METADATA Name: expected up to 100 characters"),
        ({"../outside.py": b""}, {}, "expected paths inside the archive, found '../outside.py'"),
        ({"inside/../../outside.py": b""}, {}, "expected paths inside the archive, found 'inside/../../outside.py'"),
        ({"/etc/outside.py": b""}, {}, "expected paths inside the archive, found '/etc/outside.py'"),
        ({"a\\..\\b.py": b""}, {}, "expected paths inside the archive, found "),
        (
            {"bomb/data": bytes((64 << 20) + 1)},
            {},
            f"expected at most {64 << 20} bytes of files, found ",
        ),
        ({f"many/{at}": b"" for at in range(10_001)}, {}, "expected at most 10000 files, found 10002"),
        ({"json/__init__.py": b""}, {}, "json/__init__.py would hide module json, which every worker has"),
        ({"validator/__init__.py": b""}, {}, "validator/__init__.py would hide module validator"),
        ({"streaming/job.py": b""}, {}, "streaming/job.py would hide module streaming"),
        ({"random.py": b""}, {}, "random.py would hide module random"),
        ({"fastavro/__init__.py": b""}, {}, "fastavro/__init__.py would hide module fastavro"),
        ({"pytest/__init__.py": b""}, {}, "pytest/__init__.py would hide module pytest of pytest"),
    ],
    ids=lambda value: str(next(iter(value), "") if isinstance(value, dict) else value)[:40],
)
def test_hostile_wheel_is_refused(
    tmp_path: Path, files: dict[str, bytes], named: dict[str, str], expected: str
) -> None:
    text = refused(wheel(tmp_path / "hostile-1.0-py3-none-any.whl", files, **named), tmp_path / "out")
    assert expected in text
    assert not (tmp_path / "out").exists()


def test_wheel_with_the_same_path_twice_is_refused(tmp_path: Path) -> None:
    path = wheel(tmp_path / "hostile-1.0-py3-none-any.whl", {"hostile.py": b"one"})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("hostile.py", b"other")
    assert "expected each path once, found 'hostile.py' twice" in refused(path, tmp_path / "out")
