# SPDX-License-Identifier: Apache-2.0
"""Workers read each record of their ranges once, whatever a consumer gives when, and whatever was read ahead."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from pyspark import cloudpickle

from streaming import chunk_files, range_reader, workers
from streaming.range_reader import AHEAD_BYTES_MAX, HELD_MAX, SILENCE_S_MAX, RangeReader, TooLarge
from streaming.range_source import InputsRemoved, OffsetRange, SourceSettings, TaskRanges
from tests.repetitions import repetitions
from tests.unit.streaming.played_kafka import (
    CHAIN,
    DECODE,
    KINDS,
    A,
    B,
    PlayedKafka,
    decoded,
    finish,
    items_of,
    opened_files,
    some_ranges,
    span,
)
from validator.core.inputs import DeadLetter
from validator.core.limits import DEAD_LETTER_END_BYTES
from validator.errors import UserError
from validator.kafka.transaction import KafkaGone

GIVEN = {"bootstrap.servers": "nowhere:1"}


def settings(run: str = "1", folder: str = "") -> SourceSettings:
    return SourceSettings(GIVEN, tuple(KINDS), 10**6, 2, cloudpickle.dumps(DECODE), run, folder)  # type: ignore[no-untyped-call]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> PlayedKafka:
    made = PlayedKafka()
    monkeypatch.setattr(range_reader, "Consumer", made.consumer)
    monkeypatch.setattr(range_reader, "time", SimpleNamespace(monotonic=lambda: made.now))
    monkeypatch.setattr(workers, "_tuned", True)
    return made


@pytest.fixture(params=["through Spark", "by files"])
def reader(
    kafka: PlayedKafka, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RangeReader]:
    """Both ways on which chunks may go; by files even small ones do."""
    monkeypatch.setattr(chunk_files, "FILED_BYTES_MIN", 1)
    made = RangeReader(settings(folder=str(tmp_path) if request.param == "by files" else ""), DECODE.opened())
    yield made
    made.close()
    assert kafka.open == [], "every consumer is closed, once"
    assert not [each for each in opened_files() if each.parent == tmp_path], "every file is closed"


def reads(reader: RangeReader, kafka: PlayedKafka, *ranges: OffsetRange, ahead: tuple[OffsetRange, ...] = ()) -> None:
    """Read a task, and compare with what the decode stage gives for its records."""
    assert items_of(reader.read(TaskRanges(ranges, ahead))) == decoded(kafka.of(ranges))


# --- records ---


@pytest.mark.parametrize("seed", range(repetitions(60, 600)))
def test_each_record_comes_once(
    kafka: PlayedKafka, reader: RangeReader, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any records and gaps in any chunks, in tasks that follow each other or do not, read ahead or not, rightly or wrongly announced."""
    rng = random.Random(seed)
    kafka.rng = rng
    monkeypatch.setattr(range_reader, "HELD_MAX", rng.choice([2, 10, HELD_MAX]))
    monkeypatch.setattr(range_reader, "AHEAD_BYTES_MAX", rng.choice([0, 20_000, AHEAD_BYTES_MAX]))
    monkeypatch.setattr("streaming.decode_stage.CHUNK_BYTES", rng.choice([1, 5_000, 1 << 20]))
    kafka.chunk_max = rng.choice([1, 5, 200])
    places = [(topic, partition) for topic in rng.sample(sorted(KINDS), 2) for partition in (0, 1)]
    at = dict.fromkeys(places, 0)
    expected: tuple[OffsetRange, ...] | None = None
    for _ in range(12):
        for place in places:
            for _ in range(rng.randint(0, 3)):
                kafka.write(place, rng.choice([0, 1, 7, 40]), gap=rng.choice([0, 1, 1, 5]))
        if expected is None or rng.random() < 0.2:
            if rng.random() < 0.2:  # the batch is repeated, or another worker had the last one
                at = {place: rng.randint(0, kafka.ends.get(place, 0)) for place in places}
            expected = some_ranges(rng, kafka, at)
        at |= {(each.topic, each.partition): each.end for each in expected}
        ahead = some_ranges(rng, kafka, at)
        reads(reader, kafka, *expected, ahead=ahead if rng.random() < 0.8 else ())
        assert len(kafka.open) <= 1, "a consumer that is not used any more is closed"
        if rng.random() < 0.5:
            finish(reader)
        expected = ahead or None
    for each in kafka.consumers:
        assert set(each.given.values()) <= {1}
        assert each.assigned == 1


