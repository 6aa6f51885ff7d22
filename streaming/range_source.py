# SPDX-License-Identifier: Apache-2.0
"""The source of every query: Spark plans a batch as ranges of offsets, and workers read them from Kafka.

In a local job the plan of a batch also names what each worker will read in the next one, if that much waits in Kafka. A process
of the worker reads and decodes it ahead, while the lanes execute (`streaming.range_reader`).

What was read ahead is a cache of what Kafka has at those offsets: a batch is decided by Spark's log of offsets alone, and reading
it again, in any worker, gives the same.

Offsets are written by topic and partition: ``{"blocks": {"0": 17}}``, the form of Spark's Kafka source, which earlier versions read with.

Spark runs `latestOffset` and `partitions` in a separate process next to the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from streaming.chunk_files import remove_files_before
from streaming.options import CHUNK_SCHEMA
from validator.errors import UserError
from validator.kafka.retry import offsets_of, partitions_of, passes
from validator.kafka.settings import admin_config
from validator.kafka.topics import ids_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from streaming.shared_folder import SharedFolder


OBSERVED, RECORDS = "inputs", "records"
"""What each batch reports: the number of its records."""

FIRST_RECORDS_MAX: Final = 25_000
"""Records of a query's first batch: the lanes begin early, and while they do, the second one is read."""

GROWTH: Final = 4
"""How many times as many records a batch may have as the one before, up to the job's limit. Reading takes a third to a half of the time of
executing, and the first batches take longer, since workers load their code."""

_EVERYTHING: Final = 1 << 62

AHEAD_RECORDS_MIN: Final = 10_000
"""Records that have to wait in Kafka for the next batch to be read ahead: a smaller one is read in a moment."""


class TaskDecoder(Protocol):
    """Decodes and packs what one task reads."""

    def add(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, size: int | None
    ) -> pa.RecordBatch | None:
        """Take a record, and return a chunk when it is full. If size exceeds len(value), value holds only its first and last bytes."""

    def pass_over(self, span: OffsetRange) -> None:
        """Take that the records of some offsets cannot be read."""

    def take(self) -> pa.RecordBatch | None:
        """Return what has been taken since the last chunk, None if that is nothing."""


class Decoding(Protocol):
    """What workers need in order to decode."""

    @property
    def worker_memory_bytes(self) -> int | None:
        """Memory limit of a process that reads."""

    def opened(self) -> Callable[..., TaskDecoder]:
        """Check the worker, and return what begins a task; it gets what each packed chunk is passed on with. Raises `UserError`."""


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """What the source needs: ``topics`` are full names."""

    kafka: Mapping[str, Any]
    topics: tuple[str, ...]
    records_max: int | None
    """Records of a batch, None if it takes everything."""
    tasks_max: int
    """Tasks that read at the same time."""
    decoding: bytes
    """`Decoding`, pickled: the processes that plan need not import what it names, and a worker unpacks it once."""
    run: str
    """Names this start of the query: what an earlier one has read ahead is not used."""
    folder: str = ""
    """Where workers put large chunks (`streaming.chunk_files`); without it, all chunks go through Spark."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """By topic, the id of the one that the checkpoint has read; none is compared that Kafka does not name."""
    shared: SharedFolder | None = None
    ahead: bool = True
    """Whether workers read ahead: Spark must give a worker the tasks of one number."""
    passed_over: str = ""
    """Folder of `streaming.reading_process.PassedOver`."""
    name: str = "validator-inputs"
    """The source's name in this session."""
    schema: str = CHUNK_SCHEMA
    task_records_min: int | None = None
    """Records of a batch for each further task, if not the usual number."""
    causes: tuple[str, ...] = ()
    """Full names of the topics that must hold what was written with a record before a batch has that record (`SettledEnds`)."""
    backlog_records_max: int | None = None
    """Records of each partition that a new query begins before its end, None if it begins with the first one."""


class TaskRanges(InputPartition):
    """What one task reads, and what the task of the same number will read in the next batch if it is known.

    ``batch`` counts the batches of one start of the query.
    """

    def __init__(self, ranges: tuple[OffsetRange, ...], ahead: tuple[OffsetRange, ...] = (), batch: int = 0) -> None:
        self.ranges, self.ahead, self.batch = ranges, ahead, batch


