# SPDX-License-Identifier: Apache-2.0
"""Whether an executor reaches the job's folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from streaming.shared_folder import checkpoint_location, share
from validator.errors import UserError


def test_worker_that_finds_the_drivers_file_reaches_the_folder(tmp_path: Path) -> None:
    share(tmp_path / "job").check()


def test_folder_is_looked_at_once_per_worker_and_start(tmp_path: Path) -> None:
    first = share(tmp_path)
    first.check()
    second = share(tmp_path)
    first.check()
    shutil.rmtree(tmp_path)
    first.check()
    with pytest.raises(UserError):
        second.check()


def test_only_the_newest_start_has_a_file(tmp_path: Path) -> None:
    names = [Path(share(tmp_path).mark).name for _ in range(3)]
    assert len(set(names)) == 3
    assert [path.name for path in tmp_path.iterdir()] == names[-1:]


@pytest.mark.parametrize("made", [False, True])
def test_folder_of_the_executors_own_disk_is_refused(tmp_path: Path, *, made: bool) -> None:
    shared = share(tmp_path / "job")
    (tmp_path / "job").rename(tmp_path / "elsewhere")
    if made:  # as Spark makes it for the state
        (tmp_path / "job" / "checkpoint").mkdir(parents=True)
    with pytest.raises(
        UserError, match=r"job: the executor on \S+ does not find the driver's files there \(No such file"
    ):
        shared.check()


def test_copy_of_the_folder_from_an_earlier_start_is_refused(tmp_path: Path) -> None:
    share(tmp_path / "job")
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    shared = share(tmp_path / "job")
    shutil.rmtree(tmp_path / "job")
    (tmp_path / "copy").rename(tmp_path / "job")
    with pytest.raises(UserError, match="does not find the driver's files there"):
        shared.check()


def test_folder_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = share(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, mode: (path, mode) != (tmp_path, os.W_OK | os.X_OK))
    with pytest.raises(UserError, match=r"the executor on \S+ may not write there: let it run as the driver's user"):
        shared.check()


def test_spark_gets_a_checkpoint_with_its_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert checkpoint_location("a b") == f"file://{tmp_path}/a b"
