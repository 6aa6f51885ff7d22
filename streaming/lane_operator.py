# SPDX-License-Identifier: Apache-2.0
"""The stateful stage: it executes one relay chain's inputs and writes the records of its blocks in order."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext, SparkFiles, TaskContext
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from streaming.batch_watch import Beat, beat_next_to
from streaming.chunk_files import PassedOn, chunk_of
from streaming.options import batch_bytes_max
from streaming.range_source import ReadFailed
from streaming.reasons import DEATHS_MAX
from streaming.shared_folder import SharedFolder
from streaming.stateful import Operator
from streaming.transactions import Output, opened, write_batch
from streaming.workers import bound_worker, check_plugins, forget_point, note_point
from validator.checkpoint.kafka import PERSON_S, Lack, SecondLook, SeenTwice
from validator.codec.encode import BlockOutput, encode_dead_letter
from validator.codec.inflight import Arrival, arrival
from validator.core.inputs import DeadLetter, Source
from validator.errors import Unavailable, UserError
from validator.job.schema_ids import NO_IDS, SchemaIds
from validator.kafka.calls import PROGRESS_S_MAX
from validator.kafka.reader import NotUnpacked, TopicReader
from validator.kafka.registry import known_ids
from validator.kafka.settings import SPARING
from validator.kafka.transaction import KafkaGone
from validator.lanes.apart.batch import ApartBatch, Services, has_handlers
from validator.lanes.apart.host import LaneProcesses, LaneProcessFailed
from validator.lanes.arrived import Chunk, runs
from validator.lanes.auditing import AuditSettings
from validator.lanes.definition import LaneDefinition, job_codec, keep_genesis, read_genesis
from validator.lanes.marker import Consumed, consumed_by, has_taken
from validator.lanes.meter import LaneMeter, MeterSettings, meter_of
from validator.lanes.parked import Fault, Partition, Span, point_of
from validator.lanes.parking import BatchRequest, HeldInputs, InputsGone, LaneBatch, Suspect, with_handlers
from validator.lanes.sink import LaneSink
from validator.lanes.store import LaneCache, Recovery
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    import pandas as pd

    from validator.kafka.settings import KafkaTable


_COLUMNS = ("topic", "partition", "first_offset", "end_offset", "records", *PassedOn._fields)

MEMORY_BYTES: Final = 4 * 1024**3
"""Bytes of a lane's process where a worker has no limit."""

METERS: dict[str, LaneMeter] = {}
"""The meters of this worker's lanes, if the job has metrics. They outlive a batch as the lanes do."""


def _log_recovery(recovery: Recovery) -> None:
    """Write a line to the worker's standard error, which goes to the job's `logs/spark-output.log`."""
    if (meter := METERS.get(recovery.lane)) is not None:
        meter.recovered(recovery)
    sys.stderr.write(json.dumps({"event": "recovered", **recovery._asdict()}) + "\n")
    sys.stderr.flush()


CACHE = LaneCache(_log_recovery)
"""The live lanes of this worker. It is a module global because objects pickled with the plan, or in ``__main__``, are new in every task."""


