# SPDX-License-Identifier: Apache-2.0
"""All that the job uses of Spark, pyspark and py4j though it is private to them, for the version that `PYSPARK` names.

No other module touches a private attribute of pyspark (`tests/unit/streaming/test_spark_internals.py`). `INTERNALS` lists everything that
another version may change without notice, also what `streaming.worker_daemon` imports of pyspark's daemon, each with what would no longer
work; docs/decisions/spark-internals.md shows the table. Texts of Spark's errors are here,
too.
"""

from __future__ import annotations

import subprocess
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark import RDD, SparkConf
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

PYSPARK: Final = "4.2.1"
"""The version with which all of this was tested."""

OUT_OF_MEMORY_CODE: Final = 52
"""Code with which Spark ends its JVM if a task has run out of memory."""


class Internal(NamedTuple):
    """Something private: what has it (``module:attribute``, or a class of Java), and what no longer works without it."""

    name: str
    breaks: str


INTERNALS: Final = (
    Internal("pyspark:SparkContext._gateway", "the end of Spark's JVM is not noticed, and a start cannot be ended"),
    Internal("pyspark:SparkContext._ensure_initialized", "the JVM does not start while pyspark is still imported"),
    Internal("pyspark:SparkContext._jvm", "a file and its checksum may not agree after a crash"),
    Internal("pyspark:SparkContext._active_spark_context", "no session starts after one whose JVM has ended"),
    Internal("pyspark.sql:SparkSession._instantiatedSession", "no session starts after one whose JVM has ended"),
    Internal("pyspark.sql:SparkSession._activeSession", "no session starts after one whose JVM has ended"),
    Internal("pyspark:SparkContext._jsc", "executors that are lost are not reported"),
    Internal("pyspark:SparkContext._accumulatorServer", "a stop waits a second"),
    Internal("pyspark.sql:SparkSession._jvm", "planning processes start with the first batch only"),
    Internal(
        "pyspark.sql:SparkSession._jsparkSession",
        "a batch that hangs is noticed later; a file and its checksum may not agree",
    ),
    Internal(
        "pyspark.errors.exceptions.captured:CapturedException._stackTrace",
        "causes that only Java's trace has are not recognised",
    ),
    Internal("pyspark:RDD._jrdd", "workers start with the first batch only"),
    Internal("pyspark.sql.classic.dataframe:DataFrame._jdf", "planning processes start with the first batch only"),
    Internal("pyspark.daemon:manager", "the job's workers of a stage do not start (`streaming.worker_daemon`)"),
    Internal("pyspark.daemon:worker", "the job's workers of a stage do not start (`streaming.worker_daemon`)"),
    Internal(
        "pyspark.util:enable_faulthandler",
        "the last words of a worker, in a file of the folder PYTHON_FAULTHANDLER_DIR, are not reported",
    ),
    Internal("org.apache.spark.status.AppStatusStore", "executors that are lost are not reported"),
    Internal("org.apache.spark.sql.execution.ui.SQLAppStatusStore", "a batch that hangs is noticed later"),
    Internal("org.apache.spark.sql.classic.SparkSession", "planning processes start with the first batch only"),
    Internal(
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
        "a small batch takes 70 ms of processor time more",
    ),
)
"""Besides these, the formats of the files of a checkpoint (`validator.checkpoint.files`) and of the state (`streaming.state_reader`), which
`tests/streaming/test_state_reader.py` compares with Spark's own reader."""

WORKER_DIED: Final = "Python worker exited unexpectedly"
"""Spark's message for a worker that was killed, by a person or by the system's out-of-memory killer."""

WORKER_LATE: Final = "Python worker failed to connect back"
"""Spark's message for a worker that took longer than 10 s to start; the limit is fixed in Spark, and a very busy machine can exceed it."""

TALKS_TO_WORKERS: Final = "org.apache.spark.api.python."
TALKS_TO_PLANNER: Final = "org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner"
"""What Spark reports instead if it was writing to the worker, to the daemon that starts workers, or to the process that plans batches: the
error of the connection, from its classes for Python."""

EXECUTOR_LOST: Final = "ExecutorLostFailure (executor "
"""Spark's message for a task whose executor ended or was not heard of."""

