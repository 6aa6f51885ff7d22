# SPDX-License-Identifier: Apache-2.0
"""Workers read each committed record of their ranges once from a real broker, with gaps, several partitions and open transactions."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
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
    SourceSettings,
    TaskRanges,
    committed_ends,
)
from validator.codec.inflight import unpack
from validator.core.inputs import DeadLetter, RecordKind
from validator.kafka.settings import admin_config, producer_config

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


@contextmanager
def reading(kafka: dict[str, Any], topics: dict[str, RecordKind]) -> Iterator[RangeReader]:
    decode = DecodeSettings(topics, {}, {}, 1 << 30, 1 << 32)
    made = RangeReader(SourceSettings(kafka, tuple(topics), 1_000, 2, pickle.dumps(decode), "run"), decode.opened())
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def reader(kafka: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeReader]:
    monkeypatch.setattr(range_reader, "HELD_MAX", 15)
    with reading(kafka, TOPICS) as made:
        yield made


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


def test_what_retention_has_removed_is_an_error(kafka: dict[str, Any]) -> None:
    topic = "ranges-cut.candidates"
    admin = AdminClient(admin_config(kafka))
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    producer = Producer(producer_config(kafka))
    for number in range(5):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(S_MAX) == 0
    for future in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        future.result()
    task = TaskRanges((OffsetRange(topic, 0, 0, 5),))
    removed = r"^Kafka does not have inputs that the job has not read .*candidates\[0\] from offset 0"
    with reading(kafka, {topic: RecordKind.CANDIDATE}) as reader, pytest.raises(InputsRemoved, match=removed):
        found_in(reader, task)