PROCESSES = LaneProcesses()
"""The processes of this worker's lanes that have handlers."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """The query's settings."""

    definitions: dict[str, LaneDefinition]
    kafka: dict[str, Any]
    prefix: str
    checkpoint: Path | str
    records_per_trigger: int
    trigger_interval_ms: int
    output: Output[LaneSink] | None = None
    """Where the lanes' records go; None means Kafka, exactly once."""
    worker_memory_bytes: int | None = 4 * 1024**3
    """Memory limit of a worker that executes lanes; None if that is not a separate process."""
    retired: dict[str, Consumed] = field(default_factory=dict)
    """By lane that is no longer configured, what it has consumed."""
    suspects: dict[str, Suspect] = field(default_factory=dict)
    """By lane, the point at which its worker has died too often."""
    skipped: dict[str, frozenset[Source]] = field(default_factory=dict)
    """By lane, the records that it had skipped before it is started over."""
    parked: frozenset[str] = frozenset()
    """Lanes that were parked before they are started over."""
    cores: int = 0
    """Tasks that run at once in a local job, 0 on a cluster."""
    state_partitions: int = 1
    """Partitions of the lanes, which on a cluster say how many tasks read at once."""
    meter: MeterSettings | None = None
    """What workers measure; None for nothing."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """By input topic, with the prefix, the id of the one that the checkpoint has read."""
    ids: SchemaIds = NO_IDS
    """What the schema registry has said; ``kafka`` has the part that readers need."""
    audit: AuditSettings | None = None
    """Which blocks they check; None for none."""

    @property
    def beat(self) -> Beat:
        """The file by which lanes show their progress."""
        return beat_next_to(self.checkpoint)


class SparkState:
    """A lane's state in Spark's store (`validator.lanes.store.StateBackend`). Every call is a round trip of about one millisecond."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState("head", "head binary")
        self._slots = handle.getMapState("slots", "slot int", "pages binary")
        self._journal = handle.getListState("journal", "entry binary")

    def load_head(self) -> bytes | None:
        row = self._head.get()
        return None if row is None else bytes(row[0])

    def save_head(self, head: bytes) -> None:
        self._head.update((head,))

    def load_slots(self) -> dict[int, bytes]:
        return {number: bytes(pages) for (number,), (pages,) in self._slots.iterator()}

    def save_slot(self, number: int, data: bytes) -> None:
        self._slots.updateValue((number,), (data,))

    def remove_slot(self, number: int) -> None:
        self._slots.removeKey((number,))

    def load_journal(self) -> Iterator[bytes]:
        return (bytes(row[0]) for row in self._journal.get())

    def append_journal(self, entry: bytes) -> None:
        self._journal.appendValue((entry,))

    def clear_journal(self) -> None:
        self._journal.clear()


@dataclass(frozen=True, slots=True)
class ShippedGenesis:
    """A lane's genesis as a file that Spark ships to the workers once. In the plan it would be sent with every task."""

    file: str

    def __iter__(self) -> Iterator[bytes]:
        return iter(read_genesis(Path(SparkFiles.get(self.file)))[1])


def shipped(context: SparkContext, definition: LaneDefinition, folder: Path) -> LaneDefinition:
    """Return the definition to put in the plan. Its genesis becomes a file in a folder of the driver."""
    path = definition.genesis_path(folder)
    if not path.exists():
        keep_genesis(path, (definition.first_block, tuple(definition.genesis)))
    context.addFile(str(path))
    return replace(definition, genesis=ShippedGenesis(path.name))


