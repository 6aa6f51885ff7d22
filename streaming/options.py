# SPDX-License-Identifier: Apache-2.0
"""Every Spark option that the job sets, with the reason for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streaming.stages import local_cores
from validator.private import UMASK

CHUNK_BYTES = 1024 * 1024
"""Bytes at which a stage passes a packed chunk to the next: large enough to make the cost per row negligible, small enough that the next
stage starts while this one still works."""

CHUNK_SCHEMA = (
    "lane string, topic string, partition int, first_offset long, end_offset long, records int, "
    "chunk binary, file string, position long, size long"
)
"""Each row is a run of one lane's inputs from one Kafka partition, in offset order; ``records`` is their number. The last four columns
are a `streaming.chunk_files.PassedOn`."""

STOP_QUERY_S_MAX = 120
"""Seconds in which a query that is stopped must end; Spark by default waits forever for a batch that hangs."""

WHOLE_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of a record's value that is decoded. Of a larger one only the ends and the size are: a batch that compresses well may hold a value
of any size, whatever the topic's limit."""

KEY_BYTES_MAX = 1024
"""Bytes of a record's key that a plugin's job gets: more than any name of a lane or a queue has."""

BATCH_BYTES_MAX = 512 * 1024 * 1024
"""Bytes of one lane's inputs that a decode task passes on, and that the lane takes of a batch. Of further ones only the places are passed
on: the lane is parked, and takes all of them from Kafka again, in shares."""

BATCH_SHARE = 8
"""The same limit as a share of the memory of a lane's worker: one eighth. Unpacked, inputs are larger, and outputs are added to them."""


def bytes_of(size: str) -> int:
    """Return the bytes of a size such as 512m or 4g."""
    return int(size[:-1]) * {"m": 1024**2, "g": 1024**3}[size[-1]]


