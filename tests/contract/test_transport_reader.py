# SPDX-License-Identifier: Apache-2.0
"""A transport's readers give the same guarantees on a real broker and in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.contract.transport_backends import Backend, Mistakes, OnKafka, assert_refused, wait
from validator.errors import Unavailable, UserError
from validator.kafka import reader as topic_reader
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics
from validator.plugin.api import OutputReader, OutputRecord, Record
from validator.topics import CURSORS_TOPIC
from validator.transports.output_reader import KafkaOutputReader


def numbered(count: int, topic: str = "verdicts") -> list[Record]:
    return [(topic, b"polkadot", b"%d" % at) for at in range(count)]


def read(reader: OutputReader, count: int) -> list[OutputRecord]:
    found = []
    while len(found) < count:
        record = reader.receive(60)
        assert record is not None
        found.append(record)
    return found


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline


def at_end(reader: OutputReader) -> bool:
    """Return whether nothing is left, having waited until the reader knows."""
    until(lambda: reader.receive(0.1) is not None or reader.positions() == reader.ends())
    return reader.positions() == reader.ends() and reader.receive(0) is None


def test_reader_reads_topics_from_their_beginning(backend: Backend) -> None:
    backend.send(*numbered(3), ("receipts", b"k", b"not asked for"), ("dispatches", b"polkadot", b"d"))
    reader = backend.start().reader(["verdicts", "dispatches", "verdicts"])
    found = read(reader, 4)
    assert sorted(found) == [
        OutputRecord("dispatches", 0, 0, b"polkadot", b"d"),
        *(OutputRecord("verdicts", 0, at, b"polkadot", b"%d" % at) for at in range(3)),
    ]
    assert [each.value for each in found if each.topic == "verdicts"] == [b"0", b"1", b"2"]
    assert at_end(reader)
    assert reader.ends() == {("verdicts", 0): 3, ("dispatches", 0): 1}
    backend.send(("verdicts", b"kusama", b"new"))
    assert read(reader, 1) == [OutputRecord("verdicts", 0, 3, b"kusama", b"new")]
    assert reader.positions() == {("verdicts", 0): 4, ("dispatches", 0): 1}


def test_reader_seeks_and_named_partitions_alone_keep_their_place(backend: Backend) -> None:
    backend.send(*numbered(5), ("dispatches", b"k", b"d"))
    reader = backend.start().reader(["verdicts", "dispatches"])
    read(reader, 6)
    reader.seek({("verdicts", 0): 3})
    assert reader.positions() == {("verdicts", 0): 3, ("dispatches", 0): 0}
    assert sorted(each.value for each in read(reader, 3)) == [b"3", b"4", b"d"]
    reader.seek(reader.ends())
    assert at_end(reader)
    reader.seek({})
    assert len(read(reader, 6)) == 6
    assert at_end(reader)


def test_reader_is_independent_of_receive_and_of_other_readers(backend: Backend) -> None:
    backend.send(*numbered(4))
    context = backend.start()
    one, other = context.reader(["verdicts"]), context.reader(["verdicts"])
    other.seek({("verdicts", 0): 2})
    assert [each.offset for each in read(one, 1) + read(other, 2) + read(one, 3)] == [0, 2, 3, 1, 2, 3]
    assert [wait(context, backend) for _ in range(4)] == numbered(4)
    context.acknowledge()
    assert [each.offset for each in read(backend.start().reader(["verdicts"]), 4)] == [0, 1, 2, 3]


def test_position_before_retention_goes_to_the_first_record_that_is_left(backend: Backend) -> None:
    backend.send(*numbered(5))
    context = backend.start()
    early = context.reader(["verdicts"])
    backend.expire("verdicts", 3)
    reader = context.reader(["verdicts"])
    assert reader.positions() == {("verdicts", 0): 3}
    reader.seek({("verdicts", 0): 1})
    assert reader.positions() == {("verdicts", 0): 3}
    assert [each.offset for each in read(reader, 2)] == [3, 4]
    early.seek({("verdicts", 0): 4})
    backend.send(*numbered(2))
    backend.expire("verdicts", 6)
    reader.seek({("verdicts", 0): 6})
    assert [each.offset for each in read(reader, 1)] == [6]


POSITIONS: list[tuple[Any, str]] = [
    ({("verdicts", 1): 0}, "offsets: expected topics and partitions of this reader, found ('verdicts', 1)"),
    ({"verdicts": 0}, "offsets: expected topics and partitions of this reader, found 'verdicts'"),
    ({("verdicts", 0): 4}, "offsets: verdicts/0: expected a number from 0 to 3, the end, found 4"),
    ({("verdicts", 0): -1}, "offsets: verdicts/0: expected a number from 0 to 3, the end, found -1"),
    ({("verdicts", 0): None}, "offsets: verdicts/0: expected a number from 0 to 3, the end, found None"),
]


def test_wrong_position_or_timeout_is_value_error_and_changes_nothing(backend: Backend) -> None:
    backend.send(*numbered(3))
    context = backend.start()
    reader = context.reader(["verdicts"])
    read(reader, 2)
    assert_refused(context, [(lambda _, offsets=offsets: reader.seek(offsets), text) for offsets, text in POSITIONS])
    for timeout_s in (-1, float("inf"), None):
        with pytest.raises(ValueError, match="timeout_s: expected seconds, at least 0, found "):
            reader.receive(timeout_s)  # type: ignore[arg-type]
    assert [each.offset for each in read(reader, 1)] == [2]


WRONG_TOPICS: Mistakes = [
    (lambda c: c.reader([]), "topics: expected at least one output topic, found none"),
    (lambda c: c.reader(["verdicts", "blocks"]), "topic: expected one of verdicts, dispatches, "),
    (lambda c: c.reader("verdicts"), "topic: expected one of verdicts, dispatches, "),
    (lambda c: c.reader([None]), "topic: expected one of verdicts, dispatches, "),  # type: ignore[list-item]
]


def test_reader_of_wrong_topics_is_value_error(backend: Backend) -> None:
    assert_refused(backend.start(), WRONG_TOPICS)


def test_closed_reader_is_of_no_use_and_readers_close_with_the_transport(backend: Backend) -> None:
    context = backend.start()
    closed, left_open = context.reader(["verdicts"]), context.reader(["verdicts"])
    closed.close()
    closed.close()
    backend.close()
    for reader in (closed, left_open):
        for call in (lambda each: each.receive(0), lambda each: each.seek({}), lambda each: each.ends()):
            with pytest.raises(ValueError, match="reader: expected an open one, found a closed one"):
                call(reader)


def test_open_readers_are_bounded(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("validator.transports.runner", "validator.testing.transport"):
        monkeypatch.setattr(f"{module}.READERS_MAX", 2)
    context = backend.start()
    first, _ = context.reader(["verdicts"]), context.reader(["verdicts"])
    with pytest.raises(ValueError, match="readers: expected at most 2 open ones"):
        context.reader(["verdicts"])
    first.close()
    assert context.reader(["verdicts"]).receive(0) is None


# --- on a broker only ---


def test_only_committed_records_are_read_and_positions_pass_markers(on_kafka: OnKafka) -> None:
    reader = on_kafka.start().reader(["verdicts"])
    producer = Producer(producer_config(on_kafka.kafka, transactional_id=on_kafka.prefix))
    producer.init_transactions(30)
    for value, ends in ((b"dropped", producer.abort_transaction), (b"kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(f"{on_kafka.prefix}verdicts", value, b"polkadot")
        producer.flush(30)
        ends(30)
    assert read(reader, 1) == [OutputRecord("verdicts", 0, 2, b"polkadot", b"kept")]
    until(lambda: reader.receive(0.1) is not None or reader.positions() == {("verdicts", 0): 4})
    assert reader.positions() == {("verdicts", 0): 4}
    producer.begin_transaction()
    producer.produce(f"{on_kafka.prefix}verdicts", b"open", b"polkadot")
    producer.flush(30)
    assert reader.ends() == {("verdicts", 0): 4}
    assert at_end(reader)
    producer.commit_transaction(30)
    assert read(reader, 1)[0].offset == 4


def test_every_partition_is_read_and_tombstones_are_passed(on_kafka: OnKafka) -> None:
    on_kafka.prefix += "three."
    create_topics(on_kafka.kafka, prefix=on_kafka.prefix, partitions=3)
    create_topics(on_kafka.kafka, prefix=on_kafka.prefix, topics=[CURSORS_TOPIC])
    producer = Producer(producer_config(on_kafka.kafka))
    for partition in range(3):
        producer.produce(f"{on_kafka.prefix}lanes", None, b"gone", partition=partition)
        producer.produce(f"{on_kafka.prefix}lanes", b"there", b"k", partition=partition)
    assert producer.flush(30) == 0
    reader = on_kafka.start().reader(["lanes"])
    assert sorted(read(reader, 3)) == [OutputRecord("lanes", at, 1, b"k", b"there") for at in range(3)]
    reader.seek({("lanes", 1): 2, ("lanes", 2): 1})
    assert [each.partition for each in sorted(read(reader, 2))] == [0, 2]
    assert at_end(reader)


def test_position_that_retention_overtakes_moves_to_the_first_record_left(on_kafka: OnKafka) -> None:
    on_kafka.send(*numbered(3))
    reader = on_kafka.start().reader(["verdicts"])
    read(reader, 3)
    assert at_end(reader)
    on_kafka.expire("verdicts", 2)
    reader._reader.start_at(
        {("verdicts", 0): 0}
    )  # as if records had been removed since `seek` asked for the first offset
    assert [each.offset for each in read(reader, 1)] == [2]
    reader._reader.start_at({("verdicts", 0): 9})
    with pytest.raises(UserError, match=r"verdicts\[0\] ends at offset 3, before 9, which comes next: it was "):
        reader.receive(60)


def test_missing_topic_is_one_error_line(kafka: dict[str, Any]) -> None:
    with pytest.raises(
        UserError,
        match=r"^topic nowhere\.verdicts does not exist at .*, or create the topics with `validator topics create`$",
    ):
        KafkaOutputReader(kafka, "nowhere.", ["verdicts"], lambda: None, lambda: False)


@pytest.mark.parametrize("failure", [Unavailable, UserError])
@pytest.mark.parametrize("take", ["receive", "reader"])
def test_registry_that_does_not_answer_costs_no_record(
    on_kafka: OnKafka, monkeypatch: pytest.MonkeyPatch, take: str, failure: type[UserError]
) -> None:
    """The framed record comes again, in its plain form, and those after it in their order."""
    away = ["once"]

    def plain(value: bytes) -> bytes:
        if value == b"1" and away:
            away.clear()
            raise failure("no schema registry answers")
        return b"plain " + value

    monkeypatch.setattr(topic_reader, "plain_values", lambda _: plain)
    on_kafka.send(*numbered(4))
    context = on_kafka.start()
    reader = context.reader(["verdicts"])

    def value() -> bytes | None:
        if take == "reader":
            record = reader.receive(60)
            return record and record.value
        received = context.receive(60)
        return received and received[2]

    assert value() == b"plain 0"
    with pytest.raises(failure):
        value()
    assert [value() for _ in range(3)] == [b"plain 1", b"plain 2", b"plain 3"]


@pytest.mark.broker
def test_ends_with_uncommitted_records_are_behind_an_open_transaction(kafka: dict[str, Any]) -> None:
    """A transaction that writes to two topics: whoever has read one of its records finds the others before these ends."""
    create_topics(kafka, prefix="open-end.")
    reader = KafkaOutputReader(kafka, "open-end.", ["verdicts", "receipts"], lambda: None, lambda: False)
    producer = Producer(producer_config(kafka) | {"transactional.id": "open-end"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for topic in ("verdicts", "receipts"):
        producer.produce(f"open-end.{topic}", b"1", b"polkadot", partition=0)
    producer.flush(60)
    assert set(reader.ends().values()) == {0}
    ends = {place: end for place, end in reader.ends(committed=False).items() if end}
    assert ends == {("verdicts", 0): 1, ("receipts", 0): 1}
    assert reader.receive(0.5) is None
    producer.commit_transaction(60)
    assert {each.topic for each in read(reader, 2)} == {"verdicts", "receipts"}
    until(lambda: reader.receive(0.1) is not None or reader.positions() == reader.ends(committed=False))
    reader.close()
