# SPDX-License-Identifier: Apache-2.0
"""Runs the query until a signal stops it, and logs its progress."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException

from streaming.batch_watch import Stalled
from streaming.cluster import Watch, watches
from streaming.logs import locked, logger, own_output
from streaming.metered import JobMetrics, serving
from streaming.parked_log import ParkedLog
from streaming.range_source import OBSERVED, RECORDS
from streaming.reasons import (
    INPUTS_GONE,
    OUT_OF_MEMORY,
    WRITER_GONE,
    BatchFailed,
    Deaths,
    StateDamaged,
    damaged_state,
    is_outside,
    may_pass,
    reason_of,
    report_of,
    unwritable,
)
from streaming.session import (
    SPARK_LOG,
    JvmGone,
    SessionSettings,
    SessionStart,
    StartFailed,
    reason_gone,
    starting_session,
)
from streaming.spark_internals import IDLE
from streaming.stages import note_division
from streaming.taking_over import Rivals, known_of_lanes, writers
from validator import exit_codes
from validator.checkpoint.files import REMEDY, follow_move, has_checkpoint, keep_sums
from validator.checkpoint.kafka import SecondLook, checked_ids, refuse_lost_inputs
from validator.config import Config
from validator.errors import GivenUp, Unavailable, UserError
from validator.job.schema_ids import SchemaIds, records_of, schema_ids
from validator.job.start_check import Look, checkpoint_of, has_changed, look, look_offline
from validator.kafka.calls import CLOSE, waited_for
from validator.kafka.registry import with_known_ids
from validator.kafka.settings import COMMITS, consumer_config
from validator.kafka.topics import wait_for_topics
from validator.kafka.transaction import WriterFenced
from validator.lanes.configured import configured_codec, job_directory, lane_definitions
from validator.lanes.kept_start import NOTHING, Accepted
from validator.topics import INPUT_TOPICS
from validator.waiting import RESTART, Patience, Pause, wait_out

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from streaming.lane_operator import JobSettings
    from streaming.transactions import Output
    from validator.job.schema_ids import RecordSchemas
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition
    from validator.lanes.sink import LaneSink


T = TypeVar("T")

POLL_S = 0.5
"""Seconds between polls of the query's progress."""

STOP_POLL_S = 0.05
"""Seconds between polls for the end of the batch: less than planning the next batch takes."""

STOP_BATCH_S_MAX = 60.0
"""Seconds to wait for the current batch after a request to stop."""

RESTARTS_MAX = 5
"""Restarts of the query in a row without a completed batch, after which the job gives up."""

STATE_READS_MAX = 2
"""Attempts in a row to read a state before the job says that it is damaged: each copies the files again."""

TOPICS_S_MAX = 60.0
"""Seconds to wait for the topics once Spark is up."""


def run_job(config: Config, output: Output[LaneSink] | None = None, accepted: Accepted = NOTHING) -> int:
    """Run a configuration's job and return its exit code. Writes to Kafka unless ``output`` says otherwise. Raises `UserError`."""
    look_offline(config)  # first, since it refuses what must leave the folder as it is
    definitions, stop = lane_definitions(config), StopSignal()
    with (
        locked(job_directory(config)),
        serving(config, {lane: definition.first_block for lane, definition in definitions.items()}) as metrics,
        begun(config, list(definitions), stop, metrics.note) as outages,
    ):
        if not has_checkpoint(checkpoint_of(config)):  # a checkpoint keeps its number
            note_division(definitions, config.job.state_partitions, outages.log)
        second, rivals = SecondLook.of_job(config), Rivals()

        @cache
        def looked() -> Look:
            return outages.wait_out(lambda: _look(config, definitions, accepted, second, outages.log))

        def run() -> int:
            # a change may be refused, which need not wait for Spark; otherwise Spark and a broker may start at the same time
            if has_changed(config, definitions):
                looked()
            with starting_session(SessionSettings.of(config)) as session:
                from streaming.job import job_settings  # slow to import, so while Spark's JVM starts

                settings = job_settings(config, definitions, output)
                return _run_in_session(config, settings, session, looked, outages, metrics, rivals)

        return ended_in_order(run, outages)


