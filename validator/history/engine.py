# SPDX-License-Identifier: Apache-2.0
"""Executes what a lane has taken again: one loop, whatever looks on.

`recorded_inputs` reads a lane's inputs from Kafka as the job decodes and takes them; files and lists do as well. `Engine` gives them to one
lane, or to several that differ in their configuration, and an observer gets what each block gave. Observers are `verification` (the
checkpoint's lane), `emitted` (what a rebuild must lead to), `audit` and `what_if`. Two other comparisons do without this loop: `against`
reads what two deployments have emitted, and `lanes.auditing` repeats single blocks while the job executes them.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from dataclasses import replace
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from validator.codec.decode import decode_record
from validator.codec.encode import OutputRecord, source_of
from validator.codec.orders import decode_order
from validator.core.execute import execute
from validator.core.handlers.errors import HandlerFault
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.core.limits import U32_MAX, U64_MAX
from validator.errors import UserError
from validator.kafka.reader import TopicReader, TopicRecord
from validator.lanes.garbage import THRESHOLDS
from validator.lanes.processor import LaneProcessor
from validator.lanes.store import skipped_letter
from validator.topics import DEAD_LETTERS, INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence

    from validator.codec.codec import Codec, RecordChecks
    from validator.core.execute import Executor, Intervals
    from validator.core.lane import Lane
    from validator.core.outcomes import Executed
    from validator.core.types import BlockNumber
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition

    Progress = Callable[[int, int], None]
    """Called with the number of offsets read so far and their total."""

    Observer = Callable[[Sequence[Executed]], bool | None]
    """Gets what a block gave in each lane, while the lanes are as they were after it. True ends the run."""

REFUSED_KEPT_MAX: Final = 1_000
"""Records that no block takes and that an engine keeps; all are counted."""

RECORDS_PER_STEP: Final = 1_000
"""Inputs that lanes take before they execute what is complete, and records between two calls of a `Progress`."""


class Replica(NamedTuple):
    """A lane that executes inputs again; ``failing`` begins the error line if a handler fails."""

    processor: LaneProcessor
    failing: str

    @property
    def lane(self) -> Lane:
        return self.processor.lane

    @classmethod
    def create(cls, definition: LaneDefinition, failing: str) -> Replica:
        """Return a lane before its first block."""
        return cls(LaneProcessor.create(unlimited(definition)), failing)


def unlimited(definition: LaneDefinition, intervals: Intervals | None = None) -> LaneDefinition:
    """Return a definition under which a lane takes again whatever it took once, under whatever limits."""
    settings = replace(definition.settings, blocks_ahead_max=U32_MAX, waiting_bytes_max=U64_MAX)
    return replace(definition, settings=settings if intervals is None else replace(settings, intervals=intervals))


class NotExecuted(UserError):
    """A handler fails in a block of inputs that are executed again; ``block`` is that block."""

    def __init__(self, block: BlockNumber, text: str) -> None:
        self.block = block
        super().__init__(text)


class Engine:
    """Gives the same inputs to some lanes, block by block.

    Which blocks are complete does not depend on rules or limits, so all lanes execute the same ones. ``replicas`` may be replaced between
    two runs by lanes that hold the same records.
    """

    def __init__(self, inputs: Iterable[Input | DeadLetter], replicas: Sequence[Replica] = ()) -> None:
        self._inputs = iter(inputs)
        self.replicas = replicas
        self.records = 0
        """Inputs that the lanes have taken, without dead letters."""
        self.dead = 0
        self.refused: list[DeadLetter] = []
        """The first `REFUSED_KEPT_MAX` records that no block takes: dead letters among the inputs, and those that the lanes make."""
        self.refused_count = 0

    def run(self, observe: Observer, executor: Executor = execute) -> None:
        """Execute what the lanes hold, then what comes, until the inputs end or ``observe`` returns True.

        Raises `NotExecuted` if a handler fails, and whatever ``observe`` and ``executor`` raise.
        """
        items: list[Input | DeadLetter] = []
        with _rare_collection():
            while True:
                for at, replica in enumerate(self.replicas):
                    self._refuse(at, replica.processor.take(items))
                runs = (self._executed(at, replica, executor) for at, replica in enumerate(self.replicas))
                for executed in zip(*runs, strict=True):
                    if observe(executed):
                        return
                if not (items := list(islice(self._inputs, RECORDS_PER_STEP))):
                    return
                dead = sum(isinstance(item, DeadLetter) for item in items)
                self.dead += dead
                self.records += len(items) - dead

    def _executed(self, at: int, replica: Replica, executor: Executor) -> Iterator[Executed]:
        try:
            for executed, passed in replica.processor.execute_ready(executor):
                self._refuse(at, passed)
                yield executed
        except HandlerFault as fault:
            raise NotExecuted(fault.block, f"{replica.failing}: {fault}") from fault

    def _refuse(self, at: int, letters: Sequence[DeadLetter]) -> None:
        if at == 0:  # all lanes refuse the same records
            self.refused_count += len(letters)
            self.refused += letters[: REFUSED_KEPT_MAX - len(self.refused)]


def stopped(lane: Lane, *, live: bool) -> str:
    """Return why a lane ends with records that no block has used, or nothing if that is no fault.

    A ``live`` lane normally has records of its next block before the block is complete; if a later block is complete, records are missing.
    """
    unused = lane.counters.waiting
    if not unused:
        return ""
    following = (waiting for _, waiting in lane.waiting() if waiting.record is not None and not waiting.missing())
    if live and next(following, None) is None:
        return ""
    plural = "record is" if unused == 1 else "records are"
    return f"stopped after block {lane.executed_block}: {lane.waits_for()}; {unused:,} {plural} unused"


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Let the cyclic garbage collector run rarely: an executed lane is a large state that lives on."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


# --- inputs ------------------------------------------------------------------------------------------------------------------------------


def by_block(streams: Iterable[Iterator[Input | DeadLetter]]) -> Iterator[Input | DeadLetter]:
    """Merge the inputs of several partitions by block: a lane that read one topic before the others would hold all of it in memory."""
    return merge(*streams, key=lambda item: item.block or 0)


def skipped_records(kafka: KafkaTable, prefix: str, progress_s: float | None = None) -> dict[str, frozenset[Source]]:
    """Return, by lane, the records that are dead letters because an operator skipped them: a lane that starts over skips them again.

    ``progress_s`` is of `TopicReader.read_to_end`.
    """
    found: dict[str, set[Source]] = {}
    with TopicReader(kafka, prefix, [DEAD_LETTERS]) as reader:
        for record in reader.read_to_end(progress_s):
            headers = dict(record.headers)
            if headers.get("reason") == DeadReason.SKIPPED.name.encode() and "source" in headers:
                letter = OutputRecord(DEAD_LETTERS, record.key or b"", b"", record.headers)
                found.setdefault(letter.key.decode("utf-8", "replace"), set()).add(source_of(letter))
    return {lane: frozenset(sources) for lane, sources in found.items()}


class InputPartition:
    """The records of one partition up to an offset that the job has consumed; ``low`` is the first offset that is still there."""

    def __init__(self, kafka: KafkaTable, place: tuple[str, int], end: int) -> None:
        """Raises `UserError` if the topic ends before that offset, or no broker answers."""
        self.topic, self.partition = place
        self.end = end
        self.read = 0
        self._reader = TopicReader(kafka, "", [self.topic], partitions=[self.partition], nulls=True)
        self.low, high = self._reader.spans()[place]
        if high < end:
            raise UserError(
                f"{self.topic}[{self.partition}] ends at offset {high}, but the checkpoint's batch has consumed it up to {end}: "
                "it is not the topic that the job read"
            )
        self.offsets = max(0, end - self.low)

    def close(self) -> None:
        self._reader.close()

    def inputs(self, codec: Codec, kind: RecordKind, lane: str, records: RecordChecks) -> Iterator[Input | DeadLetter]:
        """Yield a lane's inputs, decoded as the job decodes them."""
        name = lane.encode()
        for _, _, offset, key, value, *_ in self._records():
            # a record of the lane contains its name as plain text, so the others need not be decoded
            if name in value or name == key:
                source = Source(self.topic, self.partition, offset)
                if kind is RecordKind.BLOCK and _is_order(value, source, lane):
                    continue
                decoded = decode_record(codec, kind, value, source, key, {lane: records})
                if isinstance(decoded, DeadLetter):
                    if decoded.lane == lane:
                        yield decoded
                elif decoded[0] == lane:
                    yield decoded[1]

    def _records(self) -> Iterator[TopicRecord]:
        for record in self._reader.read_to_end() if self.offsets else ():
            if record.offset >= self.end:
                break
            self.read = record.offset + 1 - self.low
            yield record
        self.read = self.offsets  # only transaction markers remain up to the end


