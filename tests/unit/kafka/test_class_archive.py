# SPDX-License-Identifier: Apache-2.0
"""The archive of classes with which Spark starts faster: used only if it is complete, and replaced by the next one."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from validator.kafka import class_archive as module
from validator.kafka.class_archive import OUTPUT_VARIABLE, ClassArchive, class_archive, java_options


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    spark = tmp_path / "spark"
    spark.mkdir()
    made = ClassArchive(tmp_path / "classes" / "one.jsa", spark)
    made.path.parent.mkdir()
    monkeypatch.setattr(module, "class_archive", lambda: made)
    monkeypatch.delenv(OUTPUT_VARIABLE, raising=False)
    return made


def keep(archive: ClassArchive, data: bytes = b"classes") -> None:
    written = archive.path.parent / "written"
    written.write_bytes(data)
    archive.keep(written)


def test_complete_archive_is_used_and_private(archive: ClassArchive) -> None:
    assert java_options() == "", "there is none yet"
    keep(archive)
    assert java_options().split()[:2] == [f"-XX:SharedArchiveFile={archive.path}", "-Xshare:auto"]
    for path in archive.path.parent.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "damage",
    [
        lambda archive: archive.path.write_bytes(b"class"),
        lambda archive: archive.path.unlink(),
        lambda archive: archive.path.with_suffix(".json").write_text("{"),
        lambda archive: archive.path.with_suffix(".json").write_text("[]"),
        lambda archive: archive.path.with_suffix(".json").unlink(),
    ],
)
def test_damaged_archive_is_not_used_and_can_be_made_again(archive: ClassArchive, damage: object) -> None:
    keep(archive)
    damage(archive)  # type: ignore[operator]
    assert java_options() == ""
    keep(archive, b"new classes")
    assert archive.is_usable()


def test_new_archive_replaces_those_of_this_spark_and_of_removed_ones(archive: ClassArchive, tmp_path: Path) -> None:
    folder = archive.path.parent
    other_spark = tmp_path / "other"
    other_spark.mkdir()
    same, other, gone = (
        ClassArchive(folder / "same.jsa", archive.spark),
        ClassArchive(folder / "other.jsa", other_spark),
        ClassArchive(folder / "gone.jsa", tmp_path / "gone"),
    )
    for each in (gone, other, same):
        keep(each)
    keep(archive)
    assert sorted(path.name for path in folder.glob("*.jsa")) == ["one.jsa", "other.jsa"]
    assert other.is_usable()


def test_job_that_makes_the_archive_uses_none(archive: ClassArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(archive)
    monkeypatch.setenv(OUTPUT_VARIABLE, "/somewhere/classes.jsa")
    assert java_options().split()[0] == "-XX:ArchiveClassesAtExit=/somewhere/classes.jsa"


def test_archive_belongs_to_this_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = class_archive(tmp_path)
    assert found is not None
    assert found.path.parent == tmp_path / "classes"
    assert (found.spark / "jars").is_dir()
    assert class_archive(tmp_path) == found
    monkeypatch.setattr(module, "_release", lambda _: 'JAVA_VERSION="99"')
    other = class_archive(tmp_path)
    assert other is not None
    assert other.path != found.path
