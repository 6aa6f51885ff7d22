# SPDX-License-Identifier: Apache-2.0
"""Workers read each committed record of their ranges once from a real broker, with gaps, several partitions and open transactions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from streaming import range_reader
from streaming.decode_stage import DecodeSettings
from streaming.range_reader import RangeReader
from streaming.range_source import (
    InputsRemoved,
    OffsetRange,
    Offsets,
    SourceSettings,
    TaskRanges,
    committed_ends,
    divided,
    limited,
)
from validator.codec.inflight import unpack
from validator.core.inputs import DeadLetter, RecordKind
from validator.kafka.settings import admin_config, producer_config

PARTITIONS = 2
RUN = iter(range(1_000_000))


@pytest.fixture
def topics(kafka: dict[str, Any]) -> tuple[str, str]:
    """Two topics of two partitions that no other test has."""
    names = f"ranges-{(number := next(RUN))}.blocks", f"ranges-{number}.candidates"
    admin = AdminClient(admin_config(kafka))
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result()
    return names


@pytest.fixture
def opened(kafka: dict[str, Any], topics: tuple[str, str]) -> Iterator[Callable[[], RangeReader]]:
    """Make readers of the topics, as workers have them; each is closed at the end."""
    made: list[RangeReader] = []

    def open_reader() -> RangeReader:
        decode = DecodeSettings(
            dict(zip(topics, (RecordKind.BLOCK, RecordKind.CANDIDATE), strict=True)), {}, {}, 1 << 30, 1 << 32
        )
        settings = SourceSettings(kafka, topics, 1_000, 2, pickle.dumps(decode), f"run {next(RUN)}")
        made.append(RangeReader(settings, decode.opened()))
        return made[-1]

    yield open_reader
    for each in made:
        each.close()


def write(kafka: dict[str, Any], topics: tuple[str, str], random: Random, runs: int, name: str) -> list[bytes]:
    """Write runs of records in transactions, some of which are aborted; return the committed values."""
    producer = Producer(producer_config(kafka, transactional_id=f"{topics[0]}-{name}"))
    producer.init_transactions(30)
    committed: list[bytes] = []
    for run in range(runs):
        producer.begin_transaction()
        values = [f"{name} {run} {at}".encode() for at in range(random.randint(1, 40))]
        for value in values:
            producer.produce(random.choice(topics), value, partition=random.randrange(PARTITIONS))
        if random.random() < 0.3:
            producer.flush()
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
            committed += values
    return committed


def values_of(reader: RangeReader, task: TaskRanges) -> list[bytes]:
    """Return the values that a task gives; nothing decodes them, so each is in a dead letter."""
    items = [item for chunk in reader.read(task) for row in chunk.to_pylist() for item in unpack(row["chunk"])]
    assert all(isinstance(item, DeadLetter) for item in items)
    return [item.raw for item in items if isinstance(item, DeadLetter)]


def ends(kafka: dict[str, Any], topics: tuple[str, str], which: OffsetSpec) -> Offsets:
    return committed_ends(AdminClient(admin_config(kafka)), topics, which)


@pytest.mark.parametrize("ahead", [True, False])
def test_committed_records_are_read_once_in_any_batches(
    kafka: dict[str, Any],
    topics: tuple[str, str],
    opened: Callable[[], RangeReader],
    monkeypatch: pytest.MonkeyPatch,
    ahead: bool,
) -> None:
    monkeypatch.setattr("streaming.range_source.RECORDS_PER_TASK_MIN", 20)
    monkeypatch.setattr(range_reader, "HELD_MAX", 15)
    random = Random(5)
    readers = [opened(), opened()]
    found: list[bytes] = []
    written: list[bytes] = []
    at = ends(kafka, topics, OffsetSpec.earliest())
    for round_ in range(6):
        written += write(kafka, topics, random, 8, f"round-{round_}")
        latest = ends(kafka, topics, OffsetSpec.latest())
        plan: list[tuple[Offsets, Offsets]] = []
        while at != latest:
            end = limited(at, latest, random.choice((7, 60, 150)))
            plan.append((at, end))
            at = end
        tasks = [divided(*each, 2) for each in plan]
        for now, then in zip(tasks, [*tasks[1:], []], strict=True):
            for number, ranges in enumerate(now):
                announced = then[number] if ahead and number < len(then) else ()
                if ahead and random.random() < 0.2:  # the plan changes after all
                    announced = ranges
                found += values_of(readers[number], TaskRanges(ranges, announced))
    assert sorted(found) == sorted(written)
    assert len(set(found)) == len(found)


def test_what_retention_has_removed_is_an_error(
    kafka: dict[str, Any], topics: tuple[str, str], opened: Callable[[], RangeReader]
) -> None:
    write(kafka, topics, Random(1), 10, "all")
    start, end = ends(kafka, topics, OffsetSpec.earliest()), ends(kafka, topics, OffsetSpec.latest())
    admin = AdminClient(admin_config(kafka))
    for future in admin.delete_records([TopicPartition(topics[1], 0, end[topics[1]]["0"])]).values():
        future.result()
    (ranges,) = divided(start, end, 1)
    with pytest.raises(
        InputsRemoved, match=r"^Kafka does not have inputs that the job has not read .*candidates\[0\] from offset 0"
    ):
        values_of(opened(), TaskRanges(ranges))


TOPICS = {"ranges-open.blocks": RecordKind.BLOCK, "ranges-open.candidates": RecordKind.CANDIDATE}
PLACES = [(topic, partition) for topic in TOPICS for partition in (0, 1)]
S_MAX = 60.0
TURNS = 60

Found: TypeAlias = dict[tuple[str, int, int], bytes]
"""Values by topic, partition and offset."""


@pytest.fixture(scope="module")
def written(kafka: dict[str, Any]) -> Found:
    """Let three producers write in turn, each in transactions that end sooner or later; return what is committed."""
    admin = AdminClient(admin_config(kafka))
    for future in admin.create_topics([NewTopic(topic, 2, 1) for topic in TOPICS]).values():
        future.result()
    random = Random(11)
    committed: Found = {}
    producers = [Producer(producer_config(kafka, transactional_id=f"ranges-open-{at}")) for at in range(3)]
    open_ones: list[Found] = [{} for _ in producers]
    for producer in producers:
        producer.init_transactions(S_MAX)
        producer.begin_transaction()

    def write(at: int, number: int) -> None:
        """Write a few records, so that they lie in the log before those of the next turn."""

        def keep(error: Any, message: Any) -> None:
            assert error is None
            open_ones[at][message.topic(), message.partition(), message.offset()] = message.value()

        for more in range(random.randint(1, 6)):
            topic, partition = random.choice(PLACES)
            producers[at].produce(topic, f"{number} {more}".encode(), partition=partition, on_delivery=keep)
        assert producers[at].flush(S_MAX) == 0

    def end(at: int) -> None:
        if random.random() < 0.4:
            producers[at].abort_transaction(S_MAX)
        else:
            producers[at].commit_transaction(S_MAX)
            committed.update(open_ones[at])
        open_ones[at] = {}

    for number in range(TURNS):
        at = random.randrange(len(producers))
        write(at, number)
        if random.random() < 0.5:
            end(at)
            producers[at].begin_transaction()
    for at in range(len(producers)):
        end(at)
    return committed


@pytest.fixture
def reader(kafka: dict[str, Any]) -> Iterator[RangeReader]:
    decode = DecodeSettings(TOPICS, {}, {}, 1 << 30, 1 << 32)
    made = RangeReader(SourceSettings(kafka, tuple(TOPICS), 1_000, 2, pickle.dumps(decode), "run"), decode.opened())
    yield made
    made.close()


def found_in(reader: RangeReader, task: TaskRanges) -> Found:
    """Return what a task gives; nothing decodes the values, so each is in a dead letter."""
    found: Found = {}
    for item in (item for chunk in reader.read(task) for row in chunk.to_pylist() for item in unpack(row["chunk"])):
        assert isinstance(item, DeadLetter)
        place = item.source.topic, item.source.partition, item.source.offset
        assert place not in found
        found[place] = item.raw
    return found


def inside(written: Found, ranges: tuple[OffsetRange, ...]) -> Found:
    spans = {(each.topic, each.partition): range(each.first, each.end) for each in ranges}
    return {place: value for place, value in written.items() if place[2] in spans.get(place[:2], ())}


def ends_by_place(kafka: dict[str, Any]) -> dict[tuple[str, int], int]:
    latest = committed_ends(AdminClient(admin_config(kafka)), TOPICS, OffsetSpec.latest())
    return {(topic, partition): latest[topic][str(partition)] for topic, partition in PLACES}


@pytest.mark.parametrize("seed", range(4))
def test_tasks_give_what_is_committed_in_their_ranges(
    kafka: dict[str, Any], written: Found, reader: RangeReader, seed: int
) -> None:
    """Ranges end anywhere: at records, markers, and aborted records; partitions come and go."""
    random = Random(seed)
    latest = ends_by_place(kafka)
    at = dict.fromkeys(PLACES, 0)
    tasks: list[tuple[OffsetRange, ...]] = []
    while at != latest:
        ranges = [
            OffsetRange(*place, first, min(latest[place], first + random.choice((1, 2, 9, 30))))
            for place, first in at.items()
            if first < latest[place] and random.random() < 0.8
        ]
        at |= {(each.topic, each.partition): each.end for each in ranges}
        if ranges:
            tasks.append(tuple(ranges))
    everything: Found = {}
    for ranges_now, then in zip(tasks, [*tasks[1:], ()], strict=True):
        found = found_in(reader, TaskRanges(ranges_now, then if random.random() < 0.7 else ()))
        assert found == inside(written, ranges_now)
        everything |= found
    assert everything == written


def test_range_that_ends_behind_the_last_marker_is_complete(
    kafka: dict[str, Any], written: Found, reader: RangeReader
) -> None:
    """The last offset of each partition is a marker's, behind which no record comes."""
    latest = ends_by_place(kafka)
    assert all((*place, end - 1) not in written for place, end in latest.items())
    for place, end in latest.items():
        for first in (end - 1, end - 2, 0):
            ranges = (OffsetRange(*place, first, end),)
            assert found_in(reader, TaskRanges(ranges)) == inside(written, ranges)