def batch_bytes_max(worker_memory_bytes: int | None) -> int:
    """Return the bytes of one lane's inputs in a batch, for workers with some memory, None if that is unlimited."""
    return BATCH_BYTES_MAX if worker_memory_bytes is None else min(BATCH_BYTES_MAX, worker_memory_bytes // BATCH_SHARE)


JIT = {
    # without the second compiler a start takes half the processor time, and the lanes, which are in Python, run as fast
    "quick": "-XX:TieredStopAtLevel=1",
    "full": "",
}
"""Java's option for each value of `[job] jit`."""


def jvm_options(log_configuration: Path, jit: str, archive: Sequence[str], scratch: Path) -> str:
    """Return the options of the driver's JVM; ``archive`` has those of the class archive, ``scratch`` is for files of one session."""
    options = (
        # Spark's own log goes to a separate file
        f"-Dlog4j2.configurationFile={log_configuration.as_uri()}",
        # a JVM that is killed leaves its files; where others' are, nobody would remove them
        f'"-Djava.io.tmpdir={scratch}"',
        JIT[jit],
        *archive,
    )
    return " ".join(option for option in options if option)


def session_options(java_options: str, driver_memory: str, state_partitions: int) -> dict[str, str]:
    return {
        # an exact count instead of the default 200: each state partition is a task, a RocksDB instance and a commit per batch
        "spark.sql.shuffle.partitions": str(state_partitions),
        # transformWithState needs the RocksDB provider
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        # a commit writes the batch's changes, not a copy of the store
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # batches kept for recovery: two would do, ten leave time to inspect them
        "spark.sql.streaming.minBatchesToRetain": "10",
        # pause before polling for new offsets again after finding none (default 10 ms; less load when idle, no visible latency)
        "spark.sql.streaming.pollingDelay": "25ms",
        # no batch without new records: a lane acts only on input
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # see STOP_QUERY_S_MAX
        "spark.sql.streaming.stopTimeout": f"{STOP_QUERY_S_MAX}s",
        # progress is for the log: each entry is a few KiB
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        # adaptive execution replans between stages; there is nothing to adapt in two fixed ones
        "spark.sql.adaptive.enabled": "false",
        # Spark collects rows for a Python stage until one of these limits is reached. Ours are few and may be large
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(CHUNK_BYTES),
        # shuffled data moves once, between processes of one machine: compressing it took a sixth of the JVM's time
        "spark.shuffle.compress": "false",
        # reuse workers: starting an interpreter and loading the codec takes half a second
        "spark.python.worker.reuse": "true",
        # with it the workers of SQL's stages would have another environment, and not be found among those that `streaming.stages` starts
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # include the stack of a worker that died in its batch's error
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        # the job decides what to retry: a retried task that had been fenced off would take the lane back from its new writer
        "spark.task.maxFailures": "1",
        # a progress bar per stage and batch would fill the log
        "spark.ui.showConsoleProgress": "false",
        # nobody uses it, and it costs a port and 200 ms at startup
        "spark.ui.enabled": "false",
        # the driver only plans; decoding and execution happen in Python workers outside its heap
        "spark.driver.memory": driver_memory,
        # results must not depend on set order: all workers share one hash seed
        "spark.executorEnv.PYTHONHASHSEED": "0",
        # Arrow's own allocator reserves 1 GiB at once, which counts as used against a worker's limit (`workers.bound_worker`)
        "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
        "spark.driver.extraJavaOptions": java_options,
    }


LOOPBACK = "127.0.0.1"


def is_local(master: str) -> bool:
    """Return whether all of Spark's processes are on this machine, started by the session itself."""
    return is_one_jvm(master) or master.startswith("local-cluster[")


def is_one_jvm(master: str) -> bool:
    """Return whether the driver's JVM runs all tasks, too."""
    return master == "local" or master.startswith("local[")


def checkpoint_options(master: str) -> dict[str, str]:
    """Return the options of how the checkpoint's files are written, if one JVM writes all; `streaming.session` ends their checksums."""
    if not is_one_jvm(master):
        return {}
    return {
        # Spark's other interface to the same file system asks a process, `readlink`, about every file: 70 ms of processor for a small batch
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # Hive's class, which Java finds first, does not rename to a file that exists, and Spark does not notice: of a batch that is
        # repeated, the first attempt's changes would stay, while all later ones follow from the second's
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    }


def protection_options(master: str, sockets: Path | None) -> dict[str, str]:
    """Return the options that keep strangers out: of Spark's own connections, and of those between its JVMs and their Python workers.

    Spark makes a secret by itself in local mode, on YARN and on Kubernetes. ``sockets`` is a private folder for local sockets.
    """
    options = {
        # processes of Spark prove to each other that they belong to this session, and encrypt what they send
        "spark.authenticate": "true",
        "spark.network.crypto.enabled": "true",
        # workers and their JVM use sockets in the file system: over TCP, the state of transformWithState would be served to anybody, on
        # every address of the machine
        "spark.python.unix.domain.socket.enabled": "true",
    }
    # Hadoop's file system sets rights by itself, whatever the process's umask
    options["spark.hadoop.fs.permissions.umask-mode"] = f"{UMASK:03o}"
    if sockets is not None:
        options["spark.python.unix.domain.socket.dir"] = str(sockets)
    if is_local(master):
        options |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    return options


STILL_DAYS_MAX = 365
"""Days for which a local job may stand still, with its machine or by a signal, before Spark gives its own executor up."""

ATTEMPTS_MAX = 2
"""Attempts at a task on a cluster: the second is for lost executors, and raises again what the first has raised
(`streaming.shared_folder`)."""


def cluster_options(master: str, jit: str) -> dict[str, str]:
    """Return the options that depend on where the executors are; with separate ones the `spark-defaults.conf` has all others.

    An executor in the driver's own JVM cannot be lost alone. Spark would give it up all the same after a machine that stood still for two
    minutes, and the JVM would end minutes later.
    """
    if is_one_jvm(master):
        return {"spark.storage.blockManagerHeartbeatTimeoutMs": f"{STILL_DAYS_MAX}d"}
    options = {
        # before those of spark.executor.extraJavaOptions, which therefore count
        "spark.executor.defaultJavaOptions": JIT[jit],
        # the tasks of an executor that is lost are repeated on another one, and no others; with 1 the batch of all lanes would be
        "spark.task.maxFailures": str(ATTEMPTS_MAX),
    }
    if not is_local(master):
        # an executor with more cores runs several Python workers and hands a lane to any of them, which then has to rebuild it
        options["spark.executor.cores"] = "1"
    return options


def worker_options(master: str) -> dict[str, str]:
    """Return the options of a session in which several workers of a stage run side by side."""
    if local_cores(master) < 2:
        return {}
    return {"spark.python.daemon.module": "streaming.worker_daemon"}
