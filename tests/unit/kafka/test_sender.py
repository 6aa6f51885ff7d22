# SPDX-License-Identifier: Apache-2.0
"""A failure of the sender is raised once, in the thread whose record failed; then the sender works again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from validator.client.producer import Producer
from validator.codec.codec import Codec
from validator.errors import UserError
from validator.kafka import refusals
from validator.kafka import sender as sender_module
from validator.kafka.sender import RecordSender
from validator.plugin.runtime import RuntimePlan, codec_of

Heard = Callable[[Any, Any], None]


class Kafka:
    """librdkafka's producer: the test answers each record, and a flush waits for nothing."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.waiting: list[tuple[bytes, Heard]] = []
        self.has: list[bytes] = []
        self.at_flush: Callable[[], None] = lambda: None

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: Heard) -> None:
        self.waiting.append((value, on_delivery))

    def poll(self, timeout_s: float) -> int:
        return 0

    def flush(self, timeout_s: float) -> int:
        self.at_flush()
        return len(self.waiting)

    def __len__(self) -> int:
        return len(self.waiting)

    def answer(self, *failed: bytes) -> None:
        """Accept all records, apart from some."""
        waiting, self.waiting = self.waiting, []
        for value, heard in waiting:
            error = KafkaError(KafkaError._MSG_TIMED_OUT, "Local: Message timed out") if value in failed else None
            self.has += [] if error else [value]
            heard(error, SimpleNamespace(topic=lambda: "t.blocks"))


@pytest.fixture(autouse=True)
def _no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no error be looked into: there is no Kafka."""
    monkeypatch.setattr(refusals, "_heard", lambda _: None)


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> RecordSender:
    monkeypatch.setattr(sender_module, "Producer", Kafka)
    return RecordSender({"bootstrap.servers": "kafka:9092"}, "t.")


def kafka_of(sender: RecordSender) -> Kafka:
    kafka = sender._producer
    assert isinstance(kafka, Kafka)
    return kafka


FAILED = r"^t\.blocks: kafka:9092 did not accept a record: Local: Message timed out \(_MSG_TIMED_OUT\)$"


@pytest.mark.parametrize("by", ["send", "flush"])
def test_failure_is_raised_once(sender: RecordSender, by: str) -> None:
    kafka = kafka_of(sender)
    for value in (b"1", b"2", b"3"):
        sender.send("blocks", b"", value)
    kafka.answer(b"1", b"2")
    with pytest.raises(UserError, match=FAILED):
        sender.flush() if by == "flush" else sender.send("blocks", b"", b"4")
    assert kafka.waiting == [], "what is refused is not sent"
    for value in (b"1", b"2"):
        sender.send("blocks", b"", value)
    kafka.answer()
    sender.flush()
    assert kafka.has == [b"3", b"1", b"2"]
    assert sender.delivered == 3


def test_records_that_fail_after_their_error_was_raised_do_not_raise_another(sender: RecordSender) -> None:
    kafka = kafka_of(sender)
    sender.send("blocks", b"", b"1")
    with pytest.raises(UserError, match="1 records were not acknowledged by kafka:9092 within 0 s"):
        sender.flush(0)
    kafka.answer(b"1")
    sender.send("blocks", b"", b"1")
    kafka.answer()
    sender.flush()
    assert kafka.has == [b"1"]


def test_failure_is_raised_by_the_thread_that_sent_the_record(sender: RecordSender) -> None:
    """Otherwise one lane's block would end without an error because another one's flush has heard of it."""
    kafka = kafka_of(sender)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        one.submit(sender.send, "blocks", b"a", b"1").result(60)
        other.submit(sender.send, "blocks", b"b", b"2").result(60)
        kafka.answer(b"1")
        other.submit(sender.flush).result(60)
        with pytest.raises(UserError, match=FAILED):
            one.submit(sender.flush).result(60)
        one.submit(sender.flush).result(60)


FATAL = KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, fatal=True)


@pytest.mark.parametrize("by", ["poll", "flush", "produce"])
def test_client_that_cannot_continue_says_why_in_every_later_send(
    sender: RecordSender, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """librdkafka raises it out of whichever call comes next, and then says of each record that there was a fatal error."""
    kafka, raised = kafka_of(sender), list[bool]()

    def fails(*_: object, **__: object) -> int:
        if not raised:
            raised.append(True)
            raise KafkaException(FATAL)
        return 0

    def refuses(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    if by == "produce":
        monkeypatch.setattr(kafka, "produce", refuses)
        monkeypatch.setattr(kafka, "poll", fails)
    else:
        monkeypatch.setattr(kafka, by, fails)
    text = r"the client lacks the right Write on topic t\.blocks \(CLUSTER_AUTHORIZATION_FAILED\)$"

    def attempt() -> None:
        sender.send("blocks", b"", b"1")
        sender.flush(0)

    with pytest.raises(UserError, match=text):
        attempt()
    kafka.waiting.clear()
    sender.flush(0)
    monkeypatch.setattr(kafka, "produce", refuses)
    with pytest.raises(UserError, match=text):
        sender.send("blocks", b"", b"2")


class Backend:
    """What a producer of blocks needs of its backend."""

    def __init__(self, sender: RecordSender) -> None:
        self.send, self.flush = sender.send, sender.flush


def test_block_that_kafka_does_not_take_is_sent_again_with_the_same_bytes_and_then_no_more(
    sender: RecordSender,
) -> None:
    codec: Codec = codec_of([RuntimePlan("router")])
    producer = Producer(Backend(sender), codec, "router", "polkadot")  # type: ignore[arg-type]
    kafka = kafka_of(sender)
    block = producer.block(1)
    block.candidate(2000, hrmp_watermark=0)
    sent: list[bytes] = []

    def fails() -> None:
        sent.extend(value for value, _ in kafka.waiting)
        kafka.answer(sent[0])

    kafka.at_flush = fails
    with pytest.raises(UserError, match=FAILED):
        block.end()
    for change in (block.change_session, lambda: block.include(2000), lambda: block.candidate(2004, hrmp_watermark=0)):
        with pytest.raises(UserError, match="block 1 is complete, and may be on Kafka in part: `end` sends it again"):
            change()
    kafka.has.clear()
    kafka.at_flush = kafka.answer
    block.end()
    assert kafka.has == sent
    assert len(sent) == 2
    with pytest.raises(UserError, match="block 1 is sent already"):
        block.end()
    with pytest.raises(UserError, match="expected a block after 1"):
        producer.block(1)
    assert kafka.has == sent


def test_two_threads_that_end_a_block_send_it_once(sender: RecordSender) -> None:
    """The task of one may be cancelled while its thread still sends."""
    producer = Producer(Backend(sender), codec_of([RuntimePlan("router")]), "router", "polkadot")  # type: ignore[arg-type]
    kafka, block = kafka_of(sender), producer.block(1)
    kafka.at_flush = kafka.answer
    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(block.end) for _ in range(2)]
        errors = [each.exception(60) for each in ends]
    assert sorted(str(error) for error in errors) == ["None", "block 1 is sent already"]
    assert len(kafka.has) == 1