class LaneOperator(Operator):
    """Executes lanes block by block, and writes what they emit; keyed by lane."""

    def __init__(
        self,
        settings: JobSettings,
        output: Output[LaneSink],
        shared: SharedFolder | None = None,
        *,
        cache: LaneCache | None = None,
        held_inputs: HeldInputs | None = None,
    ) -> None:
        """``cache`` is the worker's own unless given; without ``held_inputs``, Kafka is read."""
        super().__init__(shared)
        self._settings, self._output, self._cache = settings, output, cache
        self._held_inputs = held_inputs or partial(
            read_held_inputs, settings.kafka, settings.prefix, settings.definitions
        )
        self._batch_bytes_max = batch_bytes_max(settings.worker_memory_bytes)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state.

        Spark also calls this once outside the workers, to list the state variables, in a process without the artefacts. Plugins are
        therefore checked only when there are rows.
        """
        self._state = SparkState(handle)

    def execute(self, key: str, rows: Iterator[pd.DataFrame]) -> None:
        """Process one lane's chunks of one batch, in any order, because a shuffle keeps none."""
        definitions, memory_bytes = self._settings.definitions, self._settings.worker_memory_bytes
        check_plugins(definitions.values())
        if memory_bytes is not None:
            bound_worker(memory_bytes, len(definitions))
        definition = definitions.get(key)
        with opened(self._output) as sink:
            if definition is None:
                self._bury(sink, key, _chunks(rows))
            else:
                self._run(sink, key, definition, rows)

    def _bury(self, sink: LaneSink, lane: str, chunks: Iterator[Chunk]) -> None:
        """Write the dead letters of a lane that is not configured. It has no state, so what names its points are batches."""
        task = TaskContext.get()
        batch = 0 if task is None else int(task.getLocalProperty("streaming.sql.batchId") or 0)
        sink.begin(lane, f"batch {batch}")
        write_batch(sink, lane, *_unconfigured(runs(chunks, self._batch_bytes_max), self._settings.retired))
        sink.leave(lane, f"batch {batch + 1}")

    def _run(self, sink: LaneSink, lane: str, definition: LaneDefinition, rows: Iterator[pd.DataFrame]) -> None:
        head, settings = self._state.load_head(), self._settings
        request = BatchRequest(
            definition,
            head,
            self._batch_bytes_max,
            {each: suspect for each, suspect in settings.suspects.items() if each == lane},
            settings.skipped.get(lane, frozenset()),
            _query(),
            lane in settings.parked,
            settings.meter,
            settings.audit,
        )
        if not has_handlers(definition, head):
            self._run_here(sink, lane, request, _chunks(rows))
            return
        chunks = list(rows)
        for attempt in count(1):
            try:
                self._run_apart(sink, lane, request, _chunks(chunks))
                return
            except LaneProcessFailed as failed:
                sys.stderr.write(json.dumps({"event": "process failed", "lane": lane, "reason": str(failed)}) + "\n")
                sys.stderr.flush()
                if failed.fault is None and attempt < DEATHS_MAX:
                    continue
                reason = str(failed) if failed.fault else f"{attempt} times at the same point, {failed}"
                reason = with_handlers(f"lane {lane}: {reason}", definition)
                suspect = Suspect(point_of(head), reason, failed.fault or Fault.WORKER, failed.place)
                request = replace(request, suspects={lane: suspect})

    def _run_apart(self, sink: LaneSink, lane: str, request: BatchRequest, chunks: Iterator[Chunk]) -> None:
        """Execute a batch in the lane's process; a suspect is parked without one.

        Raises `LaneProcessFailed` before anything of the batch is committed.
        """
        services = Services(
            partial(self._held_inputs, lane),
            lambda corrects: sink.confirm(lane, corrects=corrects),
            _log_recovery,
        )
        memory_bytes = self._settings.worker_memory_bytes or MEMORY_BYTES
        batch = ApartBatch(PROCESSES, services, self._state, request, chunks, memory_bytes)
        note_point(lane, point_of(request.head))
        sink.begin(lane, point_of(request.head))
        with batch:
            written = write_batch(sink, lane, _seen(self._settings.beat, batch.run()), lambda: batch.consumed)
            sink.leave(lane, batch.left_at)
            batch.written(written)

    def _run_here(self, sink: LaneSink, lane: str, request: BatchRequest, chunks: Iterator[Chunk]) -> None:
        meter = meter_of(METERS.get(lane), lane, request.meter)
        if meter is not None:
            METERS[lane] = meter
        batch = LaneBatch.of(
            request,
            chunks,
            self._state,
            CACHE if self._cache is None else self._cache,
            self._held_inputs,
            meter,
            begins=partial(sink.begin, lane),
            noted=note_point,
            confirms=lambda corrects: sink.confirm(lane, corrects=corrects),
        )
        written = write_batch(sink, lane, _seen(self._settings.beat, batch.measured()), lambda: batch.consumed)
        sink.leave(lane, batch.left_at)
        if meter is not None:
            meter.written(written)


def _chunks(rows: Iterable[pd.DataFrame]) -> Iterator[Chunk]:
    """Yield the chunks of a lane. Raises `ReadFailed` if a file does not have one."""
    for frame in rows:
        for topic, *numbers, chunk, file, position, size in zip(*(frame[name] for name in _COLUMNS), strict=True):
            try:
                packed = chunk_of(PassedOn(chunk, file, position, size))
            except OSError as error:
                raise ReadFailed(f"a worker's inputs are gone: {error}") from error
            partition, first_offset, end_offset, records = map(int, numbers)
            yield Chunk(topic, partition, first_offset, end_offset, records, packed)


