# SPDX-License-Identifier: Apache-2.0
"""A stand-in for librdkafka's producer, and a writer of one lane with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming import transactions
from streaming.transactions import TransactionalWriter
from validator.checkpoint.markers import Written
from validator.codec.encode import OutputRecord
from validator.kafka import transaction
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

    monkeypatch.setattr(transaction, "Producer", type("Made", (StandIn,), {"kafka": made}))
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
