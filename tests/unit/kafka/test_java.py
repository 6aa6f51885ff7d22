# SPDX-License-Identifier: Apache-2.0
"""The folder from which a job on one machine starts Spark: no archives of Python packages, which every worker would compile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from validator.kafka import java as module
from validator.kafka.java import HOME_VARIABLE, lean_home, make_lean_home, use_lean_home


@pytest.fixture
def spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pyspark"
    for name in ("bin", "jars", "python/lib"):
        (folder / name).mkdir(parents=True)
    (folder / "python" / "lib" / "pyspark.zip").touch()
    (folder / "jars" / "spark.jar").touch()
    monkeypatch.setattr(module, "installed_spark", lambda: folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VALIDATOR_HOME", raising=False)
    monkeypatch.setenv(HOME_VARIABLE, "")  # so that it is put back, whatever a test sets
    monkeypatch.delenv(HOME_VARIABLE)
    return folder


def test_folder_has_what_starts_spark_and_no_archive(spark: Path) -> None:
    home = make_lean_home(spark)
    assert home == make_lean_home(spark) == lean_home(spark)
    assert (home / "jars" / "spark.jar").is_file()
    assert (home / "bin").is_dir()
    assert not list(home.rglob("*.zip"))


@pytest.mark.parametrize("named", ["", "pyspark", "pyspark/../pyspark"])
def test_installed_spark_starts_from_it(named: str, spark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if named:
        monkeypatch.setenv(HOME_VARIABLE, str(spark.parent / named))
    use_lean_home()
    assert os.environ[HOME_VARIABLE] == str(lean_home(spark))
    use_lean_home()
    assert os.environ[HOME_VARIABLE] == str(lean_home(spark))


def test_installation_that_the_user_names_is_kept(spark: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "another"))
    use_lean_home()
    assert os.environ[HOME_VARIABLE] == str(tmp_path / "another")
    assert not lean_home(spark).exists()


def test_cache_that_cannot_be_written_is_done_without(spark: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    use_lean_home()
    assert HOME_VARIABLE not in os.environ
    assert spark.is_dir()