@pytest.mark.parametrize("more", [0, 3])
def test_range_that_ends_with_markers_is_complete(kafka: PlayedKafka, reader: RangeReader, more: int) -> None:
    """By the end of the partition, or by a record behind it."""
    kafka.write(A, 5, gap=4)
    end = kafka.ends[A]
    kafka.write(A, more)
    reads(reader, kafka, span(A, 0, end))
    assert kafka.now == 0, "there is nothing to wait for"


def test_range_is_complete_with_its_last_record(kafka: PlayedKafka, reader: RangeReader) -> None:
    kafka.chunk_max = 1
    kafka.write(A, 4)
    reads(reader, kafka, span(A, 0, 4))
    assert kafka.consumers[0].ended == {}, "the end of the partition is not waited for"


def test_range_of_markers_alone_has_no_chunks(kafka: PlayedKafka, reader: RangeReader) -> None:
    kafka.write(A, 0, gap=3)
    assert list(reader.read(TaskRanges((span(A, 0, 2),)))) == []
    assert list(reader.read(TaskRanges((span(A, 2, 3),)))) == []
    assert len(kafka.consumers) == 1


def test_records_without_value_or_key_or_schema_are_passed_on(kafka: PlayedKafka, reader: RangeReader) -> None:
    odd: list[tuple[bytes | None, bytes | None]] = [(None, b"x"), (CHAIN.lane.encode(), None), (b"\xff" * 2_000, b"")]
    kafka.rows[A] = [(*A, at, key, value) for at, (key, value) in enumerate(odd)]
    kafka.ends[A] = 3
    reads(reader, kafka, span(A, 0, 3))


def test_of_an_oversize_value_both_ends_are_passed_on(
    kafka: PlayedKafka, reader: RangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "WHOLE_BYTES_MAX", 3 * DEAD_LETTER_END_BYTES)
    value = bytes(range(256)) * (DEAD_LETTER_END_BYTES // 64)
    kafka.rows[A] = [(*A, at, b"nobody", value[: len(value) - 1 + at]) for at in range(2)]
    kafka.rows[A].append((*A, 2, b"nobody", value[: 3 * DEAD_LETTER_END_BYTES]))
    kafka.ends[A] = 3
    ((_, letters),) = items_of(reader.read(TaskRanges((span(A, 0, 3),)))).items()
    for letter, row in zip(letters[:2], kafka.rows[A], strict=False):
        assert isinstance(letter, DeadLetter)
        assert row[-1] is not None
        assert letter.raw == row[-1][:DEAD_LETTER_END_BYTES] + row[-1][-DEAD_LETTER_END_BYTES:]
        assert letter.whole is not None
        assert letter.whole.size == len(row[-1])
    assert isinstance(letters[2], DeadLetter)
    assert len(letters[2].raw) == 3 * DEAD_LETTER_END_BYTES
    assert letters[2].whole is None


# --- from task to task ---


def test_records_behind_a_range_are_held_for_the_next_task(kafka: PlayedKafka, reader: RangeReader) -> None:
    kafka.write(A, 10)
    kafka.write(B, 10)
    kafka.turns = [A] * 9 + [B] * 5
    reads(reader, kafka, span(A, 0, 4), span(B, 0, 5))
    (consumer,) = kafka.consumers
    assert consumer.given[(*A, 8)] == 1, "it was read before its range"
    reads(reader, kafka, span(A, 4, 6), span(B, 5, 7))
    reads(reader, kafka, span(A, 6, 10), span(B, 7, 10))
    assert kafka.consumers == [consumer]
    assert set(consumer.given.values()) == {1}
    assert len(consumer.given) == 20


def test_partition_that_is_far_ahead_is_left(
    kafka: PlayedKafka, reader: RangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reader, "HELD_MAX", 3)
    kafka.write(A, 50)
    kafka.write(B, 5)
    kafka.turns = [A] * 45
    kafka.chunk_max = 1
    reads(reader, kafka, span(A, 0, 10), span(B, 0, 5))
    (consumer,) = kafka.consumers
    assert A not in consumer.at
    assert consumer.at[B] == 5
    assert len(consumer.given) == 10 + 4 + 5
    reads(reader, kafka, span(A, 10, 50))
    assert [each.closed for each in kafka.consumers] == [1, 0]


@pytest.mark.parametrize("then", [span(A, 5, 10), span(A, 3, 10), span(B, 0, 4)])
def test_task_that_begins_elsewhere_opens_another_consumer(
    kafka: PlayedKafka, reader: RangeReader, then: OffsetRange
) -> None:
    kafka.write(A, 10)
    kafka.write(B, 4)
    reads(reader, kafka, span(A, 0, 4))
    reads(reader, kafka, then)
    assert [each.closed for each in kafka.consumers] == [1, 0]


def test_what_was_read_ahead_is_given_to_its_task(kafka: PlayedKafka, reader: RangeReader) -> None:
    kafka.write(A, 10)
    reads(reader, kafka, span(A, 0, 4), ahead=(span(A, 4, 10),))
    finish(reader)
    (consumer,) = kafka.consumers
    assert len(consumer.given) == 10
    kafka.raises = AssertionError("nothing is left to read")
    reads(reader, kafka, span(A, 4, 10))
    kafka.raises = None
    assert kafka.consumers == [consumer]


@pytest.mark.parametrize("then", [span(A, 4, 9), span(A, 3, 10), span(A, 10, 12)])
def test_what_was_read_ahead_is_for_its_ranges_only(kafka: PlayedKafka, reader: RangeReader, then: OffsetRange) -> None:
    kafka.write(A, 12)
    reads(reader, kafka, span(A, 0, 4), ahead=(span(A, 4, 10),))
    finish(reader)
    reads(reader, kafka, then)
    assert [each.closed for each in kafka.consumers] == [1, 0]


def test_reading_ahead_is_bounded(kafka: PlayedKafka, reader: RangeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "AHEAD_BYTES_MAX", 1_000)
    monkeypatch.setattr("streaming.decode_stage.CHUNK_BYTES", 1)
    kafka.chunk_max = 1
    kafka.write(A, 200)
    reads(reader, kafka, span(A, 0, 4), ahead=(span(A, 4, 200),))
    finish(reader)
    (consumer,) = kafka.consumers
    assert 4 < len(consumer.given) < 200
    reads(reader, kafka, span(A, 4, 200))
    assert kafka.consumers == [consumer]


# --- what goes wrong ---

FAILURES = [
    (KafkaError._AUTO_OFFSET_RESET, InputsRemoved),
    (KafkaError.OFFSET_OUT_OF_RANGE, InputsRemoved),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, UserError),
    (KafkaError._BAD_COMPRESSION, TooLarge),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, UserError),
]


