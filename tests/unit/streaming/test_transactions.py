# SPDX-License-Identifier: Apache-2.0
"""The writer of one lane with a stand-in for librdkafka's producer: each call in its order, and what becomes of each error.

`tests/contract/test_lane_writer.py` shows the same on a real broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming import transactions
from streaming.markers import CALL_S_MAX, LastWrite
from streaming.transactions import (
    QUEUED_KIB_MAX,
    TRANSACTION_MS_MAX,
    KafkaGone,
    TransactionalWriter,
    WriteFailed,
    WriterFenced,
    take_over,
)
from validator.codec.encode import OutputRecord
from validator.errors import Unavailable, UserError
from validator.lanes.marker import Marker

LANE, JOB, PREFIX = "polkadot", "job-1", "p."
KAFKA = {"bootstrap.servers": "nowhere:1"}
INPUTS = (f"{PREFIX}candidates", 0)
VERDICT = OutputRecord("verdicts", b"polkadot/1", b"one")
LETTER = OutputRecord("dead-letters", b"polkadot", b"dead", (("source", b"blocks/0/7"),))


class Kafka:
    """What the stand-ins share: every call with its arguments, and which calls fail with which error."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.failing: dict[str, list[Exception]] = {}
        self.reports: list[tuple[Any, Any]] = []
        """Errors that the next poll reports for records, with their messages."""
        self.configs: list[dict[str, Any]] = []
        self.last = LastWrite(None, None)
        self.marker = Marker()
        self.letters: set[bytes] = set()
        self.reads = 0

    def call(self, name: str, *args: Any) -> None:
        self.calls.append((name, *args))
        if failing := self.failing.get(name):
            raise failing.pop(0)

    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


