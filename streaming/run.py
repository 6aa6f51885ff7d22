# SPDX-License-Identifier: Apache-2.0
"""Runs the query until it is told to stop, and logs what it does."""

from __future__ import annotations

import fcntl
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.job import JobSettings, start_query
from streaming.logs import logger, own_output
from streaming.markers import read_marker
from streaming.session import SPARK_LOG, JvmGone, jvm_is_gone, spark_session
from streaming.sink import Output
from streaming.transactions import WriteFailed, take_over
from validator import exit_codes
from validator.config import Config
from validator.errors import UserError
from validator.kafka.topics import wait_for_topics
from validator.lanes.configured import job_directory, lane_definitions
from validator.lanes.definition import job_codec
from validator.service.retention import missing_blocks

POLL_S = 0.5
"""Seconds between two looks at the query's progress."""

STOP_POLL_S = 0.05
"""Seconds between two looks at whether the batch has ended: less than planning the next one takes."""

STOP_BATCH_S_MAX = 60.0
"""Seconds that a batch gets to end after the job was told to stop."""

RESTARTS_MAX = 5
"""Times that the query is started again without getting a batch done, before the job gives up."""

RESTART_S = 1.0
"""Seconds before the first of these; twice as long before each next one."""

TOPICS_S_MAX = 60.0
"""Seconds that the topics may take to appear, from when Spark is up."""


def run_job(config: Config, output: Output | None = None) -> int:
    """Run the job of a configuration, to Kafka where no other ``output`` is given, and return its exit code. Raises `UserError`."""
    directory = job_directory(config)
    definitions = lane_definitions(config)
    settings = JobSettings(
        definitions=definitions,
        kafka=config.kafka,
        prefix=config.topics.prefix,
        checkpoint=directory / "checkpoint",
        records_per_trigger=config.job.max_records_per_trigger,
        trigger_interval_ms=config.job.trigger_interval_ms,
        output=output,
        worker_memory_bytes=_bytes(config.job.worker_memory),
    )
    stop = _StopSignal()
    with _alone(directory), own_output(directory) as own:
        log = logger(own)
        log.info(
            "started", lanes=list(definitions), directory=str(directory), spark_log=str(directory / "logs" / SPARK_LOG)
        )
        try:
            return _run_in_session(config, settings, stop, log)
        except JvmGone:
            log.error("failed", reason="Spark's JVM was killed, or has died of itself")
            return exit_codes.STOPPED


def _run_in_session(config: Config, settings: JobSettings, stop: _StopSignal, log: Any) -> int:
    """Start Spark, look at what is there, and run the query. Raises `UserError`, `JvmGone`."""
    with spark_session(
        config.job.master,
        job_directory(config),
        driver_memory=config.job.driver_memory,
        state_partitions=config.job.state_partitions,
    ) as spark:
        for artefact in config.plugins.artefacts:  # this process has them on its path since the lanes were defined
            spark.sparkContext.addPyFile(artefact)
        # a query over a topic that is not there fails; whoever starts us may be making them meanwhile
        wait_for_topics(config.kafka, prefix=config.topics.prefix, patience_s=TOPICS_S_MAX)
        if not _has_checkpoint(settings):
            if not config.job.rebuild:
                refuse_what_is_told(settings)
            refuse_cut_inputs(settings)
        try:
            return _run_queries(spark, settings, stop, log)
        except Exception as error:
            if jvm_is_gone(spark):
                raise JvmGone from error
            raise


def _bytes(size: str) -> int:
    """Return what a size such as 512m or 4g means."""
    return int(size[:-1]) * {"m": 1024**2, "g": 1024**3}[size[-1]]


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Hold a lock on the job's folder, which ends with the process; raises `UserError` where another job holds it."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "running.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"a job works on {directory} already: stop it, or give this one a [job] directory of its own"
            ) from None
        yield


def _has_checkpoint(settings: JobSettings) -> bool:
    offsets = Path(settings.checkpoint) / "offsets"
    return offsets.is_dir() and any(offsets.iterdir())


def refuse_what_is_told(settings: JobSettings) -> None:
    """Raise `UserError` where Kafka holds what one of the lanes has told: a job without a checkpoint would start over.

    Nothing would be told twice, but a chain that starts over would have its first blocks taken for told.
    """
    for lane in settings.definitions:
        marker = read_marker(settings.kafka, settings.prefix, lane)
        if marker.block is not None:
            raise UserError(
                f"{settings.prefix}verdicts holds lane {lane} up to block {marker.block}, but {settings.checkpoint} has no checkpoint: "
                "start with --rebuild to go through the inputs again and tell only what is untold, or take another topics prefix"
            )


def refuse_cut_inputs(settings: JobSettings) -> None:
    """Raise `UserError` where retention has removed inputs that a lane would start with: it would wait for them for ever."""
    definitions = settings.definitions
    starts = {lane: definition.first_block for lane, definition in definitions.items()}
    ahead = max((definition.settings.blocks_ahead_max for definition in definitions.values()), default=0)
    for lane, (block, lacks) in missing_blocks(
        settings.kafka, settings.prefix, job_codec(definitions.values()), starts, ahead
    ).items():
        raise UserError(
            f"lane {lane}: block {block} is missing, {lacks}, retention has removed the rest: the lane cannot start with block "
            f"{starts[lane]}; give it the state after a later block with `validator lanes import`"
        )