@pytest.mark.parametrize(("code", "raised"), FAILURES)
def test_error_of_kafka_is_raised(kafka: PlayedKafka, reader: RangeReader, code: int, raised: type[Exception]) -> None:
    kafka.write(A, 10)
    kafka.write(B, 10)
    kafka.errors[A] = 6, code
    with pytest.raises(raised) as found:
        list(reader.read(TaskRanges((span(A, 0, 10), span(B, 0, 10)))))
    assert type(found.value) is raised
    assert "\n" not in str(found.value)
    expected = f"{A[0]}[0] from offset 6" if raised is InputsRemoved else "as Kafka says"
    assert expected in str(found.value)
    assert B[0] not in str(found.value), "it is there"
    assert kafka.open == []
    kafka.errors.clear()
    reads(reader, kafka, span(A, 0, 10))
    assert len(kafka.consumers) == 2


@pytest.mark.parametrize(("code", "raised"), FAILURES)
def test_error_while_reading_ahead_is_the_next_tasks(
    kafka: PlayedKafka, reader: RangeReader, code: int, raised: type[Exception]
) -> None:
    kafka.write(A, 10)
    kafka.errors[A] = 6, code
    kafka.chunk_max = 1
    reads(reader, kafka, span(A, 0, 4), ahead=(span(A, 4, 10),))
    finish(reader)
    assert kafka.open == []
    with pytest.raises(raised):
        list(reader.read(TaskRanges((span(A, 4, 10),))))
    assert len(kafka.consumers) == 2


