# SPDX-License-Identifier: Apache-2.0
"""The archives of classes with which Spark and the broker start faster: used only if complete, and replaced by the next ones."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from validator.kafka import class_archive as module
from validator.kafka.class_archive import OUTPUT_VARIABLES, PROGRAMS, ClassArchive, Program, class_archive, java_options
from validator.kafka.jars import ensure_jars


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClassArchive:
    spark = tmp_path / "spark"
    spark.mkdir()
    made = ClassArchive(tmp_path / "classes" / "one.jsa", spark)
    made.path.parent.mkdir()
    monkeypatch.setattr(module, "class_archive", lambda _program, _jars=None: made)
    for variable in OUTPUT_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return made


def keep(archive: ClassArchive, data: bytes = b"classes") -> None:
    written = archive.path.parent / "written"
    written.write_bytes(data)
    archive.keep(written)


def test_complete_archive_is_used_and_private(archive: ClassArchive) -> None:
    assert java_options("spark") == (), "there is none yet"
    keep(archive)
    assert java_options("spark")[:2] == (f"-XX:SharedArchiveFile={archive.path}", "-Xshare:auto")
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
    assert java_options("spark") == ()
    keep(archive, b"new classes")
    assert archive.is_usable()


def test_new_archive_replaces_those_of_this_spark_and_of_removed_ones(archive: ClassArchive, tmp_path: Path) -> None:
    folder = archive.path.parent
    other_spark = tmp_path / "other"
    other_spark.mkdir()
    same, other, gone = (
        ClassArchive(folder / "same.jsa", archive.home),
        ClassArchive(folder / "other.jsa", other_spark),
        ClassArchive(folder / "gone.jsa", tmp_path / "gone"),
    )
    for each in (gone, other, same):
        keep(each)
    keep(archive)
    assert sorted(path.name for path in folder.glob("*.jsa")) == ["one.jsa", "other.jsa"]
    assert other.is_usable()


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_that_makes_its_archive_uses_none(
    archive: ClassArchive, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(archive)
    monkeypatch.setenv(OUTPUT_VARIABLES[program], "/somewhere/classes.jsa")
    assert java_options(program)[0] == "-XX:ArchiveClassesAtExit=/somewhere/classes.jsa"
    (other,) = set(PROGRAMS) - {program}
    assert java_options(other)[0] == f"-XX:SharedArchiveFile={archive.path}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_archive_belongs_to_this_installation(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "cache_directory", lambda: tmp_path)
    found = class_archive(program)
    assert found is not None
    assert found.path.parent == tmp_path / "classes"
    assert any(found.home.glob("**/*.jar"))
    assert class_archive(program) == class_archive(program, ensure_jars()) == found
    assert {class_archive(each) for each in PROGRAMS} > {found}
    monkeypatch.setattr(module, "_release", lambda _: 'JAVA_VERSION="99"')
    other = class_archive(program)
    assert other is not None
    assert other.path != found.path