def recorded_inputs(
    kafka: KafkaTable,
    prefix: str,
    codec: Codec,
    definition: LaneDefinition,
    progress: Progress = lambda _done, _total: None,
    ends: Mapping[tuple[str, int], int] | None = None,
    waiting: Container[Source] = (),
) -> Generator[Input | DeadLetter]:
    """Yield all inputs of a lane that are on the topics, merged by block, those that it skipped as dead letters.

    ``codec`` reads the records of all lanes of the job. ``ends`` has the offset after the last input of each topic (with prefix) and
    partition; without, inputs end where the topics end now. Inputs that were ``waiting`` then may have been skipped since, and are none.
    Errors, in order, each a `UserError`: no broker answers, a topic ends before its offset.
    """
    lane, checks = definition.name, definition.records
    skipped = skipped_records(kafka, prefix).get(lane, frozenset())
    if ends is None:
        with TopicReader(kafka, prefix, list(INPUT_TOPICS)) as reader:
            ends = {(prefix + topic, partition): end for (topic, partition), (_, end) in reader.spans().items()}
    kinds = {prefix + topic: kind for topic, kind in INPUT_TOPICS.items()}
    partitions = [InputPartition(kafka, place, end) for place, end in sorted(ends.items())]
    total = sum(partition.offsets for partition in partitions)
    try:
        merged = by_block(partition.inputs(codec, kinds[partition.topic], lane, checks) for partition in partitions)
        for number, item in enumerate(merged):
            if number % RECORDS_PER_STEP == 0:
                progress(sum(partition.read for partition in partitions), total)
            if isinstance(item, Input) and item.source in skipped and item.source not in waiting:
                yield skipped_letter(lane, item)
            else:
                yield item
        progress(total, total)
    finally:
        for partition in partitions:
            partition.close()


def _is_order(value: bytes, source: Source, lane: str) -> bool:
    """Return whether a record of `blocks` is an order to a lane, which counts as none of its inputs."""
    order = decode_order(value, source)
    return order is not None and order.lane == lane