class RangePlanner:
    """Decides what each batch reads; pure. ``latest`` is where committed records end."""

    def __init__(
        self,
        records_max: int | None,
        tasks_max: int,
        *,
        ahead: bool = True,
        task_records_min: int | None = None,
    ) -> None:
        self._ahead = ahead
        self._records_max = _EVERYTHING if records_max is None else records_max
        self._tasks_max, self._task_records_min = tasks_max, task_records_min
        self._batch_max = _EVERYTHING if records_max is None else min(FIRST_RECORDS_MAX, records_max)
        self._batch = 0
        self._latest: Offsets = {}
        self._next: tuple[Offsets, Offsets] | None = None
        """Start and end of the batch that workers read ahead."""
        self._planned: tuple[Offsets, Offsets, list[TaskRanges]] | None = None

    def end(self, start: Offsets, latest: Offsets) -> Offsets:
        """Return the end of the next batch, which begins at ``start``."""
        self._latest = latest
        if self._next is not None and self._next[0] == start:
            return self._next[1]
        return limited(start, latest, self._batch_max)

    def tasks(self, start: Offsets, end: Offsets) -> Sequence[TaskRanges]:
        """Return the tasks of a batch; the same ones each time Spark asks."""
        if self._planned is None or self._planned[:2] != (start, end):
            self._planned = start, end, self._plan(start, end)
        return self._planned[2]

    def _plan(self, start: Offsets, end: Offsets) -> list[TaskRanges]:
        now = divided(start, end, self._tasks_max, self._task_records_min)
        if not now:
            return []
        self._batch += 1
        self._batch_max = min(GROWTH * self._batch_max, self._records_max)
        self._next = None
        then = limited(end, self._latest, self._batch_max)
        if not self._ahead or records_between(end, then) < AHEAD_RECORDS_MIN:
            return [TaskRanges(ranges, (), self._batch) for ranges in now]
        self._next = end, then
        ahead = divided(end, then, self._tasks_max, self._task_records_min)
        return [TaskRanges(ranges, ahead[at] if at < len(ahead) else (), self._batch) for at, ranges in enumerate(now)]


class SettledEnds:
    """Decides how far effects may be read so that the causes written with them can be read, too; pure.

    Kafka commits a transaction in one partition after the other: an effect may be visible before a cause of the same transaction. All
    records of a transaction are written before it is committed anywhere. So an end of the effects is *settled* once the committed causes
    reach the place where the causes, those of open transactions included, ended after it was read.
    """

    def __init__(self) -> None:
        self._settled: Offsets = {}
        self._unsettled: tuple[Offsets, Offsets] | None = None

    def end(self, start: Offsets, effects: Offsets, written: Offsets, committed: Offsets) -> Offsets:
        """Return the last settled end, or ``start`` if that is later.

        ``effects`` is where effects end. ``written`` was read after it: where the causes end, those of open transactions included. The end
        of their ``committed`` ones was read last.
        """
        newest = effects, written
        if not ranges_between(committed, written):
            self._settled, self._unsettled = effects, None
        elif self._unsettled is None:
            self._unsettled = newest
        elif not ranges_between(committed, self._unsettled[1]):
            self._settled, self._unsettled = self._unsettled[0], newest
        return {
            topic: {
                partition: max(offset, start.get(topic, {}).get(partition, 0))
                for partition, offset in partitions.items()
            }
            for topic, partitions in (start | self._settled).items()
        }


