# SPDX-License-Identifier: Apache-2.0
"""If Spark's JVM runs out of memory, the job continues with another one that reads less at a time."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from streaming.outside import Outages
from streaming.pace import OUT_OF_MEMORY, QUICK, SINGLE, STEADY, BatchPassed, OutOfMemory, Pace, passing, run_at_paces
from streaming.run import _follow, ended_in_order
from streaming.session import OUT_OF_MEMORY_CODE, JvmGone, SessionSettings, reason_gone
from tests.unit.streaming.queries import KILLED, Log, Query, Stop
from validator import exit_codes
from validator.config import Config
from validator.waiting import Patience

HEAP = "Lost task 0.0: java.lang.OutOfMemoryError: Java heap space\n\tat java.nio.HeapByteBuffer"
EXECUTOR = f"{KILLED}Reason: Command exited with code 52\n"


def played(*ends: BaseException | int) -> tuple[list[Pace], Log, int]:
    """Run the job with one end after another; return its paces, its log and its exit code."""
    paces: list[Pace] = []
    left = list(ends)
    log = Log()

    def run(pace: Pace) -> int:
        paces.append(pace)
        end = left.pop(0)
        if isinstance(end, BaseException):
            raise end
        return end

    outages = Outages(Patience(1), SimpleNamespace(requested=False), log)  # type: ignore[arg-type]
    return paces, log, ended_in_order(lambda: run_at_paces(run, log), outages)


def test_job_slows_down_as_far_as_needed_and_goes_on_at_a_steady_pace() -> None:
    paces, log, code = played(OutOfMemory(), OutOfMemory(), BatchPassed(), OutOfMemory(), BatchPassed(), exit_codes.OK)
    assert paces == [QUICK, STEADY, SINGLE, STEADY, SINGLE, STEADY]
    assert code == exit_codes.OK
    assert [event for event, _ in log.events] == ["restarting"] * 5
    assert log.events[0][1]["reason"] == f"{OUT_OF_MEMORY}; Spark reads 64 records at a time"


def test_value_that_is_too_large_by_itself_ends_the_job() -> None:
    paces, log, code = played(OutOfMemory(), OutOfMemory(), OutOfMemory())
    assert (paces, code) == ([QUICK, STEADY, SINGLE], exit_codes.STOPPED)
    assert log.events[-1] == ("failed", {"reason": OUT_OF_MEMORY})


@pytest.mark.parametrize("text", [HEAP, EXECUTOR])
def test_query_whose_jvm_runs_out_of_memory_says_so(text: str) -> None:
    query = Query([])
    query.awaitTermination = lambda _: (_ for _ in ()).throw(StreamingQueryException(text))  # type: ignore[method-assign]
    with pytest.raises(OutOfMemory, match="driver_memory"):
        _follow(query, Stop(9), Log())  # type: ignore[arg-type]


class Ended:
    """A JVM's process that has ended with a code, or runs."""

    def __init__(self, code: int | None) -> None:
        self.returncode = code

    def wait(self, seconds: float) -> None:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("java", seconds)


@pytest.mark.parametrize(("code", "reason"), [(OUT_OF_MEMORY_CODE, OutOfMemory), (137, JvmGone), (None, type(None))])
def test_end_of_the_jvm_is_told_by_its_code_before_its_query_counts_as_failed(
    code: int | None, reason: type[object]
) -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(proc=Ended(code))))
    gone = reason_gone(spark)
    assert isinstance(gone, reason)
    query, log = Query([]), Log()
    text = "Cannot invoke DAGScheduler.cleanupQueryJobs(long)"
    query.awaitTermination = lambda _: (_ for _ in ()).throw(StreamingQueryException(text))  # type: ignore[method-assign]
    if gone is None:
        assert _follow(query, Stop(9), log, gone=lambda: gone) == exit_codes.INTERNAL_ERROR  # type: ignore[arg-type]
    else:
        with pytest.raises(type(gone)):
            _follow(query, Stop(9), log, gone=lambda: gone)  # type: ignore[arg-type]
    assert [event for event, _ in log.events] == ["failed"] * (gone is None)


def test_job_is_slow_for_one_batch_which_is_committed() -> None:
    commits: list[str] = []
    query = Query(["batch", "nothing"])
    with pytest.raises(BatchPassed):
        _follow(query, Stop(9), Log(), passing(SINGLE, commits.append))  # type: ignore[arg-type]
    assert commits == ["end of 0"]
    assert not query.isActive
    for pace in (QUICK, STEADY):
        query = Query(["batch", "batch", "nothing"])
        assert _follow(query, Stop(2), Log(), passing(pace, commits.append)) == exit_codes.OK  # type: ignore[arg-type]
    assert commits == ["end of 0"] + ["end of 0", "end of 1"] * 2


def test_batch_has_passed_even_if_the_next_one_fails_while_the_query_stops() -> None:
    query = Query(["batch", "is killed"])

    def busy(_: str) -> None:
        query.busy = True

    with pytest.raises(BatchPassed):
        _follow(query, Stop(9), Log(), passing(SINGLE, busy))  # type: ignore[arg-type]
    assert query.script == []


@pytest.mark.parametrize(
    ("master", "alone"),
    [("local[4]", "local[1]"), ("local[*]", "local[1]"), ("local-cluster[1,2,1024]",) * 2, ("yarn", "yarn")],
)
def test_one_task_at_a_time_is_for_local_mode(master: str, alone: str) -> None:
    config = Config.model_validate({"job": {"master": master}})
    assert SessionSettings.of(config, Path("x"), STEADY).master == master
    assert SessionSettings.of(config, Path("x"), SINGLE).master == alone
