# SPDX-License-Identifier: Apache-2.0
"""Kafka as the workers' consumers see it: partitions with gaps, ends of partitions, and errors, in any order and any chunks."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from confluent_kafka import KafkaError, TopicPartition
from validator_simulators import SimulationSettings

from streaming.chunk_files import PassedOn, chunk_of
from streaming.decode_stage import DecodeSettings
from streaming.options import BATCH_BYTES_MAX
from streaming.range_reader import RangeReader
from streaming.range_source import OffsetRange
from tests.unit.lanes.chains import PREFIX, chain, definition_of
from validator.codec.inflight import Arrival, unpack
from validator.topics import INPUT_TOPICS

CHAIN = chain(SimulationSettings(seed=3, blocks=8, candidates_per_block=4, session_length_blocks=5))
KINDS = {PREFIX + topic: kind for topic, kind in INPUT_TOPICS.items()}
DECODE = DecodeSettings(KINDS, {CHAIN.lane: definition_of(CHAIN)}, {}, BATCH_BYTES_MAX, 1 << 30)
VALUES = {
    topic: [each.value for each in CHAIN.records if each.topic == topic] or [b"of no schema"] for topic in INPUT_TOPICS
}
A, B = (f"{PREFIX}blocks", 0), (f"{PREFIX}candidates", 1)

Partition: TypeAlias = tuple[str, int]
Row: TypeAlias = tuple[str, int, int, bytes | None, bytes | None]
"""Topic, partition, offset, key, value."""


@dataclass(frozen=True, slots=True)
class Message:
    """A record, the end of a partition, or an error, with the methods of confluent_kafka's messages."""

    row: tuple[Any, ...]
    failure: KafkaError | None = None

    def topic(self) -> Any:
        return self.row[0]

    def partition(self) -> Any:
        return self.row[1]

    def offset(self) -> Any:
        return self.row[2]

    def key(self) -> Any:
        return self.row[3]

    def value(self) -> Any:
        return self.row[4]

    def error(self) -> KafkaError | None:
        return self.failure


