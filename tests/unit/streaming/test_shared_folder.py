# SPDX-License-Identifier: Apache-2.0
"""Whether an executor reaches the job's folder."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from pyspark.errors import StreamingQueryException

from streaming import shared_folder
from streaming.reasons import reason_of
from streaming.shared_folder import AlreadyFailed, SharedFolder, attempt_with, share
from streaming.stages import LANES
from streaming.stateful import started
from validator.config import Config
from validator.errors import UserError
from validator.kafka.transaction import WriterFenced


def attempt(
    monkeypatch: pytest.MonkeyPatch, shared: SharedFolder, number: int, error: Exception | None = None, task: int = 0
) -> None:
    """Execute an attempt at a task, which raises an error."""
    context = SimpleNamespace(stageId=lambda: 3, partitionId=lambda: task, attemptNumber=lambda: number)
    monkeypatch.setattr(shared_folder, "TaskContext", SimpleNamespace(get=lambda: context))
    with attempt_with(shared):
        if error is not None:
            raise error


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


@pytest.mark.parametrize(
    "uri",
    ["s3a://bucket/job", "gs://bucket/job", "hdfs://name-node:8020/job", "hdfs:/job", "file:///job", "S3A://bucket"],
)
def test_storage_that_is_no_file_system_is_refused_with_what_to_use(uri: str) -> None:
    with pytest.raises(ValueError, match="found the URI") as refused:
        Config.model_validate({"job": {"directory": uri}})
    assert f"found the URI '{uri}': the job locks, renames and reads files there itself" in str(refused.value)
    assert "mount one, such as NFS, CephFS or a volume with ReadWriteMany" in str(refused.value)


@pytest.mark.parametrize("path", ["/mnt/job", "job", "a:b/c", "C:"])
def test_path_is_no_uri(path: str) -> None:
    assert Config.model_validate({"job": {"directory": path}}).job.directory == path


def test_spark_gets_a_checkpoint_with_its_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = MagicMock()
    started(MagicMock(), rows, LANES, MagicMock(), "validator", "a b", 0)
    writer = rows.groupBy().transformWithStateInPandas().writeStream.queryName().format().outputMode()
    writer.option.assert_called_once_with("checkpointLocation", f"file://{tmp_path}/a b")


FENCED = WriterFenced("another job has taken over lane polkadot: app-2")


def test_second_attempt_raises_what_the_first_has_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise two jobs would take a lane from each other forever."""
    shared = share(tmp_path)
    with pytest.raises(WriterFenced):
        attempt(monkeypatch, shared, 0, FENCED)
    with pytest.raises(AlreadyFailed) as failed:
        attempt(monkeypatch, shared, 1)
    reported = (
        f"Lost task\nTraceback (most recent call last):\n  File\nstreaming.shared_folder.AlreadyFailed: {failed.value}"
    )
    assert reason_of(StreamingQueryException(reported)) == (f"validator.kafka.transaction.WriterFenced: {FENCED}", True)


def test_task_of_a_lost_executor_is_executed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = share(tmp_path)
    with pytest.raises(WriterFenced):
        attempt(monkeypatch, shared, 0, FENCED, task=1)
    attempt(monkeypatch, shared, 1, task=0)


def test_next_start_forgets_what_was_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WriterFenced):
        attempt(monkeypatch, share(tmp_path), 0, FENCED)
    shared = share(tmp_path)
    attempt(monkeypatch, shared, 1)
    assert [str(path) for path in tmp_path.iterdir()] == [shared.mark]


def test_error_is_raised_also_where_it_cannot_be_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = share(tmp_path)
    shared.check()
    shutil.rmtree(tmp_path)
    with pytest.raises(WriterFenced):
        attempt(monkeypatch, shared, 0, FENCED)


def test_without_a_folder_or_a_task_nothing_is_noted(tmp_path: Path) -> None:
    with pytest.raises(WriterFenced), attempt_with(None):
        raise FENCED
    shared = share(tmp_path)
    with pytest.raises(WriterFenced), attempt_with(shared):
        raise FENCED
    assert [str(path) for path in tmp_path.iterdir()] == [shared.mark]