@contextmanager
def begun(
    config: Config, lanes: Sequence[str], stop: StopSignal, note: Callable[[Mapping[str, Any]], None] = lambda _: None
) -> Iterator[Outages]:
    """Begin the log of a job in its folder, which follows a move. ``note`` gets each event."""
    directory = job_directory(config)
    with own_output(directory) as own:
        log = logger(own, note)
        log.info("started", lanes=lanes, directory=str(directory), spark_log=str(directory / "logs" / SPARK_LOG))
        follow_move(checkpoint_of(config))
        yield Outages(Patience(config.job.give_up_after), stop, log)


def _look(
    config: Config, definitions: dict[str, LaneDefinition], accepted: Accepted, second: SecondLook, log: Any
) -> Look:
    """Look at topics and checkpoint. Raises `UserError`, `Unavailable`."""
    # the process that started this job may still be creating the topics
    wait_for_topics(config.kafka, prefix=config.topics.prefix, patience_s=TOPICS_S_MAX)
    return look(config, definitions, accepted, second, lambda lane, to: log.info("comparing", lane=lane, to_block=to))


def ended_in_order(run: Callable[[], int], outages: Outages) -> int:
    """Return the exit code of ``run``, also if Spark's JVM or what is outside was gone for too long. Raises `UserError`.

    ``run`` is repeated while Spark cannot start for a reason that may pass.
    """
    try:
        while True:
            try:
                return run()
            except StartFailed as failure:
                outages.wait(str(failure))
                if outages.stop.requested:
                    raise Unavailable(str(failure)) from None
    except (GivenUp, JvmGone, WriterFenced) as error:
        outages.log.error("failed", reason=str(error))
    except Unavailable:
        if not outages.stop.requested:
            raise
        outages.log.info("stopped", last_batch=-1)
        return exit_codes.OK
    return exit_codes.STOPPED


def _run_in_session(
    config: Config,
    settings: JobSettings,
    session: SessionStart,
    looked: Callable[[], Look],
    outages: Outages,
    metrics: JobMetrics,
    rivals: Rivals,
) -> int:
    """Look at topics and checkpoint while a session starts, and run the query in it. Raises `UserError`, `JvmGone`."""
    from streaming.job import start_query

    found = looked()
    metrics.begin(outages)
    spark = session.wait()
    settings = replace(settings, retired=dict(found.retired), topic_ids=dict(found.ids))
    lanes = writers(settings.definitions, settings.retired)
    checkpoint, second, deaths = checkpoint_of(config), SecondLook.of_job(config), Deaths()
    if not has_checkpoint(checkpoint):  # Kafka may have gone away since the look
        ends = lanes if settings.output is None else None
        settings = replace(settings, **outages.wait_out(lambda: known_of_lanes(config, ends)))
    ids = outages.registry_ids(config, records_of(configured_codec(config)))
    settings = replace(settings, kafka=with_known_ids(settings.kafka, ids.headers), ids=ids)
    found.keep()
    for change in found.accepted.options():
        outages.log.warning("accepted", change=change)

    def start() -> StreamingQuery:
        checked_ids(settings.kafka, settings.prefix, INPUT_TOPICS, checkpoint, second)
        refuse_lost_inputs(second, checkpoint)
        if settings.output is None:
            rivals.take_over(settings.kafka, settings.prefix, lanes, spark.sparkContext.applicationId)
        settings.beat.create()
        return start_query(spark, replace(settings, suspects=deaths.suspects()))

    patience = Patience(config.job.give_up_after)
    parked = ParkedLog(settings.kafka, settings.prefix, settings.definitions, outages.log, patience)
    with closing(JobOffsets(settings.kafka, settings.prefix)) as offsets, parked, metrics.following():

        def noted(end: str) -> None:
            offsets.commit(end)
            keep_sums(checkpoint)

        return run_queries(start, outages, watches(spark, config, outages.log), noted, deaths)


