# SPDX-License-Identifier: Apache-2.0
"""If Spark's JVM runs out of memory, the job ends and says so."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException

from streaming.reasons import OUT_OF_MEMORY, reason_of
from streaming.run import Outages, _follow, ended_in_order
from streaming.session import JvmGone, reason_gone
from streaming.spark_internals import OUT_OF_MEMORY_CODE
from tests.unit.streaming.queries import EXECUTOR_GONE, Log, Query, Stop
from validator import exit_codes
from validator.waiting import Patience

HEAP = "Lost task 0.0: java.lang.OutOfMemoryError: Java heap space\n\tat java.nio.HeapByteBuffer"
EXECUTOR = EXECUTOR_GONE.replace("code 137", "code 52")


def test_job_whose_jvm_runs_out_of_memory_ends_and_says_so() -> None:
    log = Log()
    outages = Outages(Patience(1), SimpleNamespace(requested=False), log)  # type: ignore[arg-type]

    def run() -> int:
        raise JvmGone(OUT_OF_MEMORY)

    assert ended_in_order(run, outages) == exit_codes.STOPPED
    assert log.events == [("failed", {"reason": OUT_OF_MEMORY})]


def test_query_whose_jvm_runs_out_of_memory_says_so() -> None:
    query = Query([])
    query.awaitTermination = lambda _: (_ for _ in ()).throw(StreamingQueryException(HEAP))  # type: ignore[method-assign]
    with pytest.raises(JvmGone, match="driver_memory"):
        _follow(query, Stop(9), Log())  # type: ignore[arg-type]


def test_executor_without_memory_is_a_lost_one() -> None:
    assert reason_of(StreamingQueryException(EXECUTOR)) == ("an executor was lost (127.0.0.1, exit code 52)", False)


class Ended:
    """A JVM's process that has ended with a code, or runs."""

    def __init__(self, code: int | None) -> None:
        self.returncode = code

    def wait(self, seconds: float) -> None:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("java", seconds)


@pytest.mark.parametrize(("code", "reason"), [(OUT_OF_MEMORY_CODE, OUT_OF_MEMORY), (137, "killed"), (None, "")])
def test_end_of_the_jvm_is_told_by_its_code_before_its_query_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch, code: int | None, reason: str
) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", SimpleNamespace(proc=Ended(code)))
    gone = reason_gone()
    assert reason in str(gone or "")
    query, log = Query([]), Log()
    text = "Cannot invoke DAGScheduler.cleanupQueryJobs(long)"
    query.awaitTermination = lambda _: (_ for _ in ()).throw(StreamingQueryException(text))  # type: ignore[method-assign]
    if gone is None:
        assert _follow(query, Stop(9), log) == exit_codes.INTERNAL_ERROR  # type: ignore[arg-type]
    else:
        with pytest.raises(type(gone)):
            _follow(query, Stop(9), log)  # type: ignore[arg-type]
    assert [event for event, _ in log.events] == ["failed"] * (gone is None)
