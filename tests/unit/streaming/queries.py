# SPDX-License-Identifier: Apache-2.0
"""A query that plays a script, with what Spark says when it fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark.errors import StreamingQueryException

TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted: Task 0 failed 1 times
Traceback (most recent call last):
  File "lane.py", line 9, in add
validator.core.lane.WaitingOverflow: lane polkadot: more than 9 blocks; waiting for the record of the block after 0

	at org.apache.spark.api.python.BasePythonRunner
=== Streaming Query ===
"""


KILLED = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted: Lost task 0.0 in stage 41.0
org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider this and that.
	at org.apache.spark.api.python.BasePythonRunner
"""
CUT_OFF = """Job aborted due to stage failure: Task 1 in stage 102.0 failed 1 times: java.io.IOException: Broken pipe
	at java.base/sun.nio.ch.SocketDispatcher.write(SocketDispatcher.java:62)
	at org.apache.spark.api.python.BasePythonRunner$ReaderInputStream.writeAdditionalInputToPythonWorker(PythonRunner.scala:904)
"""
NO_DAEMON = """Job aborted due to stage failure: Task 0 in stage 17.0 failed 1 times: java.io.IOException: Stream closed
	at java.base/java.lang.ProcessBuilder$NullOutputStream.write(ProcessBuilder.java:445)
	at org.apache.spark.api.python.PythonWorkerFactory.$anonfun$stopWorker$1(PythonWorkerFactory.scala:501)
"""
EXECUTOR_GONE = """Job aborted due to stage failure: Task 0 in stage 17.0 failed 2 times, most recent failure: Lost task 0.1 in stage 17.0
(TID 42) (127.0.0.1 executor 1): ExecutorLostFailure (executor 1 exited caused by one of the running tasks)
Reason: Command exited with code 137
Driver stacktrace:
"""
OUTPUTS_GONE = (
    "Job aborted due to stage failure: ShuffleMapStage 12 (start at null:-1) has failed the maximum allowable number of times: 4. "
    "Most recent failure reason: org.apache.spark.shuffle.FetchFailedException"
)
LATE = """Python worker failed to connect back.
=== Streaming Query ===
Identifier: validator [id = 1, runId = 2]
"""
ANOTHER_CONNECTION = CUT_OFF.replace(
    "org.apache.spark.api.python.BasePythonRunner", "org.apache.kafka.clients.NetworkClient"
)
FAULT = TRACEBACK.replace(
    "lane.WaitingOverflow: lane polkadot", "handlers.errors.HandlerFault: handler tally@1.0.0 (tally)"
)
MORE_THAN_KILLED = f"{TRACEBACK}{KILLED}"
NOT_TAKEN = "first\nTraceback (most recent call last)\nvalidator.kafka.transaction.WriteFailed: Kafka did not accept the batch: timed out\n"

KAFKA_GONE = NOT_TAKEN.replace("WriteFailed: Kafka did not", "KafkaGone: Kafka did not")
DISK_FULL = """Job aborted due to stage failure: Task 0 in stage 8.0 failed 1 times: java.io.IOException: No space left on device
	at java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""
STATE_NOT_WRITTEN = """[STREAM_FAILED] Query [id = 1] terminated with exception: [CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing
=== Streaming Query ===
"""
STATE_NOT_WRITTEN_TRACE = """org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] Query [id = 1]
	at org.apache.spark.sql.execution.streaming.runtime.StreamExecution
Caused by: org.apache.spark.SparkException: [CANNOT_WRITE_STATE_STORE.CANNOT_COMMIT] Error writing
	at org.apache.spark.sql.errors.QueryExecutionErrors$
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
	at org.apache.hadoop.fs.RawLocalFileSystem
	... 40 more
"""
STATE_CLOSED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: \
Task 0 in stage 49.0 failed 1 times, most recent failure: Lost task 0.0 in stage 49.0 (TID 68) (here executor driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "pyspark/sql/streaming/map_state_client.py", line 170, in update_value
    response_message = self._stateful_processor_api_client._receive_proto_message()
  File "pyspark/sql/streaming/stateful_processor_api_client.py", line 491, in _receive_proto_message
    length = read_int(self.sockfile)
  File "pyspark/serializers.py", line 602, in read_int
    raise EOFError
EOFError

	at org.apache.spark.api.python.BasePythonRunner
"""
"""What Spark says if its own thread cannot write the state."""

OUTSIDE = {
    "kafka gone": KAFKA_GONE,
    "disk full": DISK_FULL,
    "too busy": LATE,
    "state closed": STATE_CLOSED,
}

FAILURES = {
    **OUTSIDE,
    "fails": TRACEBACK,
    "faults": FAULT,
    "is killed": KILLED,
    "is cut off": CUT_OFF,
    "loses its executor": EXECUTOR_GONE,
    "not taken": NOT_TAKEN,
    "raises, then is killed": MORE_THAN_KILLED,
}


class Query:
    """A query that plays one step of its script each time somebody waits for it."""

    def __init__(self, script: list[str]) -> None:
        self.script = script
        self.recentProgress: list[Any] = []
        self.isActive = True
        self.busy = False

    @property
    def lastProgress(self) -> Any:  # noqa: N802 - as Spark names it
        return self.recentProgress[-1] if self.recentProgress else None

    @property
    def status(self) -> dict[str, Any]:
        return {"isTriggerActive": self.busy}

    def awaitTermination(self, _: float) -> bool:  # noqa: N802
        step = self.script.pop(0)
        if step in FAILURES:
            raise StreamingQueryException(FAILURES[step])
        if step == "batch":
            rows = len(self.recentProgress) + 5
            progress = SimpleNamespace(
                batchId=len(self.recentProgress),
                numInputRows=rows,
                observedMetrics={},
                timestamp="2026-01-01T00:00:00.000Z",
                durationMs={"addBatch": 3},
                sources=[SimpleNamespace(latestOffset="", endOffset=f"end of {len(self.recentProgress)}")],
            )
            self.recentProgress.append(progress)
        elif step in ("busy", "idle"):
            self.busy = step == "busy"
        return False

    def stop(self) -> None:
        self.isActive = False


class Log:
    """Keeps events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def info(self, event: str, **values: Any) -> None:
        self.events.append((event, values))

    error = warning = info


class Stop:
    """Requests the stop after a number of polls."""

    def __init__(self, after: int) -> None:
        self.left = after

    @property
    def requested(self) -> bool:
        self.left -= 1
        return self.left < 0
