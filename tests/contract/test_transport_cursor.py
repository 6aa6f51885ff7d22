# SPDX-License-Identifier: Apache-2.0
"""A transport commits records with its cursors, all or nothing, with the same guarantees on a real broker and in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer

from tests.added_partitions import add_partitions
from tests.contract.transport_backends import Backend, InMemory, OnKafka
from validator.kafka.settings import producer_config
from validator.plugin.api import LeaseLost, Record, TransportContext
from validator.plugin.limits import CURSOR_BYTES_MAX, CURSORS_MAX
from validator.topics import CURSORS
from validator.transports.output_reader import NUMBER_BYTES, Cursors


@pytest.fixture(params=["kafka", "memory"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    made: Backend = InMemory() if request.param == "memory" else on_kafka(request)
    yield made
    made.close()


@pytest.fixture
def kafka_backend(request: pytest.FixtureRequest) -> Iterator[OnKafka]:
    made = on_kafka(request)
    yield made
    made.close()


def on_kafka(request: pytest.FixtureRequest) -> OnKafka:
    name = request.getfixturevalue("tmp_path").name
    return OnKafka(request.getfixturevalue("kafka"), f"cursor-{name}.")


def block(context: TransportContext, number: int) -> Record:
    record = {"lane": "polkadot", "block": number, "candidates": 0, "requests": 0, "downward": 0}
    return ("blocks", *context.encode("blocks", record))


def test_a_commit_writes_records_and_cursors_and_the_next_process_finds_both(backend: Backend) -> None:
    context = backend.start()
    assert context.cursor("polkadot") is None
    context.commit([block(context, 1), block(context, 2)], {"polkadot": b"2", "kusama": b""})
    assert (context.cursor("polkadot"), context.cursor("kusama"), context.cursor("other")) == (b"2", b"", None)
    context.commit([block(context, 3)], {"polkadot": b"3"})
    context.commit([], {"polkadot": b"3 again"})
    again = backend.start()
    assert (again.cursor("polkadot"), again.cursor("kusama")) == (b"3 again", b"")
    assert backend.submitted() == [block(again, number) for number in (1, 2, 3)]


def test_a_process_that_has_lost_its_lease_commits_nothing(backend: Backend) -> None:
    context = backend.start()
    record = block(context, 1)
    backend.lose_lease()
    with pytest.raises(LeaseLost):
        context.commit([record], {"polkadot": b"1"})
    again = backend.start()
    assert again.cursor("polkadot") is None
    assert backend.submitted() == []


MISTAKES: list[tuple[Callable[[TransportContext], Any], str]] = [
    (lambda c: c.commit([("verdicts", b"", b"")], {"a": b""}), "topic: expected one of blocks, candidates, "),
    (lambda c: c.commit([("blocks", "", b"")], {"a": b""}), "key: expected bytes, found str"),
    (lambda c: c.commit([], {}), f"cursors: expected 1 to {CURSORS_MAX}, found 0"),
    (lambda c: c.commit([], {"A b": b""}), "cursors: expected names of 1 to 64 of a-z 0-9 . _ -, found 'A b'"),
    (lambda c: c.commit([], {"a": "text"}), "cursors: a: expected bytes, found str"),
    (
        lambda c: c.commit([], {"a": bytes(CURSOR_BYTES_MAX + 1)}),
        f"cursors: a: expected at most {CURSOR_BYTES_MAX} bytes, found {CURSOR_BYTES_MAX + 1}",
    ),
]


def test_mistakes_of_a_commit_are_refused_before_anything_is_written(backend: Backend) -> None:
    context = backend.start()
    for call, text in MISTAKES:
        with pytest.raises(ValueError, match="expected") as raised:
            call(context)
        assert str(raised.value).startswith(text)
    assert backend.submitted() == []
    assert context.cursor("a") is None


def test_a_transport_without_cursors_may_not_commit() -> None:
    backend = InMemory(cursors=False)
    context = backend.start()
    for call in (lambda: context.cursor("a"), lambda: context.commit([], {"a": b""})):
        with pytest.raises(ValueError, match="expected a transport that declares them"):
            call()
    backend.close()


class Unsure:
    """A producer of which one commit ends without an answer, before or after it took effect."""

    def __init__(self, producer: Producer, *, took_effect: bool) -> None:
        self._producer, self._took_effect = producer, took_effect

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def __len__(self) -> int:
        return len(self._producer)

    def commit_transaction(self, timeout_s: float) -> None:
        if self._took_effect:
            self._producer.commit_transaction(timeout_s)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))


@pytest.mark.parametrize("took_effect", [False, True])
def test_a_commit_without_an_answer_takes_effect_once(kafka_backend: OnKafka, took_effect: bool) -> None:
    context: Any = kafka_backend.start()
    context.commit([block(context, 1)], {"polkadot": b"1"})
    cursors: Cursors = context._cursors
    assert cursors._writer is not None
    cursors._writer.producer = Unsure(cursors._writer.producer, took_effect=took_effect)  # type: ignore[assignment]
    context.commit([block(context, 2)], {"polkadot": b"2"})
    context.commit([block(context, 3)], {"polkadot": b"3"})
    assert kafka_backend.submitted() == [block(context, number) for number in (1, 2, 3)]
    assert kafka_backend.start().cursor("polkadot") == b"3"


def test_a_former_process_that_does_not_know_it_yet_is_fenced_off(kafka_backend: OnKafka) -> None:
    context: Any = kafka_backend.start()
    context.commit([block(context, 1)], {"polkadot": b"1"})
    successor = Cursors(kafka_backend.kafka, kafka_backend.prefix, "t", lambda: None)
    successor.commit([block(context, 2)], {"polkadot": b"2"})
    with pytest.raises(LeaseLost):
        context.commit([block(context, 2)], {"polkadot": b"2"})
    assert kafka_backend.submitted() == [block(context, number) for number in (1, 2)]


def test_added_partitions_bring_no_earlier_cursor_back(kafka_backend: OnKafka) -> None:
    """Whichever partition is read last, it holds an old cursor under one of two names."""
    topic = kafka_backend.prefix + CURSORS
    add_partitions(kafka_backend.kafka, topic)
    producer = Producer(producer_config(kafka_backend.kafka))
    for name, newest in (("a", 0), ("b", 2)):
        for partition, number in ((2 - newest, 4), (newest, 5)):
            value = number.to_bytes(NUMBER_BYTES, "big") + b"%d" % number
            producer.produce(topic, value, f"t/{name}".encode(), partition=partition)
    assert producer.flush(60) == 0
    cursors = Cursors(kafka_backend.kafka, kafka_backend.prefix, "t", lambda: None)
    assert (cursors.get("a"), cursors.get("b")) == (b"5", b"5")
    cursors.commit([], {"a": b"6"})
    again = Cursors(kafka_backend.kafka, kafka_backend.prefix, "t", lambda: None)
    assert (again.get("a"), again.get("b")) == (b"6", b"5")
