# SPDX-License-Identifier: Apache-2.0
"""Spark reports the death of the process that plans batches as an error of its connection, which only the stack trace places."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException

from streaming.reasons import reason_of, report_of, worker_died
from streaming.spark_internals import TALKS_TO_PLANNER

MESSAGE = "[STREAM_FAILED] Query [id = 1] terminated with exception: Broken pipe SQLSTATE: XXKST: {error}"
TRACE = """org.apache.spark.sql.streaming.StreamingQueryException: Broken pipe
{error}
\tat java.base/java.io.DataOutputStream.flush(DataOutputStream.java:128)
\tat {where}.latestOffset(PythonStreamingSourceRunner.scala:234)
\tat {where}.commit(PythonStreamingSourceRunner.scala:99)
"""


def failed(error: str, where: str = TALKS_TO_PLANNER) -> StreamingQueryException:
    exception = StreamingQueryException(MESSAGE.format(error=error))
    exception._stackTrace = TRACE.format(error=error, where=where)
    return exception


@pytest.mark.parametrize("error", ["java.io.IOException: Broken pipe", "java.io.EOFException"])
def test_death_of_the_planning_process_is_one_of_a_worker(error: str) -> None:
    report = report_of(failed(error))
    assert worker_died(report)
    assert report.count(TALKS_TO_PLANNER) == 1
    assert not worker_died(report_of(failed(error, "org.apache.kafka.clients.NetworkClient")))
    reason, foreseen = reason_of(failed(error))
    assert reason == MESSAGE.format(error=error)
    assert not foreseen
