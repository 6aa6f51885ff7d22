# SPDX-License-Identifier: Apache-2.0
"""The query of a plugin's job (`validator.plugin.job_api`): two sources, whose workers condense what they read, and a state stage.

The two sources keep the order of causes and effects. Spark asks the sources of a query for their ends one after the other, in the order of
the plan, and the source of the effects is the first (`streaming.range_source`). So when the end of the causes is read, every cause that a
writer had read before it produced an effect of this batch is committed, and is in this batch or an earlier one. The same holds for causes
that were written in the effect's transaction, since the source of the effects waits for them (`SettledEnds`). The causes have no limit
per batch: with one, a backlog would let the effects run ahead.
"""

from __future__ import annotations

import json
import marshal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from streaming.batch_watch import Beat, beat_next_to
from streaming.options import CHUNK_BYTES, KEY_BYTES_MAX, WHOLE_BYTES_MAX
from streaming.range_source import SourceSettings, load_inputs, observed, packed_chunk
from streaming.reading_process import passed_over_folder
from streaming.shared_folder import SharedFolder, shared_by
from streaming.stages import CONDENSE, KEYED, with_own_workers
from streaming.stateful import Operator, started
from streaming.transactions import KafkaOutput, Output, opened, write_batch
from streaming.workers import bound_worker
from validator.codec.framing import plain_form
from validator.errors import UserError
from validator.job.schema_ids import NO_IDS, SchemaIds
from validator.kafka.registry import with_known_ids
from validator.lanes.keyed import KeyedCache, Recovery, Step, StepSink, ordered, process_keyed
from validator.lanes.sink import Sink
from validator.plugin.job_api import Job, JobItem, JobRecord

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from streaming.range_source import OffsetRange

CHUNK_SCHEMA = "lane string, topic string, partition int, records int, items binary"
"""Each row is a run of one key's items from one Kafka partition; the first of a chunk has the number of its ``records``."""

EFFECTS_PER_TASK = 1_000
"""Records of a batch for each further condense task: every core takes a share."""


def _say(line: str) -> None:
    """Write a line to the worker's standard error, which goes to the job's `logs/spark-output.log`."""
    sys.stderr.write(json.dumps({"event": "metrics", "reason": line}) + "\n")
    sys.stderr.flush()


CACHE = KeyedCache(tell=_say)
"""The live states of this worker; a module global for the reason of `streaming.lane_operator.CACHE`."""


@dataclass(frozen=True, slots=True)
class KeyedJobSettings:
    """The query's settings."""

    job: Job
    kafka: dict[str, Any]
    prefix: str
    checkpoint: Path | str
    effects_per_trigger: int
    """Maximum records of the effects in a batch."""
    trigger_interval_ms: int = 0
    tasks_max: int = 1
    """Tasks that read a source at the same time."""
    recoveries: dict[str, Recovery] = field(default_factory=dict)
    """By key, what a key begins with if its stored state is lost."""
    output: Output[Sink] | None = None
    """Where the records go; None means Kafka, exactly once."""
    ids: SchemaIds = NO_IDS
    """What the schema registry has said."""
    measured: bool = False
    """Whether steps have the values of the job's metrics."""
    worker_memory_bytes: int | None = None
    """Memory limit of a worker that executes steps."""

    @property
    def beat(self) -> Beat:
        """The file by which steps show their progress."""
        return beat_next_to(self.checkpoint)


def start_keyed_query(spark: SparkSession, settings: KeyedJobSettings) -> StreamingQuery:
    settings = replace(settings, kafka=with_known_ids(settings.kafka, settings.ids.headers))
    shared = shared_by(spark.sparkContext.master, Path(settings.checkpoint).parent)

    def items_read() -> DataFrame:
        effects = _source(spark, settings, "validator-effects", shared)
        causes = _source(spark, settings, "validator-causes", shared)
        return observed(effects.unionByName(causes))  # in this order: see the module

    items = with_own_workers(spark, CONDENSE, items_read)
    own = KafkaOutput.of(
        StepSink, settings.kafka, settings.prefix, spark.sparkContext.applicationId, settings.ids.frames
    )
    operator = KeyedOperator(settings, settings.output or own, shared)
    return started(spark, items, KEYED, operator, settings.job.name, settings.checkpoint, settings.trigger_interval_ms)


def _source(spark: SparkSession, settings: KeyedJobSettings, name: str, shared: SharedFolder | None) -> DataFrame:
    job = settings.job
    is_of_effects = name == "validator-effects"
    causes = tuple(settings.prefix + topic for topic in job.causes)
    decoding = CondenseSettings(job, settings.prefix, settings.ids.headers, settings.worker_memory_bytes)
    source = SourceSettings(
        settings.kafka,
        tuple(settings.prefix + topic for topic in job.effects) if is_of_effects else causes,
        settings.effects_per_trigger if is_of_effects else None,
        settings.tasks_max,
        cloudpickle.dumps(decoding),  # type: ignore[no-untyped-call]
        token_hex(8),
        shared=shared,
        ahead=False,
        passed_over=passed_over_folder(settings.checkpoint),
        name=name,
        schema=CHUNK_SCHEMA,
        task_records_min=EFFECTS_PER_TASK,
        causes=causes if is_of_effects else (),
        backlog_records_max=getattr(job, "backlog_records_max", None),
    )
    return load_inputs(spark, source)


