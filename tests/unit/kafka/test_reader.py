# SPDX-License-Identifier: Apache-2.0
"""The records that a topic reader yields, and where it ends, with a scripted consumer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, TopicPartition

from tests.clock import Clock
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


class Script:
    """A consumer and an admin client: each poll takes the next list of messages, and an empty list is a poll without result.

    ``spans`` are the first offset and the committed end of each partition, one such list after the other, the last one stays; without
    them the partitions begin at 0 and end where the messages say.
    """

    def __init__(
        self,
        polls: list[list[Any]],
        partitions: int = 1,
        ends: int = 5,
        spans: list[list[tuple[int, int]]] | None = None,
    ) -> None:
        self.polls, self.partitions, self.last = polls, partitions, ends
        marks = [each for poll in polls for each in poll if each.error() is not None]
        found = [
            max((each.offset() for each in marks if each.partition() == part), default=0) for part in range(partitions)
        ]
        self.spans = spans or [[(0, each) for each in found]]
        self.asked: list[str] = []
        self.pending: list[Any] = []
        self.clock = Clock()
        self.assigned: list[TopicPartition] = []

    def poll(self, timeout_s: float) -> Any:
        self.pending = list(self.polls.pop(0)) if self.polls else []
        if not self.pending:
            self.clock.now_s += timeout_s
            return None
        return self.pending.pop(0)

    def consume(self, count: int, timeout_s: float) -> list[Any]:
        assert timeout_s == 0
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> list[Any]:
        self.asked.append("offsets_for_times")
        side = 0 if places[0].offset == OFFSET_BEGINNING else 1
        if side == 0:
            self.now = self.spans.pop(0) if len(self.spans) > 1 else self.spans[0]
        return [
            SimpleNamespace(
                topic=each.topic, partition=each.partition, offset=self.now[each.partition][side], error=None
            )
            for each in places
        ]

    def list_topics(self, topic: str = "", timeout: float = -1) -> Any:
        self.asked.append("list_topics")
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
    def make(
        *polls: list[Any],
        partitions: int = 1,
        ends: int = 5,
        spans: list[list[tuple[int, int]]] | None = None,
        **options: Any,
    ) -> TopicReader:
        script = Script(list(polls), partitions, ends, spans)
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
    assert offsets(play(*polls, spans=[[(0, 1)]]).read_to_end()) == [(0, 0)]
    assert offsets(play(*polls).read_past_transactions(60.0)) == [(0, 0), (0, 3)]


def test_reader_does_not_wait_for_transactions_behind_the_given_ends(play: Any) -> None:
    reader = play([record(0), end(1)])
    assert offsets(reader.read_past_transactions(3.0, {("t.markers", 0): 1})) == [(0, 0)]


def test_transaction_that_stays_open_is_error_after_timeout(play: Any) -> None:
    reader = play([record(0), end(1)])
    taken = []
    with pytest.raises(
        Unavailable,
        match=r"^t\.markers\[0\] cannot be read to its end, 5: nothing came from offset 1 on for 3 s: a transaction may be open there$",
    ):
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
        [end(6, 1)],
        [record(4, partition=1), record(1, partition=1)],
        [record(4, partition=1), record(5, partition=1), end(6, 1)],
        partitions=2,
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
        list(play([transient], [refused], spans=[[(0, 5)]]).read_to_end())


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


# --- nobody returns less than there is ---

UNKNOWN, GONE = OFFSET_INVALID, KafkaError(KafkaError._AUTO_OFFSET_RESET)


def test_reader_begins_at_offsets_that_kafka_has_named(play: Any) -> None:
    reader = play([record(3), end(4)], spans=[[(3, 4)]])
    assert offsets(reader.read_to_end()) == [(0, 3)]
    assert [(place.partition, place.offset) for place in reader._consumer.assigned] == [(0, 3)]


@pytest.mark.parametrize("spans", [[(0, UNKNOWN)], [(UNKNOWN, 2)], [(UNKNOWN, UNKNOWN)], [(0, OFFSET_END)]])
def test_offset_that_is_not_known_is_asked_again(play: Any, spans: list[tuple[int, int]]) -> None:
    reader = play([record(0), record(1), end(2)], spans=[spans, spans, [(0, 2)]])
    assert offsets(reader.read_to_end()) == [(0, 0), (0, 1)]
    assert reader._consumer.asked[1:].count("list_topics") == 2  # before each further question


def test_end_before_the_one_that_kafka_has_named_is_none(play: Any) -> None:
    """A new leader that does not know yet how far its records are committed."""
    polls = [record(0), end(1)], [], [record(1), record(2), end(3)]
    reader = play(*polls, spans=[[(0, 3)]])
    assert offsets(reader.poll(0.1)) == [(0, 0)]
    assert not reader.at_end
    assert offsets(reader.read_to_end()) == [(0, 1), (0, 2)]
    assert reader.at_end
    assert offsets(play([record(0), end(1), record(1)], [end(2)], spans=[[(0, 1)]]).read_to_end()) == [(0, 0), (0, 1)]


def test_end_that_does_not_come_is_an_error(play: Any) -> None:
    reader = play([record(0), end(1)], spans=[[(0, 3)]])
    taken = []
    with pytest.raises(
        Unavailable, match=r"^t\.markers\[0\] cannot be read to its end, 3: nothing came from offset 1 on"
    ):
        taken.extend(reader.read_to_end())
    assert offsets(taken) == [(0, 0)]


def test_time_of_whoever_takes_the_records_is_no_silence(play: Any) -> None:
    reader = play([record(0)], [], [record(1), end(2)], spans=[[(0, 2)]])
    taken = []
    for each in reader.read_to_end():
        taken.append(each)
        module.time.monotonic.__self__.now_s += 10 * module.SILENCE_S_MAX  # type: ignore[attr-defined]
    assert offsets(taken) == [(0, 0), (0, 1)]


def test_retention_that_is_quicker_than_the_first_record_is_no_error(play: Any) -> None:
    reader = play([record(0, None, error=GONE)], [record(2), end(3)], spans=[[(0, 3)], [(2, 3)]])
    assert offsets(reader.read_to_end()) == [(0, 2)]
    assert [(place.partition, place.offset) for place in reader._consumer.assigned] == [(0, 2)]


def test_retention_that_overtakes_a_reader_is_an_error_and_the_reader_continues(play: Any) -> None:
    polls = [record(0), record(0, partition=1)], [record(1, None, error=GONE), record(1, partition=1)]
    spans = [[(0, 9), (0, 2)], [(5, 9), (0, 2)]]
    reader = play(*polls, [record(5), record(1, partition=1), end(2, 1)], partitions=2, spans=spans)
    assert offsets(reader.poll(0.1)) == [(0, 0), (1, 0)]
    assert offsets(reader.poll(0.1)) == [(1, 1)]
    with pytest.raises(
        Unavailable, match=r"^retention removed offsets 1 to 4 of t\.markers\[0\] before they were read$"
    ):
        reader.poll(0.1)
    assert offsets(reader.poll(0.1)) == [(0, 5)]
    assert [(place.partition, place.offset) for place in reader._consumer.assigned] == [(0, 5), (1, 2)]


def test_asked_offset_that_is_removed_is_an_error(play: Any) -> None:
    reader = play([record(2, None, error=GONE)], spans=[[(5, 9)]])
    reader.start_at({("markers", 0): 2})
    with pytest.raises(
        Unavailable, match=r"^retention removed offsets 2 to 4 of t\.markers\[0\] before they were read$"
    ):
        list(reader.read_to_end())


def test_offset_behind_the_end_is_an_error_as_long_as_it_is(play: Any) -> None:
    reader = play([record(7, None, error=GONE)], [record(7), end(8)], spans=[[(0, 9)], [(0, 3)], [(0, 3)], [(0, 8)]])
    reader.start_at({("markers", 0): 7})
    assert reader.poll(0.1) == []
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"^t\.markers\[0\] ends at offset 3, before 7, which comes next: "):
            reader.poll(0.1)
    assert offsets(reader.poll(0.1)) == [(0, 7)]


def test_tail_begins_before_the_end_of_each_partition(play: Any) -> None:
    reader = play([record(6), end(8)], [end(3, 1)], partitions=2, spans=[[(0, 8), (2, 3)]], tail=2)
    assert offsets(reader.read_to_end()) == [(0, 6)]
    assert [(place.partition, place.offset) for place in reader._consumer.assigned] == [(0, 6), (1, 2)]
