# SPDX-License-Identifier: Apache-2.0
"""Every option of Spark that the job sets, in one place, each with its reason."""

from __future__ import annotations

from pathlib import Path

from validator.core.limits import RECORD_BYTES_MAX

SHUFFLE_PARTITIONS_LOCAL = 1
"""State partitions of a local job. One core executes one lane; with one partition the same Python worker gets it in every batch, so the
cached lane is always there. On a cluster: a few for each executor of one core."""

RECORDS_PER_TASK = 50_000
"""Kafka records that one decode task takes. A backlog on one partition is cut into tasks of this size, so that every core decodes; a
small batch stays one task for each topic that has news."""

CHUNK_BYTES = 1024 * 1024
"""Bytes at which a stage hands a packed chunk on: large enough that the cost of a row vanishes, small enough that the next stage starts
while this one still works."""


def session_options(log_configuration: Path, driver_memory: str, state_partitions: int) -> dict[str, str]:
    """Return the options of the Spark session."""
    return {
        # an exact count instead of the default 200: each state partition is a task, a RocksDB instance and a commit per batch
        "spark.sql.shuffle.partitions": str(state_partitions),
        # transformWithState needs the RocksDB provider
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # a commit writes the batch's changes, not a copy of the store
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # batches kept for recovery: two would do, ten leave room for a person to look
        "spark.sql.streaming.minBatchesToRetain": "10",
        # the job waits for new offsets this long after it found none (default 10 ms; less load when idle, no visible latency)
        "spark.sql.streaming.pollingDelay": "25ms",
        # no batch without new records: the lane acts on input alone
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # progress is for the log: each entry is a few KiB
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        # adaptive execution replans between stages; there is nothing to adapt in two fixed ones
        "spark.sql.adaptive.enabled": "false",
        # Spark collects rows for a Python stage until one of these is reached: rows between our stages are few and large, so without the
        # second the sink would see the first one only when the lane has made its last
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(CHUNK_BYTES),
        # what is shuffled goes from one process of this machine to the next, once: compressing it took a sixth of the JVM's time
        "spark.shuffle.compress": "false",
        # workers live on: an interpreter with the codec loaded costs half a second
        "spark.python.worker.reuse": "true",
        # where a worker that is ended stood is part of what its batch fails with
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        # the job decides what is tried again: a task that was fenced off and runs again would take the lane from whoever has it now
        "spark.task.maxFailures": "1",
        # a bar for each stage of each batch would fill a log
        "spark.ui.showConsoleProgress": "false",
        # nobody looks at it, and it takes a port and 200 ms of the start
        "spark.ui.enabled": "false",
        # the driver plans; decode and execution are in Python workers outside its heap
        "spark.driver.memory": driver_memory,
        # what workers compute must not depend on the order of a set: one seed for all of them
        "spark.executorEnv.PYTHONHASHSEED": "0",
        # Spark's own log goes to a file of its own
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_configuration.as_uri()}",
    }


def source_options(topics: list[str], records_per_trigger: int) -> dict[str, str]:
    """Return the options of the Kafka source; how to reach the broker comes on top (`validator.kafka.spark_options`)."""
    return {
        "subscribe": ",".join(topics),
        # a lane starts with the first block there is; later starts continue from the checkpoint
        "startingOffsets": "earliest",
        # records that retention has removed are lost blocks: stop and say so
        "failOnDataLoss": "true",
        # how much a batch takes at most: bounds memory, and how long a restart repeats
        "maxOffsetsPerTrigger": str(records_per_trigger),
        # see RECORDS_PER_TASK
        "maxRecordsPerPartition": str(RECORDS_PER_TASK),
        # transactional producers may abort: what was not committed was never said
        "kafka.isolation.level": "read_committed",
        # one record may be as large as a candidate gets
        "kafka.max.partition.fetch.bytes": str(2 * RECORD_BYTES_MAX),
    }
