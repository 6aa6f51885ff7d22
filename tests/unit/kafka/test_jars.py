# SPDX-License-Identifier: Apache-2.0
"""Jars are fetched once and always verified; errors take one line."""

from __future__ import annotations

import hashlib
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from validator.errors import UserError
from validator.kafka import jars
from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java


def dependencies() -> list[tuple[str, str]]:
    """Return name and version of each jar."""
    root = ElementTree.parse(jars.BROKER).getroot()
    return [(jar.attrib["name"], jar.attrib["rev"]) for jar in root.iter("dependency")]


def test_dependencies_and_checksums_match() -> None:
    assert {f"{name}-{version}.jar" for name, version in dependencies()} == jars.read_sums().keys()


def test_cached_jars_are_used_without_java_or_network(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ensure_jars()
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    assert ensure_jars() == expected
    assert [hashlib.sha256(jar.read_bytes()).hexdigest() for jar in expected] == [
        jars.read_sums()[jar.name] for jar in expected
    ]


def test_changed_jar_is_reported_with_both_checksums(tmp_path: Path) -> None:
    folder = ensure_jars()[0].parent
    shutil.copytree(folder, tmp_path / "jars" / folder.name)
    changed = tmp_path / "jars" / folder.name / min(jars.read_sums())
    changed.write_bytes(b"changed")
    with pytest.raises(UserError) as caught:
        ensure_jars(cache=tmp_path)
    expected, found = jars.read_sums()[changed.name], hashlib.sha256(b"changed").hexdigest()
    assert str(caught.value) == (
        f"{changed} is not the published jar: expected sha256 {expected}, found {found}; "
        f"remove {changed.parent} to fetch it again"
    )
    changed.unlink()
    with pytest.raises(UserError, match=r"\.jar is missing"):
        ensure_jars(cache=tmp_path)


def test_missing_network_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    with pytest.raises(UserError) as caught:
        ensure_jars(cache=tmp_path)
    assert str(caught.value) == (
        "the broker jars could not be fetched (java.net.ConnectException: Connection refused): go online and run "
        "`validator jars`, or name a mirror in the Ivy settings file of VALIDATOR_IVY_SETTINGS; Ivy's log is "
        f"{tmp_path / 'jars' / 'broker.log'}"
    )


def test_mirror_from_user_settings_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = tmp_path / "mirror"
    named = {f"{name}-{version}.jar": (name, version) for name, version in dependencies()}
    for jar in ensure_jars():
        name, version = named[jar.name]
        place = mirror / name / version
        place.mkdir(parents=True)
        shutil.copy(jar, place / jar.name)
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers><filesystem name="mirror">'
        f'<artifact pattern="{mirror}/[artifact]/[revision]/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    monkeypatch.setenv("VALIDATOR_IVY_SETTINGS", str(settings))
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    steps: list[tuple[str, int, int]] = []
    fetched = ensure_jars(cache=tmp_path, progress=lambda *step: steps.append(step))
    assert [jar.name for jar in fetched] == sorted(jars.read_sums())
    count = len(jars.read_sums())
    assert [(done, total) for _, done, total in steps] == [(at, count) for at in range(1, count + 1)]
    assert "kafka-clients 4.2.1" in [step[0] for step in steps]
    assert (tmp_path / "jars/broker.lock").stat().st_mode & 0o777 == 0o644, "another user of the cache may hold it"


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch()
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_java_home_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java = fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == java


@pytest.mark.parametrize(("version", "major"), [("1.8.0_392", 8), ("11.0.2", 11)])
def test_old_java_is_reported_with_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int
) -> None:
    java = fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=rf"Java 17 or newer is needed, {java} is Java {major}: install .* JAVA_HOME"):
        find_java()


def test_missing_java_is_reported_with_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match=r"Java 17 or newer is needed, found none in JAVA_HOME or PATH: install"):
        find_java()