@pytest.mark.parametrize("error", [MemoryError(), ValueError("something")])
def test_failed_reading_ahead_is_repeated(kafka: PlayedKafka, reader: RangeReader, error: Exception) -> None:
    kafka.write(A, 4)
    reads(reader, kafka, span(A, 0, 4), ahead=(span(A, 4, 10),))
    kafka.raises = error
    finish(reader)
    kafka.write(A, 6)
    reads(reader, kafka, span(A, 4, 10))
    assert [each.closed for each in kafka.consumers] == [1, 0]


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED])
def test_error_that_passes_is_waited_out(
    kafka: PlayedKafka, reader: RangeReader, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    kafka.write(A, 10)
    kafka.errors[A] = 6, code
    kafka.chunk_max = 1

    def passing(config: dict[str, Any]) -> Any:
        made = kafka.consumer(config)
        poll = made.poll

        def after_a_while(timeout_s: float) -> Any:
            if kafka.now > 3:
                kafka.errors.clear()
            return poll(timeout_s)

        made.poll = after_a_while  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(range_reader, "Consumer", passing)
    reads(reader, kafka, span(A, 0, 10))
    assert kafka.now > 3


def test_silence_ends_the_task(kafka: PlayedKafka, reader: RangeReader) -> None:
    kafka.write(A, 4)
    with pytest.raises(KafkaGone, match=r"no record of test\.blocks\[0\] from offset 4 came within 45 s"):
        list(reader.read(TaskRanges((span(A, 0, 10),))))
    assert SILENCE_S_MAX < kafka.now < 2 * SILENCE_S_MAX
    assert kafka.open == []


def test_aborted_records_are_no_silence(kafka: PlayedKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that reads one batch at a time takes long to pass them; the client's statistics say how far it has come."""
    kafka.write(A, 0, gap=1_000)
    kafka.write(A, 1)
    fetched = iter(range(0, 1_000, 5))

    def slow(config: dict[str, Any]) -> Any:
        made = kafka.consumer(config)
        poll = made.poll

        def after_them(timeout_s: float) -> Any:
            if (at := next(fetched, None)) is None:
                return poll(timeout_s)
            kafka.now += 1
            partitions = {"-1": {"next_offset": -1001}, "0": {"next_offset": at}}
            config["stats_cb"](json.dumps({"topics": {A[0]: {"partitions": partitions}}}))
            return None

        made.poll = after_them  # type: ignore[method-assign]
        return made

    monkeypatch.setattr(range_reader, "Consumer", slow)
    monkeypatch.setattr(range_reader, "spans_of", lambda *_, **__: {})
    reader = RangeReader(settings(), DECODE.opened(), lambda _: None)
    reads(reader, kafka, span(A, 0, 1_001))
    assert kafka.now > 2 * SILENCE_S_MAX
    reader.close()


def test_errors_alone_are_silence(kafka: PlayedKafka, reader: RangeReader) -> None:
    kafka.write(A, 10)
    kafka.errors[A] = 6, KafkaError._TRANSPORT
    with pytest.raises(KafkaGone, match="no record"):
        list(reader.read(TaskRanges((span(A, 0, 10),))))


def test_time_in_which_lanes_execute_is_not_silence(kafka: PlayedKafka, reader: RangeReader) -> None:
    kafka.chunk_max = 1
    kafka.write(A, 20)
    kafka.write(B, 4)
    kafka.turns = [B, *[A] * 9]
    reading = reader._begun((span(A, 0, 4), span(B, 0, 4)), batch=1)
    reader._cursor = reading.cursor  # so that the fixture closes it
    for _ in range(5):
        reading.step()
    kafka.now += 2 * SILENCE_S_MAX
    while not reading.is_complete:
        reading.step()
    reading.end()


def test_memory_that_does_not_suffice_is_not_hidden(kafka: PlayedKafka, reader: RangeReader) -> None:
    kafka.write(A, 10)
    kafka.raises = MemoryError()
    with pytest.raises(MemoryError):
        list(reader.read(TaskRanges((span(A, 0, 10),))))
    assert kafka.open == []
    reads(reader, kafka, span(A, 0, 10))


def test_abandoned_task_leaves_nothing(
    kafka: PlayedKafka, reader: RangeReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.decode_stage.CHUNK_BYTES", 1)
    kafka.write(A, 10)
    reading = reader.read(TaskRanges((span(A, 0, 4),), (span(A, 4, 10),)))
    next(reading)
    assert len(kafka.open) == 1
    reading.close()  # type: ignore[attr-defined]
    assert kafka.open == []
    assert reader._ahead is None
    reads(reader, kafka, span(A, 4, 10))
    assert len(kafka.consumers) == 2