def run_queries(
    start: Callable[[], StreamingQuery],
    outages: Outages,
    watch: Callable[[StreamingQuery], Watch],
    commit: Callable[[str], None] = lambda _: None,
    deaths: Deaths | None = None,
) -> int:
    """Run a query, and restart it if a batch fails for a transient reason. Each attempt continues after the last committed output.

    What is outside may be away for as long as ``outages`` allow; other reasons are retried `RESTARTS_MAX` times in a row. ``start`` may
    raise `BatchFailed`, and ``commit`` gets the end of each batch's inputs. Returns the exit code. Raises `GivenUp`, `JvmGone`, and
    `UserError` for a damaged state.
    """
    log, stop = outages.log, outages.stop
    failures = damaged = 0
    is_first = True
    while True:
        try:
            query = _started(start)
            ready = partial(log.info, "ready", query=str(query.id), run=str(query.runId))
            if is_first:
                ready()
            is_again, is_first = not is_first, False
            return _follow(query, stop, log, commit, watch(query), ready if is_again else None)
        except BatchFailed as failure:
            if failure.progressed:
                failures = 0
                outages.ended()
            if failure.outside and not stop.requested:
                outages.wait(str(failure))
            elif not stop.requested:
                damaged = damaged + 1 if isinstance(failure, StateDamaged) else 0
                if damaged == STATE_READS_MAX:
                    raise UserError(f"{failure}: {REMEDY}") from None
                failures += 1
                if deaths is not None and (lane := deaths.count(failure)) is not None:
                    log.warning("parking", lane=lane, reason=str(failure))
                    failures = 1
                if failures > RESTARTS_MAX:
                    log.error("failed", reason=str(failure))
                    return exit_codes.STOPPED
                log.warning("restarting", reason=str(failure), attempt=failures)
                outages.sleep(RESTART.after(failures))
            if stop.requested:  # the next start repeats what was not committed
                log.info("stopped", last_batch=-1)
                return exit_codes.OK


def _started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start the query. Raises `BatchFailed` also if Kafka does not answer, or its checkpoint cannot be written at present."""
    try:
        return start()
    except Unavailable as error:
        raise BatchFailed(str(error), progressed=False, outside=True) from None
    except (OSError, PySparkException, Py4JJavaError) as error:
        text = f"OSError: {error}" if isinstance(error, OSError) else str(error)
        if is_outside(text):
            raise BatchFailed(unwritable(text) or _first_line(text), progressed=False, outside=True) from None
        raise


def _follow(
    query: StreamingQuery,
    stop: StopSignal,
    log: Any,
    commit: Callable[[str], None] = lambda _: None,
    watch: Watch | None = None,
    ready: Callable[[], None] | None = None,
) -> int:
    """Log batches until the query ends or stops, and return the job's exit code; ``commit`` gets the end of each batch's inputs.

    A query that fails in a way that nobody has foreseen may have lost its JVM. ``ready`` is called once a query that was started again
    works: after a batch, or when it has nothing to do.
    """
    last_batch = -1
    try:
        while not query.awaitTermination(POLL_S) and not stop.requested:  # type: ignore[arg-type]  # Spark takes fractions
            last_batch = log_batches(query, last_batch, log, commit)
            if ready is not None and (last_batch >= 0 or query.status.get("message") in IDLE):
                ready()
                ready = None
            if watch is not None:
                watch.look()
        _stop_between_batches(query)
    except Stalled as stalled:
        _end(query, str(stalled))
        raise BatchFailed(str(stalled), progressed=last_batch >= 0, outside=True) from None
    except StreamingQueryException as error:
        report = report_of(error)
        reason, foreseen = reason_of(error)
        if reason == OUT_OF_MEMORY:
            raise JvmGone(OUT_OF_MEMORY) from None
        if (damage := damaged_state(report)) is not None and not is_outside(report):
            raise StateDamaged(damage, progressed=last_batch >= 0, error=report) from None
        # inputs that a broker does not have may be there: the next start looks (`refuse_lost_inputs`)
        if reason.startswith(INPUTS_GONE) or (is_outside(report) and (not foreseen or WRITER_GONE in reason)):
            last_batch = log_batches(query, last_batch, log, commit)
            raise BatchFailed(unwritable(report) or reason, progressed=last_batch >= 0, outside=True) from None
        if may_pass(report, reason):
            last_batch = log_batches(query, last_batch, log, commit)
            raise BatchFailed(reason, progressed=last_batch >= 0, error=report) from None
        if not foreseen and (gone := reason_gone()) is not None:
            raise gone from None
        log.error("failed", reason=reason)
        return exit_codes.STOPPED if foreseen else exit_codes.INTERNAL_ERROR
    last_batch = log_batches(query, last_batch, log, commit)
    log.info("stopped", last_batch=last_batch)
    return exit_codes.OK


def _end(query: StreamingQuery, reason: str) -> None:
    """End a query that does not continue. Raises `GivenUp` if it does not end within `STOP_QUERY_S_MAX` either."""
    try:
        query.stop()
    except (PySparkException, Py4JJavaError) as error:
        raise GivenUp(f"{reason}, and its query does not end: {_first_line(str(error))}") from None


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason is given")


def _stop_between_batches(query: StreamingQuery) -> None:
    """Stop the query between two batches, so that no work is repeated; after `STOP_BATCH_S_MAX` stop it anyway.

    With a backlog, batches follow each other without a pause. The query is then stopped right after a batch, while the next is planned.
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
    _end(query, "the job stops between two batches")