@dataclass(frozen=True, slots=True)
class CondenseSettings:
    """What workers need in order to condense. ``ids`` has the plain headers of records by Confluent's (`validator.codec.framing`)."""

    job: Job
    prefix: str
    ids: Mapping[bytes, bytes] = field(default_factory=dict)
    worker_memory_bytes: int | None = None

    def opened(self) -> Callable[..., Condenser]:
        return lambda *_: Condenser(self)


class Condenser:
    """`Job.condense` for each record of a task, and what is left in runs by key and partition."""

    def __init__(self, settings: CondenseSettings) -> None:
        self._job, self._prefix, self._ids = settings.job, settings.prefix, settings.ids
        self._runs: dict[tuple[str, str, int], list[tuple[int, bytes]]] = {}
        self._bytes = self._records = 0

    def add(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, size: int | None
    ) -> pa.RecordBatch | None:
        """Take a record, and return a chunk when it is full. A value that is too large gets more bytes than it may have."""
        name = topic.removeprefix(self._prefix)
        plain = plain_form(value or b"", self._ids)
        if size is not None and size > len(value or b""):
            plain = plain.ljust(WHOLE_BYTES_MAX + 1, b"\0")
        record = JobRecord(name, partition, offset, None if key is None else key[:KEY_BYTES_MAX], plain)
        self._records += 1
        for owner, content in self._job.condense(record):
            self._runs.setdefault((owner, name, partition), []).append((offset, content))
            self._bytes += len(content) + 1
        return self.take() if self._bytes >= CHUNK_BYTES else None

    def pass_over(self, span: OffsetRange) -> None:
        """Take an empty record in place of those that cannot be read: the job says what becomes of it."""
        topic, partition, first, end = span
        _say(f"{topic}[{partition}]: offsets {first} to {end - 1} are passed over: they do not fit in memory")
        self.add(topic, partition, first, None, None, None)

    def take(self) -> pa.RecordBatch | None:
        if not self._records:
            return None
        counts = chain((self._records,), repeat(0))
        rows = [
            (*place, count, marshal.dumps(items))
            for (place, items), count in zip(self._runs.items(), counts, strict=False)
        ]
        self._runs, self._bytes, self._records = {}, 0, 0
        return packed_chunk(CHUNK_SCHEMA, rows)


class SparkPages:
    """A key's state in Spark's store (`validator.lanes.keyed.PageStore`)."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "head binary")
        self._pages = handle.getMapState("pages", "name binary", "page binary")

    def load_head(self) -> bytes | None:
        row = self._head.get()
        return None if row is None else bytes(row[0])

    def save_head(self, head: bytes) -> None:
        self._head.update((head,))

    def load_pages(self) -> dict[bytes, bytes]:
        return {bytes(name): bytes(page) for (name,), (page,) in self._pages.iterator()}

    def save_page(self, name: bytes, page: bytes) -> None:
        self._pages.updateValue((name,), (page,))

    def remove_page(self, name: bytes) -> None:
        self._pages.removeKey((name,))


class KeyedOperator(Operator):
    """Runs a job's state machines; keyed by the job's keys. What they emit is in Kafka when a batch's call returns."""

    def __init__(self, settings: KeyedJobSettings, output: Output[Sink], shared: SharedFolder | None = None) -> None:
        super().__init__(shared)
        self._settings, self._output = settings, output

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._pages = SparkPages(handle)

    def execute(self, key: str, rows: Iterator[pd.DataFrame]) -> None:
        settings = self._settings
        if settings.worker_memory_bytes is not None:
            bound_worker(settings.worker_memory_bytes, len(settings.job.keys))
        try:
            output, consumed, found, left = self._step(key, rows)
        except MemoryError:
            CACHE.live.pop(key, None)
            raise UserError(
                f"job {settings.job.name}, {key}: its worker ran out of memory: raise [job] worker_memory"
            ) from None
        with opened(self._output) as sink:
            sink.begin(key, found)
            write_batch(sink, key, [output], lambda: consumed)
            sink.leave(key, left)
        settings.beat.beat()

    def _step(self, key: str, rows: Iterator[pd.DataFrame]) -> Step:
        settings = self._settings
        items = [
            JobItem(topic, int(partition), offset, content)
            for frame in rows
            for topic, partition, run in zip(frame["topic"], frame["partition"], frame["items"], strict=True)
            for offset, content in marshal.loads(run)  # noqa: S302 - written by the previous stage
        ]
        return process_keyed(
            settings.job,
            key,
            self._pages,
            CACHE,
            ordered(settings.job, items),
            settings.prefix,
            settings.recoveries.get(key),
            measured=settings.measured,
        )
