# SPDX-License-Identifier: Apache-2.0
"""What workers read of a real broker: every committed record of their ranges once, with transactions, gaps and several partitions."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from streaming import range_reader
from streaming.decode_stage import DecodeSettings
from streaming.range_reader import RangeReader
from streaming.range_source import InputsRemoved, Offsets, SourceSettings, TaskRanges, committed_ends, divided, limited
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
