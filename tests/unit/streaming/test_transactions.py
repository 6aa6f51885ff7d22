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
from streaming.kafka_calls import CALL_S_MAX, TRANSACTION_MS_MAX
from streaming.markers import ReceiptsGone, Written
from streaming.transactions import (
    QUEUED_KIB_MAX,
    KafkaGone,
    TransactionalWriter,
    WriteFailed,
    WriterFenced,
    take_over,
)
from validator.codec.encode import OutputRecord
from validator.errors import Unavailable, UserError
from validator.lanes.marker import ForeignMarker, Marker

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
        self.written = Written(Marker())
        self.letters: set[bytes] = set()
        self.group: int | None = None
        self.receipt: int | None = None
        self.ends = {INPUTS: 100}
        self.sent = 0
        """Records that are still to be sent."""

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

    def __len__(self) -> int:
        return self.kafka.sent

    def commit_transaction(self, timeout: float) -> None:
        self.poll(0)
        self.kafka.call("commit", timeout)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()

    def asked(name: str, what: str) -> Any:
        def asking(_kafka: Any, prefix: str, lane: str, *args: Any) -> Any:
            assert (prefix, lane) == (PREFIX, LANE)
            made.call(name, *args)
            return getattr(made, what)

        return asking

    monkeypatch.setattr(transactions, "Producer", type("Made", (StandIn,), {"kafka": made}))
    monkeypatch.setattr(transactions, "GROUPS", SimpleNamespace(commit=lambda *args: made.call("group", *args[1:])))
    monkeypatch.setattr(transactions, "read_written", asked("read marker", "written"))
    monkeypatch.setattr(transactions, "last_written", asked("last", "written"))
    monkeypatch.setattr(transactions, "last_receipt", asked("receipt", "receipt"))
    monkeypatch.setattr(transactions, "input_ends", asked("input ends", "ends"))
    monkeypatch.setattr(transactions, "block_of_group", asked("ask group", "group"))
    monkeypatch.setattr(transactions, "read_dead_letters", asked("read letters", "letters"))
    monkeypatch.setattr(transactions, "dead_letter_ends", lambda *_: made.call("ends") or "the end")
    return made


def writer(kafka: Kafka) -> TransactionalWriter:
    made = TransactionalWriter(KAFKA, PREFIX, LANE, JOB)
    kafka.calls.clear()
    return made


def produced(kafka: Kafka) -> list[tuple[Any, ...]]:
    return [tuple(rest) for name, *rest in kafka.calls if name == "produce"]


def test_batch_is_one_transaction_with_its_marker_and_the_group_follows(kafka: Kafka) -> None:
    made = writer(kafka)
    made.marker(())
    kafka.calls.clear()
    made.write([VERDICT])
    made.write([LETTER])
    marker = Marker(7, {INPUTS: 5, (f"{PREFIX}blocks", 0): 0, (f"{PREFIX}blocks", 1): 3})
    made.commit(marker)
    assert kafka.names() == [
        *("begin", "produce", "poll", "produce", "poll", "produce", "poll", "poll", "commit", "group"),
    ]
    *_, marked = produced(kafka)
    assert produced(kafka)[:2] == [
        ("p.verdicts", b"polkadot/1", b"one", None),
        ("p.dead-letters", b"polkadot", b"dead", [("source", b"blocks/0/7")]),
    ]
    names = [("job", JOB.encode()), ("writer", made._writer.encode())]
    assert marked == ("p.markers", b"polkadot", marker.encode(LANE).value, names)
    assert kafka.calls[-2:] == [("commit", CALL_S_MAX), ("group", PREFIX, LANE, marker.consumed, 7)]
    kafka.calls.clear()
    made.write([VERDICT])
    assert kafka.names() == ["begin", "produce", "poll"], "the next batch is another transaction"
    made.commit(Marker(7, {INPUTS: 9}))
    assert kafka.calls[-1] == ("group", PREFIX, LANE, {INPUTS: 9}, None), "it has no block that was not emitted"


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