class RangeStreamReader(DataSourceStreamReader):
    """Asks Kafka for offsets, and lets workers read. Each method raises as `committed_ends` does."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings
        self._planner = RangePlanner(
            settings.records_max,
            settings.tasks_max,
            ahead=settings.ahead,
            task_records_min=settings.task_records_min,
        )
        self._client: AdminClient | None = None
        self._latest: Offsets | None = None
        self._settled = SettledEnds()

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to the workers: they only read."""
        return {"_settings": self._settings}

    def initialOffset(self) -> Offsets:  # noqa: N802 - Spark's name, as those of the other methods
        first, records_max = self._offsets(OffsetSpec.earliest()), self._settings.backlog_records_max
        if records_max is None:
            return first
        ends = self._offsets(OffsetSpec.latest())
        return {
            topic: {
                partition: max(offset, ends[topic].get(partition, 0) - records_max)
                for partition, offset in partitions.items()
            }
            for topic, partitions in first.items()
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable() if self._settings.records_max is None else ReadMaxRows(self._settings.records_max)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        self._latest = self._offsets(OffsetSpec.latest())
        if self._latest != start:
            self._refuse_replaced()
        check_not_before(start, self._latest)
        latest, causes = self._latest, self._settings.causes
        if causes and latest != start:
            written, committed = (
                committed_ends(self._connected(), causes, OffsetSpec.latest(), committed=only) for only in (False, True)
            )
            latest = self._settled.end(start, latest, written, committed)
        return latest if isinstance(limit, ReadAllAvailable) else self._planner.end(start, latest)

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """Return the end of what Kafka has, by which the job knows its backlog. The first batch after a restart is planned without it."""
        if self._latest is None:
            with suppress(UserError, KafkaException):  # it is only a figure
                self._latest = self._offsets(OffsetSpec.latest())
        return self._latest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[TaskRanges]:
        """Return the tasks of a batch; those before it are over."""
        tasks = self._planner.tasks(start, end)
        if tasks:
            remove_files_before(self._settings.folder, tasks[0].batch)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from streaming.reading_process import read  # only workers import what decodes

        assert isinstance(partition, TaskRanges)
        return read(self._settings, partition)

    def _offsets(self, which: OffsetSpec) -> Offsets:
        return committed_ends(self._connected(), self._settings.topics, which)

    def _refuse_replaced(self) -> None:
        """Raise `TopicReplaced` if Kafka has another topic by the name of one that was read, however many records it has."""
        if not self._settings.ids:
            return
        try:
            found = ids_of(self._connected(), self._settings.ids)
        except KafkaException as error:
            raise failure(error.args[0]) from error
        for topic, kept in self._settings.ids.items():
            if found.get(topic, kept) != kept:
                raise TopicReplaced(f"{topic} has id {found[topic]}, and the topic that was read had {kept}")

    def _connected(self) -> AdminClient:
        if self._client is None:
            self._client = AdminClient(admin_config(self._settings.kafka))
        return self._client


def committed_ends(client: AdminClient, topics: Iterable[str], which: OffsetSpec, *, committed: bool = True) -> Offsets:
    """Return the first offsets of all partitions of some topics, or the ends of their committed records, or of all records.

    Raises `validator.kafka.transaction.KafkaGone` if Kafka does not answer, and `UserError`.
    """
    try:
        asked = {
            TopicPartition(topic, partition): which
            for topic in sorted(topics)
            for partition in partitions_of(client, topic)
        }
        found = offsets_of(client, asked, committed=committed)
    except KafkaException as error:
        raise failure(error.args[0]) from error
    ends: Offsets = {}
    for place in asked:
        ends.setdefault(place.topic, {})[str(place.partition)] = found[place]
    return ends


def packed_chunk(schema: str, rows: Iterable[tuple[Any, ...]]) -> pa.RecordBatch:
    """Return rows of a schema in Spark's words as a chunk."""
    import pyarrow as pa  # only workers pack

    kinds = {"string": pa.string(), "binary": pa.binary(), "int": pa.int32(), "long": pa.int64()}
    fields = [(name, kinds[kind]) for name, kind in (each.split() for each in schema.split(","))]
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = [pa.array(column, kind) for column, (_, kind) in zip(columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def failure(error: KafkaError) -> Exception:
    """Return what to raise if Kafka does not give the inputs."""
    from validator.kafka.transaction import KafkaGone

    text = f"Kafka does not give the inputs: {error.str()} ({error.name()})"
    return KafkaGone(text) if passes(error) else UserError(text)


class ReadFailed(Exception):
    """Inputs could not be read, of a task or of a lane that continues; the batch is retried."""


class InputsRemoved(UserError):
    """Kafka does not have inputs that the job has not read."""

    def __init__(self, places: str) -> None:
        from streaming.reasons import (
            unread_inputs_gone,  # with what it imports, planning would start a tenth of a second later
        )

        super().__init__(unread_inputs_gone(places))


class TopicReplaced(UserError):
    """A topic was deleted and created again while the job ran. The next start of the query looks again and says what to do."""


def check_not_before(start: Offsets, latest: Offsets) -> None:
    """Raise `UserError` if Kafka has less than was read already: a topic was created again, or lost records."""
    for topic, partitions in start.items():
        for partition, offset in partitions.items():
            end = latest.get(topic, {}).get(partition)
            if end is None or end < offset:
                found = "does not exist" if end is None else f"ends at {end}"
                raise InputsRemoved(f"{topic}[{partition}] was read up to offset {offset}, and now {found}")


class InputSource(DataSource):
    """The source; a subclass has the ``settings``, since options are text."""

    settings: SourceSettings

    @classmethod
    def name(cls) -> str:
        return cls.settings.name

    def schema(self) -> str:
        return self.settings.schema

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return RangeStreamReader(self.settings)


def load_inputs(spark: SparkSession, settings: SourceSettings) -> DataFrame:
    spark.dataSource.register(type("Inputs", (InputSource,), {"settings": settings}))
    return spark.readStream.format(settings.name).load()


def observed(chunks: DataFrame) -> DataFrame:
    """Let each batch report the number of its records."""
    from pyspark.sql import functions

    return chunks.observe(OBSERVED, functions.sum("records").alias(RECORDS))


class NothingReader(DataSourceReader):
    """Reads nothing."""

    def partitions(self) -> Sequence[InputPartition]:
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        return iter(())


class NothingSource(DataSource):
    """A source without rows. To plan a query of it starts the processes that the query of the inputs needs (`streaming.stages`)."""

    @classmethod
    def name(cls) -> str:
        return "validator-nothing"

    def schema(self) -> str:
        return CHUNK_SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002
        return NothingReader()


Offsets: TypeAlias = dict[str, dict[str, int]]
"""By topic and partition, the offset after the last record that was read."""

RECORDS_PER_TASK_MIN: Final = 10_000
"""Records of a batch for each further task: below, starting a task costs more than it saves."""


class OffsetRange(NamedTuple):
    """Offsets of one partition: ``first`` is the first one, ``end`` the one after the last. Kafka itself uses some of them for markers."""

    topic: str
    partition: int
    first: int
    end: int


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges between two offsets, by topic and partition; a partition that ``start`` lacks is new, and begins at 0."""
    found = [
        OffsetRange(topic, int(partition), start.get(topic, {}).get(partition, 0), offset)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]
    return sorted(each for each in found if each.first < each.end)


def records_between(start: Offsets, end: Offsets) -> int:
    return sum(each.end - each.first for each in ranges_between(start, end))


def limited(start: Offsets, latest: Offsets, records_max: int) -> Offsets:
    """Return the end of a batch that begins at ``start``: ``latest``, or so much of it that the batch has about ``records_max`` records.

    Each partition gives a share as large as its part of the backlog, at least one record: records of one block arrive at about the same
    time on all topics.
    """
    total = records_between(start, latest)
    if total <= records_max:
        return latest
    ends: Offsets = {topic: dict(partitions) for topic, partitions in latest.items()}
    for topic, partition, first, end in ranges_between(start, latest):
        ends[topic][str(partition)] = first + max(1, (end - first) * records_max // total)
    return ends


def divided(
    start: Offsets, end: Offsets, tasks_max: int, task_records_min: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task of a batch, about as many records for each; at most ``tasks_max`` tasks, none for an empty batch.

    A further task has ``task_records_min`` records, by default `RECORDS_PER_TASK_MIN`.
    """
    total = records_between(start, end)
    count = min(tasks_max, -(-total // (task_records_min or RECORDS_PER_TASK_MIN)))
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    before = 0
    for each in ranges_between(start, end):
        at = each.first
        while at < each.end:
            task = before * count // total
            ends_at = -(-total * (task + 1) // count)  # where the next task begins
            until = min(each.end, at + ends_at - before)
            tasks[task].append(each._replace(first=at, end=until))
            before += until - at
            at = until
    return [tuple(ranges) for ranges in tasks]