OUTPUTS_LOST: Final = "has failed the maximum allowable number of times"
"""Spark's message if executors were lost again and again while others read what these had written."""

CONCURRENT_WRITER: Final = "[CONCURRENT_STREAM_LOG_UPDATE]"
"""Spark's message if another job writes the checkpoint, too."""

STATE_UNREADABLE: Final = (
    r"\[CANNOT_LOAD_STATE_STORE|org\.rocksdb\.RocksDBException: .*(?:[Cc]hecksum mismatch|Corruption)"
)
"""What Spark says if files of a partition's state are damaged or missing, and RocksDB of a block that it reads later."""

STATE_STORE: Final = r"opId=(\d+),\s?partId=(\d+)"

STATE_CLOSED: Final = (
    r"in _(?:receive|send)_proto_message\n(?:.*\n)*?(?:EOFError|BrokenPipeError|ConnectionResetError)\b"
)
"""What a worker raises if the thread of Spark's JVM that keeps its state has ended, as with a full disk; Spark itself says no more."""

IDLE: Final = ("Waiting for data to arrive", "Waiting for next trigger")
"""What Spark says of a query that has nothing to do."""

PROVES_SECRET: Final = "org.apache.spark.network.crypto.AuthClientBootstrap.doSaslAuth("  # noqa: S105 - a place
"""Where Spark is, in a trace of its log, if the other end closes the connection instead of accepting the secret."""

STOPPED_START: Final = "stopped SparkContext"
"""What Spark raises at the end of a start that no master has accepted."""


def jvm() -> Any:
    """Return the process of the JVM that this process has started, None without one."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    return None if gateway is None else gateway.proc


def has_gateway() -> bool:
    """Return whether a session of this process has, or had, a JVM."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None


def start_jvm(conf: SparkConf) -> None:
    """Start the JVM, without a session."""
    from pyspark import SparkContext

    SparkContext._ensure_initialized(conf=conf)


def has_ended(process: Any, patience_s: float) -> bool:
    """Return whether a JVM has ended, or ends within ``patience_s``; one that was started elsewhere, of which None is known, has not."""
    if process is None:
        return False
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def forget_jvm() -> None:
    """Let the next session of this process start its own JVM."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


def end_accumulators(spark: SparkSession) -> None:
    """Let the server of accumulators, which nothing here uses, end by itself: it looks once a second whether it should."""
    context = spark.sparkContext
    server, context._accumulatorServer = context._accumulatorServer, None  # type: ignore[assignment]
    if server is not None:
        threading.Thread(target=server.shutdown, daemon=True).start()


def end_checksums(spark: SparkSession) -> None:
    """Let Hadoop write files of this machine without a second one of checksums: a crash between renaming the two would lose a good file."""
    java: Any = spark.sparkContext._jvm
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    java.org.apache.hadoop.fs.FileSystem.getLocal(hadoop).setWriteChecksum(False)


def prepared(tasks: RDD[Any]) -> Any:
    """Return tasks with the environment that workers have now; its `count` runs them, from any thread."""
    return tasks._jrdd


def plan(spark: SparkSession, source: str) -> None:
    """Plan a query of a Python data source, from any thread, which starts the processes that this needs."""
    java: Any = spark._jvm
    # options of the session are among what a process is pooled by, and this is another thread
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    spark.read.format(source).load()._jdf.queryExecution().toRdd().getNumPartitions()


def executors_of(spark: SparkSession) -> Mapping[str, str]:
    """Return the machine of each executor that lives, by its name."""
    context: Any = spark.sparkContext._jsc.sc()
    listed = context.statusStore().executorList(True)  # noqa: FBT003 - Scala's activeOnly
    found = (listed.apply(at) for at in range(listed.size()))
    return {each.id(): str(each.hostPort()).rpartition(":")[0] for each in found if each.id() != "driver"}


def counts_of(spark: SparkSession) -> str:
    """Return all that Spark has counted for the plan that was begun last: rows and bytes of each stage, and between JVM and workers."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    begun = store.executionsCount()
    newest = store.executionsList(max(0, begun - 1), 1)
    return "" if newest.isEmpty() else f"{begun} {store.executionMetrics(newest.apply(0).executionId()).toString()}"


def java_trace(error: StreamingQueryException) -> str:
    trace: str = getattr(error, "_stackTrace", None) or ""
    return trace