def test_full_queue_that_does_not_move_is_kafka_that_is_away(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PROGRESS_S_MAX", 0.02)
    made = writer(kafka)
    kafka.sent = 5
    kafka.failing["produce"] = [BufferError()]
    with pytest.raises(KafkaGone, match="Kafka took no record of lane polkadot for "):
        made.write([VERDICT])


def test_marker_is_read_once_and_follows_what_is_committed(kafka: Kafka) -> None:
    kafka.written = Written(Marker(3, {INPUTS: 2}))
    made = writer(kafka)
    assert made.marker([INPUTS, ("p.blocks", 0)]) == Marker(3, {INPUTS: 2, ("p.blocks", 0): 0})
    made.commit(Marker(4, {INPUTS: 9}))
    assert made.marker(()) == Marker(4, {INPUTS: 9})
    assert kafka.names().count("read marker") == 1


@pytest.mark.parametrize("shown", [Marker(), Marker(6, {INPUTS: 9})])
def test_marker_that_is_behind_the_group_is_never_believed(kafka: Kafka, shown: Marker) -> None:
    kafka.group, kafka.written = 7, Written(shown)
    made = writer(kafka)
    with pytest.raises(
        KafkaGone, match=r"Kafka does not show the last marker of lane polkadot: .*but block 7 is committed"
    ):
        made.marker(())
    assert kafka.names().count("read marker") == 2, "it is read again first"
    kafka.written = Written(Marker(7))
    assert writer(kafka).marker(()) == Marker(7)


@pytest.mark.parametrize(("group", "shown"), [(None, Marker()), (5, Marker(6)), (6, Marker(6))])
def test_group_that_is_behind_or_silent_says_nothing(kafka: Kafka, group: int | None, shown: Marker) -> None:
    kafka.group, kafka.written = group, Written(shown)
    assert writer(kafka).marker(()) == shown
    assert kafka.names().count("read marker") == 1


def test_marker_that_a_person_has_removed_is_not_missed(kafka: Kafka) -> None:
    kafka.group, kafka.receipt, kafka.written = 7, 7, Written(Marker(), is_reset=True)
    made = writer(kafka)
    made.confirm(corrects=False)
    assert made.marker(()) == Marker()


def test_own_marker_is_confirmed_once(kafka: Kafka) -> None:
    kafka.receipt, kafka.written = 7, Written(Marker(7, {INPUTS: 100}))
    made = writer(kafka)
    made.confirm(corrects=False)
    made.commit(Marker(8, {INPUTS: 120}))
    made.confirm(corrects=False)
    assert kafka.names().count("receipt") == 1


FORGED = (
    Marker(45),
    Marker(45, {INPUTS: 50}),
    Marker(45, {INPUTS: 101}),
    Marker(7, {INPUTS: 101}),
    Marker(7, {("no", 0): 1}),
)


@pytest.mark.parametrize("forged", FORGED)
def test_marker_that_the_lane_did_not_write_is_found_twice_and_corrected_if_that_is_wanted(
    kafka: Kafka, forged: Marker
) -> None:
    kafka.receipt, kafka.written = 7, Written(forged)
    made = writer(kafka)
    with pytest.raises(ForeignMarker, match="its marker on the topic markers was not written by this lane: "):
        made.confirm(corrects=False)
    assert kafka.names().count("receipt") == 2
    made.confirm(corrects=True)
    assert made.marker(()) == Marker(7, {}, doubtful=True)
    made.commit(made.marker(()).after(8, {INPUTS: 3}))
    *_, (*_, headers) = produced(kafka)
    assert headers[-1] == ("doubtful", b""), "who reads it next must not believe its inputs either"


def test_marker_without_any_receipt_is_not_the_lanes(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.written = Written(Marker(7))
    with pytest.raises(ForeignMarker, match="it is at block 7, but the last receipt is of no block"):
        writer(kafka).confirm(corrects=False)

    def gone(*_: Any) -> None:
        raise ReceiptsGone

    monkeypatch.setattr(transactions, "last_receipt", gone)
    writer(kafka).confirm(corrects=False)  # retention has removed them: they say nothing


def test_receipt_that_the_marker_does_not_have_says_that_kafka_does_not_show_it(kafka: Kafka) -> None:
    kafka.receipt, kafka.written = 8, Written(Marker(7))
    with pytest.raises(
        KafkaGone, match=r"Kafka does not show the last marker of lane polkadot: .*block 8 is committed"
    ):
        writer(kafka).confirm(corrects=True)


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
@pytest.mark.parametrize("call", ["begin", "produce", "commit"])
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


@pytest.mark.parametrize("call", ["produce", "commit"])
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


BEFORE, AFTER = (0, 4), (0, 9)


@pytest.mark.parametrize("code", [FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH])
@pytest.mark.parametrize(
    ("last", "kind", "text"),
    [
        (Written(Marker()), WriteFailed, "lane polkadot has been taken over by another writer, "),
        (Written(Marker(), "job-2", "w", BEFORE), WriteFailed, "lane polkadot has been taken over by another writer, "),
        (Written(Marker(), JOB, "w", AFTER), WriteFailed, "lane polkadot has been taken over by another writer, "),
        (Written(Marker(), "job-2", "w", AFTER), WriterFenced, "another job has taken over lane polkadot: job-2$"),
        (
            Written(Marker(), "", "", AFTER),
            WriterFenced,
            "another job has taken over lane polkadot: one whose name is unknown$",
        ),
    ],
)
def test_fenced_writer_finds_out_by_whom(
    kafka: Kafka, code: int, last: Written, kind: type[Exception], text: str
) -> None:
    kafka.written = Written(Marker(), "job-2", "w", BEFORE)
    made = writer(kafka)
    made.marker(())
    kafka.written = last
    kafka.failing["commit"] = [error(code)]
    with pytest.raises(kind, match=text) as failed:
        made.commit(Marker(1, {INPUTS: 1}))
    assert type(failed.value) is kind


def test_writer_that_is_fenced_after_its_own_write_knows_nobody(kafka: Kafka) -> None:
    made = writer(kafka)
    made.marker(())
    made.commit(Marker(1))
    kafka.written = Written(Marker(1), JOB, made._writer, AFTER)
    kafka.failing["commit"] = [error(FENCED)]
    with pytest.raises(WriteFailed, match="taken over by another writer"):
        made.commit(Marker(2))


def test_writer_that_is_fenced_before_it_has_read_its_marker_finds_out_by_whom(kafka: Kafka) -> None:
    made = writer(kafka)
    kafka.written = Written(Marker(), "job-2", "w", AFTER)
    kafka.failing["commit"] = [error(FENCED)]
    with pytest.raises(WriterFenced, match="job-2"):
        made.commit(Marker(1, {INPUTS: 1}))


def test_fenced_writer_that_cannot_ask_by_whom_is_repeated(kafka: Kafka) -> None:
    made = writer(kafka)
    kafka.failing |= {"commit": [error(FENCED)], "last": [Unavailable("away")]}
    with pytest.raises(KafkaGone, match="away"):
        made.commit(Marker(1, {INPUTS: 1}))


@pytest.mark.parametrize(("raised", "kind"), [(Unavailable("away"), KafkaGone), (UserError("no marker"), WriteFailed)])
def test_what_cannot_be_read_fails_the_batch(kafka: Kafka, raised: UserError, kind: type[WriteFailed]) -> None:
    made = writer(kafka)
    kafka.failing |= {"read marker": [raised], "read letters": [raised], "ends": [raised], "receipt": [raised]}
    asks: list[Any] = [lambda: made.marker(()), made.written_dead_letters, made.note_dead_letters]
    for ask in (*asks, lambda: made.confirm(corrects=False)):
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
