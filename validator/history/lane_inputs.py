# SPDX-License-Identifier: Apache-2.0
"""Reads a lane's inputs again, as the job decodes and takes them."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from heapq import merge
from typing import TYPE_CHECKING, Final

from validator.codec.decode import decode_record
from validator.codec.encode import OutputRecord, source_of
from validator.codec.orders import decode_order
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.errors import UserError
from validator.kafka.reader import TopicReader, TopicRecord
from validator.lanes.store import skipped_letter
from validator.topics import DEAD_LETTERS, INPUT_TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Generator, Iterable, Iterator

    from validator.codec.codec import Codec, RecordChecks
    from validator.kafka.settings import KafkaTable
    from validator.lanes.definition import LaneDefinition

    Progress = Callable[[int, int], None]
    """Called with the number of offsets read so far and their total."""

_COLLECTOR: Final = (100_000, 50, 1_000_000)
"""Thresholds of the cyclic garbage collector, which would otherwise scan the complete state repeatedly."""

PROGRESS_RECORDS: Final = 1_000
"""Records between two calls of a `Progress`."""


@contextmanager
def rare_collection() -> Iterator[None]:
    """Let the cyclic garbage collector run rarely: an executed lane is a large state that lives on."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*_COLLECTOR)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


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


def as_taken(
    items: Iterable[Input | DeadLetter], lane: str, skipped: Container[Source]
) -> Iterator[Input | DeadLetter]:
    """Yield a lane's inputs as the job took them: those that it skipped are dead letters."""
    return (
        skipped_letter(lane, item) if isinstance(item, Input) and item.source in skipped else item for item in items
    )


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
        """Close the connections."""
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
) -> Generator[Input | DeadLetter]:
    """Yield all inputs of a lane that are on the topics now, merged by block, those that it skipped as dead letters.

    Raises `UserError` if no broker answers.
    """
    skipped = skipped_records(kafka, prefix).get(definition.name, frozenset())
    with TopicReader(kafka, prefix, list(INPUT_TOPICS)) as reader:
        ends = {(prefix + topic, partition): end for (topic, partition), (_, end) in reader.spans().items()}
    kinds = {prefix + topic: kind for topic, kind in INPUT_TOPICS.items()}
    partitions = [InputPartition(kafka, place, end) for place, end in sorted(ends.items())]
    total = sum(partition.offsets for partition in partitions)
    try:
        merged = by_block(
            partition.inputs(codec, kinds[partition.topic], definition.name, definition.records)
            for partition in partitions
        )
        for number, item in enumerate(as_taken(merged, definition.name, skipped)):
            if number % PROGRESS_RECORDS == 0:
                progress(sum(partition.read for partition in partitions), total)
            yield item
        progress(total, total)
    finally:
        for partition in partitions:
            partition.close()


def _is_order(value: bytes, source: Source, lane: str) -> bool:
    """Return whether a record of `blocks` is an order to a lane, which counts as none of its inputs."""
    order = decode_order(value, source)
    return order is not None and order.lane == lane