def _run_queries(spark: SparkSession, settings: JobSettings, stop: _StopSignal, log: Any) -> int:
    """Run the query, and start it again where a batch failed of what may pass: the next attempt goes on from what was told."""
    failures = 0
    while True:
        try:
            if settings.output is None:
                _take_over(settings)
            query = start_query(spark, settings)
            log.info("ready", query=str(query.id), run=str(query.runId))
            return _follow(query, stop, log)
        except _BatchFailed as failure:
            failures = 1 if failure.progressed else failures + 1
            if failures > RESTARTS_MAX or stop.requested:
                log.error("failed", reason=str(failure))
                return exit_codes.STOPPED
            log.warning("restarting", reason=str(failure), attempt=failures)
            time.sleep(RESTART_S * 2 ** (failures - 1))


def _take_over(settings: JobSettings) -> None:
    try:
        take_over(settings.kafka, settings.prefix, settings.definitions)
    except WriteFailed as error:
        raise _BatchFailed(str(error), progressed=False) from None


class _BatchFailed(Exception):
    """A batch failed of something outside the program; ``progressed`` says whether this run of the query had done one before."""

    def __init__(self, reason: str, *, progressed: bool) -> None:
        super().__init__(reason)
        self.progressed = progressed


def _follow(query: StreamingQuery, stop: _StopSignal, log: Any) -> int:
    last_batch = -1
    try:
        while not query.awaitTermination(POLL_S) and not stop.requested:  # type: ignore[arg-type]  # Spark takes fractions
            last_batch = _log_batches(query, last_batch, log)
        _stop_between_batches(query)
    except StreamingQueryException as error:
        reason, foreseen = _reason(error)
        if _may_pass(str(error), reason):
            last_batch = _log_batches(query, last_batch, log)
            raise _BatchFailed(reason, progressed=last_batch >= 0) from None
        log.error("failed", reason=reason)
        return exit_codes.STOPPED if foreseen else exit_codes.INTERNAL_ERROR
    last_batch = _log_batches(query, last_batch, log)
    log.info("stopped", last_batch=last_batch)
    return exit_codes.OK


def _may_pass(error: str, reason: str) -> bool:
    """Say whether a failed batch may succeed when it is done again: Kafka did not take it, or a worker died rather than raised."""
    if reason.startswith(_HUNG):
        return False
    return ".WriteFailed:" in reason or ("Traceback (most recent call last)" not in error and _WORKER_DIED in error)


def _log_batches(query: StreamingQuery, last_batch: int, log: Any) -> int:
    """Log the batches after a given one, and return the last one there is."""
    for progress in query.recentProgress:
        if progress.batchId > last_batch and progress.numInputRows:
            last_batch = progress.batchId
            log.info("batch", batch=last_batch, records=progress.numInputRows, milliseconds=dict(progress.durationMs))
    return last_batch


def _stop_between_batches(query: StreamingQuery) -> None:
    """Stop the query when no batch is under way, so that nothing has to be done again; after a while stop it anyway.

    On a backlog one batch follows the other at once: the moment after the end of one is the time, while the next is being planned.
    """
    batch = _finished_batch(query)
    waited = 0.0
    while (
        query.isActive
        and query.status["isTriggerActive"]
        and _finished_batch(query) == batch
        and waited < STOP_BATCH_S_MAX
    ):
        query.awaitTermination(STOP_POLL_S)  # type: ignore[arg-type]
        waited += STOP_POLL_S
    query.stop()


def _finished_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId


_WORKER_DIED = "Python worker exited unexpectedly"
"""What Spark says of a worker that was killed: by hand, or by the system for want of memory."""

_FORESEEN = (".HandlerFault:", ".WaitingOverflow:", ".PluginError:", ".UserError:", ".WriteFailed:", ".WriterFenced:")
"""What a worker raises where a lane cannot go on but nothing is wrong with the program.

None of it but `WriteFailed` is tried again: the same inputs would meet the same handler, plugins and limits, and each attempt at a handler
that hangs costs as many seconds as it may take.
"""

_FORESEEN_BY_SPARK = ("No space left on device", "[CONCURRENT_STREAM_LOG_UPDATE]")
"""What Spark says where its checkpoint cannot be written, or another job writes it too."""

_HUNG = "a handler did not end, and no signal got through to it"
_CALLS_HANDLERS = re.compile(r"core/handlers/dispatch\.py\", line \d+ in _run$")

_INPUTS_GONE = "data may have been lost because they are not available in Kafka any more"
"""What Spark says where offsets that it has to read are not there."""


def _reason(error: StreamingQueryException) -> tuple[str, bool]:
    """Return why the query failed, in one line, and whether that is foreseen: a worker's last word, else Spark's first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    foreseen = [line for line in lines if any(name in line for name in _FORESEEN)]
    if foreseen:
        return foreseen[-1], True
    stuck = _stuck_handler(lines)
    if stuck is not None:
        return f"{_HUNG}, so its worker was ended: {stuck}", True
    first = lines[0] if lines else type(error).__name__
    if _INPUTS_GONE in first:
        which = next(
            (line.removeprefix("Reason: ") for line in lines if line.startswith("Reason: ")), "which is not told"
        )
        return (
            f"inputs have gone from Kafka before the job took them ({which}): retention has removed them; remove the checkpoint and give "
            "the lanes a later state with `validator lanes import`"
        ), True
    return first, any(sign in first for sign in _FORESEEN_BY_SPARK)


def _stuck_handler(lines: list[str]) -> str | None:
    """Return the place in a plugin whose call a worker was ended in, from the stack that it left, innermost call first."""
    if not any(_WORKER_DIED in line for line in lines):
        return None
    for inner, outer in pairwise(lines):
        if inner.startswith("File ") and _CALLS_HANDLERS.search(outer):
            return inner
    return None


class _StopSignal:
    """Remembers that the process was told to stop."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request)

    def _request(self, *_: object) -> None:
        self.requested = True