def _unconfigured(
    parts: Iterable[list[Arrival]], retired: Mapping[str, Consumed]
) -> tuple[Iterator[BlockOutput], Callable[[], Consumed]]:
    """Return the dead letters that belong to no configured lane, and what is consumed once all of them have been taken.

    A lane that was configured once has taken some of its records already.
    """
    consumed: dict[Partition, int] = {}

    def outputs() -> Iterator[BlockOutput]:
        nonlocal consumed
        for items in parts:
            for item in items:
                if isinstance(item, DeadLetter) and not has_taken(retired.get(item.lane, {}), item):
                    yield BlockOutput(None, [encode_dead_letter(item)])
            consumed = consumed_by(items, consumed)

    return outputs(), lambda: consumed


def _query() -> str:
    """Return the id of the query, which Spark keeps in its checkpoint and gives to tasks; empty outside a task."""
    task = TaskContext.get()
    return "" if task is None else task.getLocalProperty("sql.streaming.queryId") or ""


def _seen(beat: Beat, outputs: Iterator[BlockOutput]) -> Iterator[BlockOutput]:
    try:
        for each in outputs:
            beat.beat()
            yield each
    finally:
        forget_point()


# --- the inputs of a parked lane, read again ---


def read_held_inputs(
    kafka: KafkaTable,
    prefix: str,
    definitions: Mapping[str, LaneDefinition],
    lane: str,
    place: Partition,
    span: Span,
    bytes_max: int,
) -> tuple[list[Arrival], int]:
    """Return a lane's inputs within a span, as `validator.lanes.parking.HeldInputs` says.

    Raises `InputsGone`, `MemoryError`, `ReadFailed`, and `KafkaGone` if Kafka is away.
    """
    topic, partition = place[0].removeprefix(prefix), place[1]
    place = prefix + topic, partition  # an order may name it without the prefix
    try:
        kind = INPUT_TOPICS.get(topic)
        if kind is None:  # as an order may say
            raise InputsGone(f"{topic} is not an input topic")
        lacks = partial(_held_lack, prefix, lane, (topic, partition), span)
        SecondLook(kafka, PERSON_S).refuse_soon("held inputs", lacks)
        codec = job_codec(definitions.values()).knowing(known_ids(kafka) or {})
        lanes = {name: definition.records for name, definition in definitions.items()}
        items: list[Arrival] = []
        size = 0
        with TopicReader(kafka, prefix, [topic], lane=lane, nulls=True, reading=SPARING) as reader:
            reader.restart(topic, partition, span.first)
            for record in reader.read_past_transactions(PROGRESS_S_MAX, {place: span.end}):
                if record.offset >= span.end:
                    break
                if size >= bytes_max:
                    return items, record.offset
                source = Source(*place, record.offset)
                # a record without a value is read as an empty one
                named, item = arrival(codec, kind, record.value or None, source, record.key, lanes)
                if named == lane:
                    items.append(item)
                    size += len(record.value)
        return items, span.end
    except SeenTwice as error:
        raise InputsGone(str(error)) from None
    except Unavailable as error:
        raise KafkaGone(str(error)) from error
    except NotUnpacked as error:
        raise MemoryError from error
    except UserError as error:
        raise ReadFailed(str(error)) from error


def _held_lack(prefix: str, lane: str, place: Partition, span: Span, kafka: KafkaTable) -> Lack | None:
    """Return whether Kafka no longer has inputs of a span."""
    topic, partition = place
    with TopicReader(kafka, prefix, [topic], lane=lane) as reader:
        first, end = reader.spans().get(place, (0, 0))
    where = f"{prefix}{topic}[{partition}]"
    if end < span.end:
        return Lack(f"{where} ends at {end}, and held are inputs up to {span.end}")
    if first > span.first:
        return Lack(f"retention removed the held inputs of {where} from {span.first} to {first - 1}")
    return None
