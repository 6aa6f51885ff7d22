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

from streaming.taking_over import end_open_transactions
from streaming.transactions import TransactionalWriter
from tests.unit.streaming.played_writer import (
    INPUTS,
    JOB,
    KAFKA,
    LANE,
    LETTER,
    PREFIX,
    VERDICT,
    Kafka,
    Log,
    StandIn,
    error,
    kafka,
    produced,
    writer,
)
from validator.checkpoint.markers import Written
from validator.codec.encode import OutputRecord
from validator.errors import Unavailable, UserError
from validator.kafka import transaction
from validator.kafka.calls import CALL_S_MAX, TRANSACTION_MS_MAX
from validator.kafka.settings import QUEUED_KIB_MAX
from validator.kafka.transaction import KafkaGone, WriteFailed
from validator.lanes.marker import Marker

__all__ = ["kafka"]


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
    names = [("job", JOB.encode()), ("writer", made._name.encode())]
    assert marked == ("p.markers", b"polkadot", marker.encode(LANE).value, names)
    assert kafka.calls[-2:] == [("commit", CALL_S_MAX), ("group", marker.consumed, 7)]
    kafka.calls.clear()
    made.write([VERDICT])
    assert kafka.names() == ["begin", "produce", "poll"], "the next batch is another transaction"
    made.commit(Marker(7, {INPUTS: 9}))
    assert kafka.calls[-1] == ("group", {INPUTS: 9}, None), "it has no block that was not emitted"


def test_producer_is_set_up_for_its_lane(kafka: Kafka) -> None:
    TransactionalWriter(Log(kafka), JOB)
    TransactionalWriter(Log(kafka, {**KAFKA, "queue.buffering.max.kbytes": 99}), JOB)
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
    monkeypatch.setattr(transaction, "PROGRESS_S_MAX", 0.02)
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
    monkeypatch.setattr(transaction, "REPORT_S_MAX", 0.02)
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
        TransactionalWriter(Log(kafka), JOB)


def test_take_over_opens_each_lane(kafka: Kafka) -> None:
    lanes: Iterable[str] = ("a", "b", "c")
    end_open_transactions(KAFKA, PREFIX, lanes)
    assert sorted(each["transactional.id"] for each in kafka.configs) == ["p.lane.a", "p.lane.b", "p.lane.c"]
    assert kafka.names() == ["init"] * 3
    kafka.failing["init"] = [error(STAYS)]
    with pytest.raises(UserError, match="Kafka did not accept the batch: "):
        end_open_transactions(KAFKA, PREFIX, lanes)


def test_records_are_framed_as_they_are_sent_and_the_marker_is_not(kafka: Kafka) -> None:
    header = b"\xc3\x01abcdefgh"
    made = TransactionalWriter(Log(kafka), JOB, {("verdicts", header): b"\0\0\0\0\5"})
    made.write(
        [OutputRecord("verdicts", b"k", header + b"one"), OutputRecord("headroom", b"k", header + b"two"), VERDICT]
    )
    made.commit(Marker(7, {INPUTS: 3}))
    values = [value for _, _, value, _ in produced(kafka)]
    assert values[:3] == [b"\0\0\0\0\5one", header + b"two", b"one"]
    assert values[3] == Marker(7, {INPUTS: 3}).encode(LANE).value
