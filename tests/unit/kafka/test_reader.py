# SPDX-License-Identifier: Apache-2.0
"""The records that a topic reader yields, and where it ends, with a scripted consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from validator.codec.framing import id_header
from validator.errors import Unavailable, UserError
from validator.kafka import reader as module
from validator.kafka.reader import TopicReader
from validator.kafka.registry import IDS

KAFKA: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}


def record(offset: int, value: bytes | None = b"v", partition: int = 0, error: object = None, at_ms: int = 9) -> Any:
    return SimpleNamespace(
        error=lambda: error,
        topic=lambda: "t.markers",
        partition=lambda: partition,
        offset=lambda: offset,
        key=lambda: b"k",
        value=lambda: value,
        timestamp=lambda: (1, at_ms),
        headers=lambda: [("h", b"x")] if value else None,
    )


def end(offset: int, partition: int = 0) -> Any:
    return record(offset, None, partition, KafkaError(KafkaError._PARTITION_EOF))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Script:
    """A consumer and an admin client: each poll takes the next list of messages, and an empty list is a poll without result."""

    def __init__(self, polls: list[list[Any]], partitions: int = 1, ends: int = 5) -> None:
        self.polls, self.partitions, self.last = polls, partitions, ends
        self.pending: list[Any] = []
        self.clock = Clock()
        self.assigned: list[TopicPartition] = []

    def poll(self, timeout_s: float) -> Any:
        self.pending = list(self.polls.pop(0)) if self.polls else []
        if not self.pending:
            self.clock.now += timeout_s
            return None
        return self.pending.pop(0)

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        assert timeout_s == 0
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(
            topics={topic: SimpleNamespace(error=None, partitions=dict.fromkeys(range(self.partitions)))}
        )

    def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Any]:
        return {place: SimpleNamespace(result=lambda: SimpleNamespace(offset=self.last)) for place in asked}

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned = places

    def close(self) -> None: ...


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*polls: list[Any], partitions: int = 1, ends: int = 5, **options: Any) -> TopicReader:
        script = Script(list(polls), partitions, ends)
        for client in ("Consumer", "AdminClient"):
            monkeypatch.setattr(module, client, lambda _: script)
        monkeypatch.setattr(module, "time", script.clock)
        return TopicReader(KAFKA, "t.", ["markers"], **options)

    return make


def offsets(records: Any) -> list[tuple[int, int]]:
    return [(each.partition, each.offset) for each in records]


def test_reader_ends_once_every_partition_has_ended(play: Any) -> None:
    reader = play([record(0), end(1)], [record(0, partition=1)], [], [record(1, partition=1), end(2, 1)], partitions=2)
    assert offsets(reader.read_to_end()) == [(0, 0), (1, 0), (1, 1)]
    assert reader.at_end


def test_record_has_topic_without_prefix_and_headers(play: Any) -> None:
    (made,) = play([record(3), end(4)]).read_to_end()
    assert made == ("markers", 0, 3, b"k", b"v", 9, (("h", b"x"),))


def test_records_without_value_are_skipped_unless_requested(play: Any) -> None:
    polls = [record(0, None), record(1), end(2)]
    assert offsets(play(polls).read_to_end()) == [(0, 1)]
    assert [each.value for each in play(polls, nulls=True).read_to_end()] == [b"", b"v"]


def test_reader_of_the_newest_leaves_out_what_another_partition_has_newer(play: Any) -> None:
    """A key has records in two partitions once partitions were added; inside a partition the order decides, whatever a clock says."""
    moved = [record(7, partition=1, at_ms=50), end(8, 1)]
    former = [record(0, at_ms=30), record(1, at_ms=20), end(2)]
    assert offsets(play(moved, former, partitions=2, newest=True).read_to_end()) == [(1, 7)]
    assert offsets(play(former, moved, partitions=2, newest=True).read_to_end()) == [(0, 0), (0, 1), (1, 7)]
    assert offsets(play(moved, former, partitions=2).read_to_end()) == [(1, 7), (0, 0), (0, 1)]


def test_reader_past_transactions_does_not_stop_at_open_one(play: Any) -> None:
    polls = [record(0), end(1)], [], [end(1)], [record(3), end(5)]
    assert offsets(play(*polls).read_to_end()) == [(0, 0)]
    assert offsets(play(*polls).read_past_transactions(60.0)) == [(0, 0), (0, 3)]


def test_reader_does_not_wait_for_transactions_behind_the_given_ends(play: Any) -> None:
    reader = play([record(0), end(1)])
    assert offsets(reader.read_past_transactions(3.0, {("t.markers", 0): 1})) == [(0, 0)]


def test_transaction_that_stays_open_is_error_after_timeout(play: Any) -> None:
    reader = play([record(0), end(1)])
    taken = []
    with pytest.raises(UserError, match=r"^t\.markers cannot be read to its end: a transaction may be open there$"):
        taken.extend(reader.read_past_transactions(3.0))
    assert offsets(taken) == [(0, 0)]
    assert 3.0 < module.time.monotonic() < 4.0  # type: ignore[attr-defined]


def test_empty_topic_ends_at_once(play: Any) -> None:
    assert list(play(ends=0).read_past_transactions(60.0)) == []


def test_restarted_partition_is_read_from_offset(play: Any) -> None:
    reader = play([end(9), end(9, 1)], [record(4, partition=1), end(9, 1)], partitions=2)
    assert list(reader.read_to_end()) == []
    reader.restart("markers", 1, 4)
    assert not reader.at_end
    assert offsets(reader.read_to_end()) == [(1, 4)]
    assert [(place.topic, place.partition, place.offset) for place in reader._consumer.assigned] == [
        ("t.markers", 1, 4)
    ]


def test_record_is_returned_once_even_if_position_was_moved_back(play: Any) -> None:
    reader = play(
        [end(9, 1)],
        [record(4, partition=1), record(1, partition=1)],
        [record(4, partition=1), record(5, partition=1), end(6, 1)],
    )
    reader.restart("markers", 1, 4)
    assert reader._consumer.assigned == []
    assert reader.poll(0.1) == []
    assert [(place.partition, place.offset) for place in reader._consumer.assigned] == [(1, 4)]
    assert offsets(reader.poll(0.1)) == [(1, 4)]
    assert offsets(reader.read_to_end()) == [(1, 5)]


def test_permanent_error_is_reported_in_one_line(play: Any) -> None:
    refused = record(0, None, error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    transient = record(0, None, error=KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(
        UserError, match=r"^no records can be read at 127\.0\.0\.1:1: .*\(TOPIC_AUTHORIZATION_FAILED\)$"
    ):
        list(play([transient], [refused]).read_to_end())


FRAMED = id_header(5) + b"v"


def test_values_are_returned_in_their_plain_form(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KAFKA, IDS, ((id_header(5), b"\xc3\x01abcdefgh"),))
    polls = [record(0, FRAMED), record(1), record(2, id_header(6)), end(3)]
    expected = [b"\xc3\x01abcdefghv", b"v", id_header(6)]
    assert [each.value for each in play(polls).read_to_end()] == expected
    assert [each.value for each in play(polls, keeps_form=True).read_to_end()] == [FRAMED, b"v", id_header(6)]


def test_registry_that_is_away_costs_no_record(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    away = [Unavailable("no schema registry answers")]

    def plain(value: bytes) -> bytes:
        if value == FRAMED and away:
            raise away.pop()
        return value

    monkeypatch.setattr(module, "plain_values", lambda _: plain)
    reader = play([record(0), record(1, FRAMED), record(2), end(3)], [record(3), end(4)])
    with pytest.raises(Unavailable):
        reader.poll(1.0)
    assert not reader.at_end
    assert offsets(reader.poll(1.0)) == [(0, 0), (0, 1), (0, 2)]
    assert offsets(reader.poll(1.0)) == [(0, 3)]


def test_another_place_drops_what_the_registry_left(play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    away = [Unavailable("no schema registry answers")]

    def plain(value: bytes) -> bytes:
        if away:
            raise away.pop()
        return value

    monkeypatch.setattr(module, "plain_values", lambda _: plain)
    reader = play([record(0), record(1)], [record(7), end(8)])
    with pytest.raises(Unavailable):
        reader.poll(1.0)
    reader.restart("markers", 0, 7)
    assert offsets(reader.poll(1.0)) == [(0, 7)]