def _finished_batch(query: StreamingQuery) -> int:
    progress = query.lastProgress
    return -1 if progress is None else progress.batchId


def log_batches(query: StreamingQuery, last_batch: int, log: Any, commit: Callable[[str], None]) -> int:
    """Log the batches after ``last_batch``, pass on the end of their inputs, and return the newest one."""
    before = last_batch
    newest = query.lastProgress
    if newest is None or newest.batchId <= last_batch:  # each of the recent ones is some KiB of JSON
        return last_batch
    for progress in query.recentProgress:
        if progress.batchId > last_batch and (records := records_in(progress)):
            last_batch = progress.batchId
            source = progress.sources[0]
            end = source.endOffset
            log.info(
                "batch",
                batch=last_batch,
                began=progress.timestamp,
                records=records,
                unread=unread_records(end, source.latestOffset),
                milliseconds=dict(progress.durationMs),
            )
    if last_batch > before:
        commit(end)
    return last_batch


def unread_records(end: str, latest: str | None) -> int:
    """Return how many records a batch left in Kafka, from its end and the latest offsets, both by topic and partition."""
    if latest in (None, "", "null"):
        return 0
    ends = json.loads(end)
    return sum(
        max(0, offset - ends.get(topic, {}).get(partition, 0))
        for topic, partitions in json.loads(latest).items()
        for partition, offset in partitions.items()
    )


def records_in(progress: StreamingQueryProgress) -> int:
    """Return how many records a batch had: a row of the source is a chunk, whose records are observed, otherwise a record."""
    observed = progress.observedMetrics.get(OBSERVED)
    return progress.numInputRows if observed is None else observed[RECORDS] or 0


def job_group(prefix: str) -> str:
    """Return the consumer group whose offsets show the job's progress."""
    return f"{prefix}job"


class JobOffsets:
    """Commits the job's offsets. A commit that Kafka does not take is left to the next one."""

    def __init__(self, kafka: KafkaTable, prefix: str) -> None:
        """Raises `confluent_kafka.KafkaException` if the client does not accept its configuration."""
        self._consumer = Consumer(consumer_config(kafka, COMMITS, group_id=job_group(prefix)))

    def commit(self, end: str) -> None:
        """Commit the end of a batch, as the source gives it: JSON, offsets by topic and partition. Does not wait."""
        offsets = [
            TopicPartition(topic, int(partition), offset)
            for topic, partitions in json.loads(end).items()
            for partition, offset in partitions.items()
        ]
        with suppress(KafkaException):
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        """Wait for the last commit and close the connections, if Kafka answers."""
        with suppress(TimeoutError):
            waited_for(CLOSE, self._consumer.close)


class StopSignal:
    """Remembers that a signal asked the process to stop."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request)

    def _request(self, *_: object) -> None:
        self.requested = True


class Outages:
    """Waits for what is outside, and says so in the job's log: an event ``waiting`` for each pause."""

    def __init__(self, patience: Patience, stop: StopSignal, log: Any) -> None:
        self._patience = patience
        self.stop, self.log = stop, log

    def wait(self, reason: str) -> None:
        """Wait once, until a request to stop at most. Raises `GivenUp`."""
        pause = self._patience.pause(reason)
        self._say(pause)
        self.sleep(pause.seconds)

    def sleep(self, seconds: float) -> None:
        """Sleep, until a request to stop at most."""
        self._patience.sleep(seconds, self._stopping)

    def wait_out(self, attempt: Callable[[], T]) -> T:
        return wait_out(attempt, self._patience, self._say, self._stopping)

    def registry_ids(self, config: Config, records: Iterable[RecordSchemas]) -> SchemaIds:
        """Return what the schema registry knows of some records, and say how far it is: an event ``asking``. Raises as `wait_out`."""

        def say(asked: int, of: int) -> None:
            self.log.info("asking", registry=config.schema_registry.url, versions=asked, of=of)

        records = list(records)
        return self.wait_out(lambda: schema_ids(config, records, say))

    def ended(self) -> None:
        """Let the next failure begin another outage."""
        self._patience.ended()

    def _say(self, pause: Pause) -> None:
        self.log.warning("waiting", **pause.event())

    def _stopping(self) -> bool:
        return self.stop.requested