def error(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


class StandIn:
    """A producer that does what its `Kafka` says."""

    kafka: Kafka

    def __init__(self, config: dict[str, Any]) -> None:
        self.kafka.configs.append(config)
        self._on_delivery: Any = None

    def init_transactions(self, _: float) -> None:
        self.kafka.call("init")

    def begin_transaction(self) -> None:
        self.kafka.call("begin")

    def produce(self, topic: str, value: bytes, key: bytes, headers: Any, on_delivery: Any) -> None:
        self._on_delivery = on_delivery
        self.kafka.call("produce", topic, key, value, headers)

    def poll(self, _: float) -> None:
        self.kafka.call("poll")
        while self.kafka.reports:
            self._on_delivery(*self.kafka.reports.pop(0))

    def send_offsets_to_transaction(self, offsets: Any, group: Any, timeout: float) -> None:
        places = [(each.topic, each.partition, each.offset, each.metadata) for each in offsets]
        self.kafka.call("offsets", places, group, timeout)

    def commit_transaction(self, timeout: float) -> None:
        self.poll(0)
        self.kafka.call("commit", timeout)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()

    def last_write() -> LastWrite:
        made.call("last")
        return made.last

    def read(what: str) -> Any:
        def reading(_kafka: Any, prefix: str, lane: str, *args: Any) -> Any:
            assert (prefix, lane) == (PREFIX, LANE)
            made.call(f"read {what}", *args)
            return getattr(made, what)

        return reading

    offsets = SimpleNamespace(last_write=last_write, group_metadata=lambda: "group")
    monkeypatch.setattr(transactions, "Producer", type("Made", (StandIn,), {"kafka": made}))
    monkeypatch.setattr(transactions, "LaneOffsets", lambda *_: offsets)
    monkeypatch.setattr(transactions, "read_marker", read("marker"))
    monkeypatch.setattr(transactions, "read_dead_letters", read("letters"))
    monkeypatch.setattr(transactions, "dead_letter_ends", lambda *_: made.call("ends") or "the end")
    return made


def writer(kafka: Kafka) -> TransactionalWriter:
    made = TransactionalWriter(KAFKA, PREFIX, LANE, JOB)
    kafka.calls.clear()
    return made


def produced(kafka: Kafka) -> list[tuple[Any, ...]]:
    return [tuple(rest) for name, *rest in kafka.calls if name == "produce"]


def test_batch_is_one_transaction_with_marker_and_offsets(kafka: Kafka) -> None:
    made = writer(kafka)
    made.write([VERDICT])
    made.write([LETTER])
    marker = Marker(7, {INPUTS: 5, (f"{PREFIX}blocks", 0): 0, (f"{PREFIX}blocks", 1): 3})
    made.commit(marker)
    assert kafka.names() == [
        *("begin", "produce", "poll", "produce", "poll", "produce", "poll", "offsets", "poll", "commit"),
    ]
    *_, marked = produced(kafka)
    assert produced(kafka)[:2] == [
        ("p.verdicts", b"polkadot/1", b"one", None),
        ("p.dead-letters", b"polkadot", b"dead", [("source", b"blocks/0/7")]),
    ]
    assert marked == ("p.markers", b"polkadot", marker.encode(LANE).value, None)
    (places, group, timeout), (committing,) = kafka.calls[-3][1:], kafka.calls[-1][1:]
    assert places == [
        ("p.blocks", 1, 3, None),
        ("p.candidates", 0, 5, None),
        ("p.markers", 0, 8, f"{JOB} {made._writer}"),
    ]
    assert (group, timeout, committing) == ("group", CALL_S_MAX, CALL_S_MAX)
    kafka.calls.clear()
    made.write([VERDICT])
    assert kafka.names() == ["begin", "produce", "poll"], "the next batch is another transaction"


def test_batch_without_a_block_leaves_its_writer_too(kafka: Kafka) -> None:
    made = writer(kafka)
    made.commit(Marker(None, {INPUTS: 0}))
    (places,) = (args[0] for name, *args in kafka.calls if name == "offsets")
    assert places == [("p.markers", 0, 0, f"{JOB} {made._writer}")]
    assert not made._is_further(LastWrite(None, None))
    assert made._seen == LastWrite(0, JOB, made._writer)


def test_producer_is_set_up_for_its_lane(kafka: Kafka) -> None:
    TransactionalWriter(KAFKA, PREFIX, LANE, JOB)
    TransactionalWriter({**KAFKA, "queue.buffering.max.kbytes": 99}, PREFIX, LANE, JOB)
    first, second = kafka.configs
    assert first["transactional.id"] == "p.lane.polkadot"
    assert first["transaction.timeout.ms"] == TRANSACTION_MS_MAX
    assert first["delivery.report.only.error"] is True
    assert (first["queue.buffering.max.kbytes"], second["queue.buffering.max.kbytes"]) == (QUEUED_KIB_MAX, "99")
    assert kafka.names() == ["init", "init"]


def test_full_queue_is_waited_for(kafka: Kafka) -> None:
    kafka.failing["produce"] = [BufferError(), BufferError()]
    writer(kafka).write([VERDICT])
    assert kafka.names() == ["begin", "produce", "poll", "produce", "poll", "produce", "poll"]


def test_marker_is_read_once_and_follows_what_is_committed(kafka: Kafka) -> None:
    kafka.marker, kafka.last = Marker(3, {INPUTS: 2}), LastWrite(4, JOB)
    made = writer(kafka)
    assert not made.is_current(), "it has not read the marker"
    assert made.marker([INPUTS, ("p.blocks", 0)]) == Marker(3, {INPUTS: 2, ("p.blocks", 0): 0})
    made.commit(Marker(4, {INPUTS: 9}))
    assert made.marker(()) == Marker(4, {INPUTS: 9})
    assert kafka.names().count("read marker") == 1
    assert made.is_current(), "its commit is in doubt"
    kafka.last = LastWrite(5, JOB, made._writer)
    assert made.is_current(), "that is its own write"
    kafka.last = LastWrite(5, JOB, "another")
    assert not made.is_current()


@pytest.mark.parametrize("before", [LastWrite(None, None), LastWrite(0, JOB, "a"), LastWrite(4, "job-2", "a")])
@pytest.mark.parametrize("blocks", [0, 1])
def test_writer_is_current_until_another_one_has_written(kafka: Kafka, before: LastWrite, blocks: int) -> None:
    """A batch without a block counts as well: whoever wrote it has fenced the earlier writer off."""
    kafka.last = before
    made = writer(kafka)
    made.marker(())
    assert made.is_current()
    kafka.last = LastWrite((before.offset or 0) + blocks, JOB, "b")
    assert not made.is_current()


def test_two_writers_of_a_job_are_told_apart(kafka: Kafka) -> None:
    one, other = writer(kafka), writer(kafka)
    for each in (one, other):
        each.marker(())
        each.commit(Marker(None, {INPUTS: 1}))
    *_, kafka.last = (LastWrite.of(*args[0][-1][2:]) for name, *args in kafka.calls if name == "offsets")
    assert (one.is_current(), other.is_current()) == (False, True)


@pytest.mark.parametrize(
    ("metadata", "job", "writer"),
    [(None, None, None), ("", None, None), ("app-1", "app-1", None), ("app-1 9f", "app-1", "9f")],
)
def test_metadata_of_a_write(metadata: str | None, job: str | None, writer: str | None) -> None:
    assert LastWrite.of(3, metadata) == LastWrite(3, job, writer)


def test_writer_ends_once_another_job_has_written(kafka: Kafka) -> None:
    made = writer(kafka)
    made.marker(())
    kafka.last = LastWrite(1, "job-2")
    with pytest.raises(WriterFenced, match="another job has taken over lane polkadot: job-2"):
        made.is_current()


def test_dead_letters_are_read_once_and_those_of_the_batch_are_added(kafka: Kafka) -> None:
    made = writer(kafka)
    made.write([LETTER])
    kafka.letters = {b"blocks/0/1"}
    assert made.written_dead_letters() == {b"blocks/0/1"}
    made.write([VERDICT, LETTER])
    assert made.written_dead_letters() == {b"blocks/0/1", b"blocks/0/7"}
    assert kafka.names().count("read letters") == 1


def test_dead_letters_are_read_to_the_noted_end_until_the_commit(kafka: Kafka) -> None:
    """The next batch needs those of this one, too, so they are read again."""
    made = writer(kafka)
    for _ in range(2):
        made.note_dead_letters(), made.written_dead_letters(), made.commit(Marker())
    made.written_dead_letters(), made.note_dead_letters()
    assert [args[-1] for name, *args in kafka.calls if name == "read letters"] == ["the end", "the end", None]


PASSES, STAYS, FENCED = KafkaError._TIMED_OUT, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError._FENCED


@pytest.mark.parametrize(("code", "kind"), [(PASSES, KafkaGone), (STAYS, WriteFailed)])
@pytest.mark.parametrize("call", ["begin", "produce", "offsets", "commit"])
def test_failed_call_says_whether_it_may_pass(kafka: Kafka, call: str, code: int, kind: type[WriteFailed]) -> None:
    made = writer(kafka)
    kafka.failing[call] = [error(code)]
    with pytest.raises(WriteFailed, match="Kafka did not accept the batch of lane polkadot: ") as failed:
        made.commit(Marker(1, {INPUTS: 1}))
    assert type(failed.value) is kind


@pytest.mark.parametrize("call", ["produce", "commit", None])
def test_record_that_failed_is_named_whatever_else_failed(kafka: Kafka, call: str | None) -> None:
    made = writer(kafka)
    made.write([VERDICT])
    message = SimpleNamespace(topic=lambda: "p.verdicts", value=lambda: b"12345")
    later = SimpleNamespace(topic=lambda: "p.other", value=lambda: None)
    kafka.reports = [(None, None), (KafkaError(STAYS), message), (KafkaError(PASSES), later)]
    if call is not None:
        kafka.failing[call] = [error(KafkaError._STATE)]
    with pytest.raises(
        WriteFailed, match=r"Kafka refused a record of p\.verdicts with 5 bytes, of lane polkadot: "
    ) as failed:
        made.commit(Marker(1, {INPUTS: 1}))
    assert type(failed.value) is WriteFailed


@pytest.mark.parametrize("call", ["produce", "offsets", "commit"])
def test_record_that_failed_is_named_if_its_report_comes_late(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The transaction fails first, and what was not sent for that reason may be reported before the record that failed it."""
    made = writer(kafka)
    made.write([VERDICT])
    message = SimpleNamespace(topic=lambda: "p.verdicts", value=lambda: b"12345")
    unsent = SimpleNamespace(topic=lambda: "p.markers", value=lambda: b"1")
    aborts = KafkaError(KafkaError._STATE, txn_requires_abort=True)
    late = [[], [(KafkaError(KafkaError._PURGE_QUEUE), unsent)], [], [(KafkaError(STAYS), message)]]

    def poll(self: StandIn, _: float) -> None:
        for report in late.pop(0) if late and not kafka.failing[call] else ():
            self._on_delivery(*report)

    monkeypatch.setattr(StandIn, "poll", poll)
    kafka.failing[call] = [KafkaException(aborts)]
    with pytest.raises(WriteFailed, match=r"Kafka refused a record of p\.verdicts with 5 bytes, ") as failed:
        made.commit(Marker(1, {INPUTS: 1}))
    assert type(failed.value) is WriteFailed


def test_transaction_that_no_record_failed_is_not_waited_for_long(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "REPORT_S_MAX", 0.02)
    made = writer(kafka)
    kafka.failing["commit"] = [KafkaException(KafkaError(STAYS, txn_requires_abort=True))]
    with pytest.raises(WriteFailed, match="Kafka did not accept the batch of lane polkadot: "):
        made.commit(Marker(1, {INPUTS: 1}))


def test_record_without_a_value_that_failed_has_no_bytes(kafka: Kafka) -> None:
    made = writer(kafka)
    made.write([VERDICT])
    kafka.reports = [(KafkaError(PASSES), SimpleNamespace(topic=lambda: "p.other", value=lambda: None))]
    with pytest.raises(KafkaGone, match="with 0 bytes"):
        made.commit(Marker(1, {INPUTS: 1}))


@pytest.mark.parametrize("code", [FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize(
    ("last", "kind", "text"),
    [
        (LastWrite(None, None), WriteFailed, "lane polkadot has been taken over: "),
        (LastWrite(9, JOB), WriteFailed, "lane polkadot has been taken over: "),
        (LastWrite(9, "job-2"), WriterFenced, "another job has taken over lane polkadot: job-2"),
    ],
)
def test_fenced_writer_finds_out_by_whom(
    kafka: Kafka, code: int, last: LastWrite, kind: type[Exception], text: str
) -> None:
    made = writer(kafka)
    made.marker(())
    kafka.last = last
    kafka.failing["commit"] = [error(code)]
    with pytest.raises(kind, match=text) as failed:
        made.commit(Marker(1, {INPUTS: 1}))
    assert type(failed.value) is kind


def test_writer_that_is_fenced_before_it_has_read_its_marker_finds_out_by_whom(kafka: Kafka) -> None:
    made = writer(kafka)
    kafka.last = LastWrite(1, "job-2")
    kafka.failing["commit"] = [error(FENCED)]
    with pytest.raises(WriterFenced, match="job-2"):
        made.commit(Marker(1, {INPUTS: 1}))


@pytest.mark.parametrize(("code", "kind"), [(PASSES, KafkaGone), (STAYS, WriteFailed)])
def test_question_that_kafka_does_not_answer_fails_the_batch(kafka: Kafka, code: int, kind: type[WriteFailed]) -> None:
    made = writer(kafka)
    kafka.failing["last"] = [error(code)]
    with pytest.raises(WriteFailed, match="Kafka does not say who wrote lane polkadot: ") as failed:
        made.marker(())
    assert type(failed.value) is kind


@pytest.mark.parametrize(("raised", "kind"), [(Unavailable("away"), KafkaGone), (UserError("no marker"), WriteFailed)])
def test_what_cannot_be_read_fails_the_batch(kafka: Kafka, raised: UserError, kind: type[WriteFailed]) -> None:
    made = writer(kafka)
    kafka.failing |= {"read marker": [raised], "read letters": [raised], "ends": [raised]}
    for ask in (lambda: made.marker(()), made.written_dead_letters, made.note_dead_letters):
        with pytest.raises(WriteFailed, match=str(raised)) as failed:
            ask()
        assert type(failed.value) is kind


def test_writer_that_cannot_be_opened_says_so(kafka: Kafka) -> None:
    kafka.failing["init"] = [error(STAYS)]
    with pytest.raises(WriteFailed, match="Kafka did not accept the batch of lane polkadot: "):
        TransactionalWriter(KAFKA, PREFIX, LANE, JOB)


def test_take_over_opens_each_lane(kafka: Kafka) -> None:
    lanes: Iterable[str] = ("a", "b", "c")
    take_over(KAFKA, PREFIX, lanes)
    assert sorted(each["transactional.id"] for each in kafka.configs) == ["p.lane.a", "p.lane.b", "p.lane.c"]
    assert kafka.names() == ["init"] * 3
    kafka.failing["init"] = [error(STAYS)]
    with pytest.raises(WriteFailed, match="Kafka did not accept the batch: "):
        take_over(KAFKA, PREFIX, lanes)


def test_records_are_framed_as_they_are_sent_and_the_marker_is_not(kafka: Kafka) -> None:
    header = b"\xc3\x01abcdefgh"
    made = TransactionalWriter(KAFKA, PREFIX, LANE, JOB, {("verdicts", header): b"\0\0\0\0\5"})
    made.write(
        [OutputRecord("verdicts", b"k", header + b"one"), OutputRecord("headroom", b"k", header + b"two"), VERDICT]
    )
    made.commit(Marker(7, {INPUTS: 3}))
    values = [value for _, _, value, _ in produced(kafka)]
    assert values[:3] == [b"\0\0\0\0\5one", header + b"two", b"one"]
    assert values[3] == Marker(7, {INPUTS: 3}).encode(LANE).value
