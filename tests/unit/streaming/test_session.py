# SPDX-License-Identifier: Apache-2.0
"""The end of a session whose JVM dies meanwhile."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streaming import session as module
from streaming.session import JvmGone, SessionSettings, SessionStart, StartFailed, starting_session
from validator.errors import UserError


def context(shutdown: Callable[[], object] = lambda: None) -> SimpleNamespace:
    return SimpleNamespace(_accumulatorServer=SimpleNamespace(shutdown=shutdown))


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SessionStart:
    def stop() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(module, "_start", lambda *_: SimpleNamespace(stop=stop, sparkContext=context()))
    made = SessionStart(SessionSettings("local[1]", tmp_path, "1g", 1))
    made.start()
    made.wait()
    return made


def ended(*answers: str) -> Any:
    left = iter([answer == "ended" for answer in answers])
    return lambda *_: next(left)


def test_end_of_a_jvm_while_it_is_stopped_is_no_error(start: SessionStart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_ended", ended("runs", "ended"))
    start.end()


def test_session_that_does_not_stop_is_an_error(start: SessionStart, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_ended", ended("runs", "runs"))
    with pytest.raises(ConnectionRefusedError):
        start.end()


def test_stop_does_not_wait_for_the_server_of_accumulators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never, asked = threading.Event(), threading.Event()
    spark = SimpleNamespace(stop=lambda: None, sparkContext=context(lambda: (asked.set(), never.wait())))
    monkeypatch.setattr(module, "_start", lambda *_: spark)
    made = SessionStart(SessionSettings("local[1]", tmp_path, "1g", 1))
    made.start()
    made.wait()
    made.end()
    assert asked.wait(60)
    assert spark.sparkContext._accumulatorServer is None, "otherwise Spark's stop would wait"
    never.set()


def test_scratch_of_a_killed_jvm_is_removed_and_that_of_a_running_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "job" / module.SCRATCH / "blockmgr-1" / "shuffle"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    monkeypatch.setattr("pyspark.SparkContext._gateway", object())
    assert module.scratch_folder(tmp_path / "job") == tmp_path / "job" / module.SCRATCH
    assert left.exists()
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    scratch = module.scratch_folder(tmp_path / "job")
    assert list(scratch.iterdir()) == []
    assert scratch.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("master", ["local[*]", "local-cluster[1,1,1024]"])
def test_workers_of_this_machine_run_this_interpreter(master: str) -> None:
    assert module.workers_python(master, {"PYSPARK_PYTHON": "/elsewhere/python"}) == sys.executable


def test_workers_of_a_cluster_run_the_named_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    master, named = "spark://there:7077", "./environment/bin/python"
    assert module.workers_python(master, {}) == module.workers_python(master, {"PYSPARK_PYTHON": ""}) == sys.executable
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^PYSPARK_PYTHON: expected a program that the driver has, too, found none at"):
        module.workers_python(master, {"PYSPARK_PYTHON": named})
    (tmp_path / "environment").symlink_to(sys.prefix)
    assert module.workers_python(master, {"PYSPARK_PYTHON": named}) == named


def test_folder_of_the_drivers_sockets_is_short_on_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "unreachable", lambda _: None)
    monkeypatch.setattr(module, "_started", lambda options, _: options)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_HOME", "SPARK_LAUNCHER_OPTS"):
        monkeypatch.setenv(name, "")
    sockets, job = tmp_path / "s", tmp_path / "a-long-name" / "job"
    for master, folder in (("spark://there:7077", sockets), ("local[1]", job / module.SCRATCH)):
        started: Any = module._start(SessionSettings(master, job, "1g", 1), sockets)
        assert f"-Djava.io.tmpdir={folder}" in started["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("failure", [StartFailed("the disk is full"), JvmGone(), None])
def test_jvm_that_may_not_stop_by_itself_is_killed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception | None
) -> None:
    done: list[str] = []
    monkeypatch.setattr(module, "_start", lambda *_: SimpleNamespace())
    monkeypatch.setattr(SessionStart, "kill", lambda _: done.append("killed"))
    monkeypatch.setattr(SessionStart, "end", lambda _: done.append("ended"))
    with nullcontext() if failure is None else pytest.raises(type(failure)):  # noqa: SIM117 - this one surrounds it
        with starting_session(SessionSettings("local[1]", tmp_path, "1g", 1)):
            if failure is not None:
                raise failure
    assert done == ["ended"] if failure is None else ["killed", "ended"]


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (OSError(28, "No space left on device"), StartFailed),
        (Exception("java.io.IOException: No space left on device\n\tat java.base"), StartFailed),
        (OSError(13, "Permission denied"), PermissionError),
        (StartFailed("Spark's master cannot be reached"), StartFailed),
        (UserError("Java is missing: No space left on device"), UserError),
        (Exception("something"), Exception),
    ],
)
def test_start_that_fails_for_want_of_space_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, raised: type[Exception]
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(module, "_start", fail)
    made = SessionStart(SessionSettings("local[1]", tmp_path, "1g", 1))
    made.start()
    with pytest.raises(raised) as found:
        made.wait()
    assert type(found.value) is raised