class PlayedKafka:
    """Partitions, each with its records and its end; offsets in between belong to markers, or were aborted."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.rows: dict[Partition, list[Row]] = {}
        self.ends: dict[Partition, int] = {}
        self.consumers: list[PlayedConsumer] = []
        self.errors: dict[Partition, tuple[int, int]] = {}
        """The offset at which each partition fails for all consumers, and the code."""
        self.raises: BaseException | None = None
        """What the next poll raises."""
        self.turns: list[Partition] = []
        """The partitions that give the next messages, one each; after that any."""
        self.chunk_max = 9
        self.now = 0.0
        """Seconds that polls have waited in vain."""

    def consumer(self, config: dict[str, Any]) -> PlayedConsumer:
        """Return a consumer, as `confluent_kafka.Consumer` does."""
        self.consumers.append(PlayedConsumer(self, config))
        return self.consumers[-1]

    def write(self, place: Partition, records: int, *, gap: int = 0) -> None:
        """Write records, and a marker of some offsets behind them."""
        rows, end = self.rows.setdefault(place, []), self.ends.get(place, 0)
        values = VALUES[place[0].removeprefix(PREFIX)]
        rows += ((*place, at, CHAIN.lane.encode(), values[at % len(values)]) for at in range(end, end + records))
        self.ends[place] = end + records + gap

    def of(self, ranges: Iterable[OffsetRange]) -> list[Row]:
        """Return the records of some ranges."""
        return [
            row
            for each in ranges
            for row in self.rows.get((each.topic, each.partition), [])
            if each.first <= row[2] < each.end
        ]

    @property
    def open(self) -> list[PlayedConsumer]:
        """The consumers that are not closed."""
        return [each for each in self.consumers if not each.closed]


class PlayedConsumer:
    """One consumer; what it is asked after its end fails the test."""

    def __init__(self, kafka: PlayedKafka, config: dict[str, Any]) -> None:
        self.kafka, self.config = kafka, config
        self.at: dict[Partition, int] = {}
        self.given: Counter[tuple[str, int, int]] = Counter()
        self.closed = 0
        self.assigned = 0
        self.rng = random.Random(kafka.rng.random())
        self.ended: dict[Partition, int] = {}
        self._next: list[Message] = []

    def assign(self, places: Sequence[TopicPartition]) -> None:
        assert not self.at, "a consumer never changes its position"
        self.at = {(each.topic, each.partition): each.offset for each in places}
        self.assigned += 1

    def incremental_unassign(self, places: Sequence[TopicPartition]) -> None:
        for each in places:
            del self.at[each.topic, each.partition]

    def poll(self, timeout_s: float) -> Message | None:
        assert not self.closed
        kafka = self.kafka
        assert kafka.now < 10_000, "a reader waits without end"
        if kafka.raises is not None:
            raised, kafka.raises = kafka.raises, None
            raise raised
        size = 1 if kafka.turns else self.rng.randint(1, kafka.chunk_max)
        self._next = [each for _ in range(size) if (each := self._message()) is not None]
        if not self._next:
            kafka.now += timeout_s
            time.sleep(0.0005)
            return None
        return self._next.pop(0)

    def consume(self, count: int, timeout_s: float) -> list[Message]:
        assert not self.closed
        assert timeout_s == 0
        assert len(self._next) <= count
        messages, self._next = self._next, []
        return messages

    def close(self) -> None:
        self.closed += 1
        assert self.closed == 1

    def _message(self) -> Message | None:
        kafka = self.kafka
        able = [place for place in self.at if self._can(place)]
        while kafka.turns and kafka.turns[0] not in able:
            kafka.turns.pop(0)
        if not able:
            return None
        place = kafka.turns.pop(0) if kafka.turns else self.rng.choice(able)
        at = self.at[place]
        fails_at, code = kafka.errors.get(place, (1 << 62, 0))
        row = next((row for row in kafka.rows.get(place, []) if row[2] >= at), None)
        if min(kafka.ends.get(place, 0) if row is None else row[2], 1 << 61) >= fails_at:
            kafka.now += 1
            return Message((*place, at, None, None), KafkaError(code, "as Kafka says"))
        if row is None:
            self.at[place] = self.ended[place] = kafka.ends.get(place, 0)
            return Message((*place, self.at[place], None, None), KafkaError(KafkaError._PARTITION_EOF))
        self.at[place] = row[2] + 1
        self.given[row[:3]] += 1
        return Message(row)

    def _can(self, place: Partition) -> bool:
        end = self.kafka.ends.get(place, 0)
        fails_at = self.kafka.errors.get(place, (1 << 62, 0))[0]
        return self.at[place] < end or self.ended.get(place) != self.at[place] or fails_at <= end


class Run(NamedTuple):
    """What a lane gets of a partition."""

    lane: str
    topic: str
    partition: int


def items_of(chunks: Iterable[pa.RecordBatch]) -> dict[Run, list[Arrival]]:
    """Return the items of chunks by lane and partition, after checking what the rows say of them."""
    found: dict[Run, list[Arrival]] = {}
    for row in (row for chunk in chunks for row in chunk.to_pylist()):
        passed_on = PassedOn(*(row[name] for name in PassedOn._fields))
        packed = chunk_of(passed_on)
        assert passed_on == (b"" if passed_on.file else packed, passed_on.file, passed_on.position, len(packed))
        items = [*unpack(packed)]
        assert len(items) == row["records"]
        assert items[0].source == (row["topic"], row["partition"], row["first_offset"])
        found.setdefault(Run(row["lane"], row["topic"], row["partition"]), []).extend(items)
    return found


def decoded(rows: Iterable[Row]) -> dict[Run, list[Arrival]]:
    """Return what decoding gives for records."""
    decoder = DECODE.opened()()
    chunks = [decoder.add(*row, None if row[-1] is None else len(row[-1])) for row in rows]
    return items_of(chunk for chunk in (*chunks, decoder.take()) if chunk is not None)


def opened_files() -> list[Path]:
    """Return the files that this process has open, on Linux."""
    if sys.platform != "linux":
        return []
    opened = []
    for number in range(1_000):
        with suppress(FileNotFoundError):  # not open, or closed by another thread since
            opened.append(Path(f"/proc/self/fd/{number}").readlink())
    return opened


def span(place: tuple[str, int], first: int, end: int) -> OffsetRange:
    """Return a range."""
    return OffsetRange(*place, first, end)


def some_ranges(rng: random.Random, kafka: PlayedKafka, at: dict[tuple[str, int], int]) -> tuple[OffsetRange, ...]:
    """Return ranges from some offsets on, of most partitions."""
    found = (
        span(place, first, rng.choice([kafka.ends[place], rng.randint(first, kafka.ends[place])]))
        for place, first in at.items()
        if place in kafka.ends and rng.random() < 0.9
    )
    return tuple(sorted(each for each in found if each.first < each.end))


def finish(reader: RangeReader) -> None:
    """Wait until the thread has read ahead what it may."""
    if reader._ahead is not None:
        reader._ahead.join()
