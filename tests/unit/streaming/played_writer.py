# SPDX-License-Identifier: Apache-2.0
"""A stand-in for librdkafka's producer, and a writer of one lane with it."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from streaming.transactions import TransactionalWriter
from validator.checkpoint.markers import LaneOnKafka, Written
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


class Log(LaneOnKafka):
    """A lane of which a `Kafka` says what there is."""

    def __init__(self, played: Kafka, kafka: dict[str, Any] = KAFKA, lane: str = LANE) -> None:
        super().__init__(kafka, PREFIX, lane)
        self._played = played

    def _asked(self, name: str, found: Any, *args: Any) -> Any:
        self._played.call(name, *args)
        return found

    def written(self, progress_s: float | None = 1.0) -> Written:
        return self._asked("last" if progress_s is None else "read marker", self._played.written)

    def last_receipt(self) -> int | None:
        return self._asked("receipt", self._played.receipt)

    def input_ends(self) -> Any:
        return self._asked("input ends", self._played.ends)

    def group_block(self) -> int | None:
        return self._asked("ask group", self._played.group)

    def dead_letters(self, ends: Any = None) -> set[bytes]:
        return self._asked("read letters", self._played.letters, ends)

    def dead_letter_ends(self) -> Any:
        return self._asked("ends", "the end")

    def hand_to_group(self, consumed: Any, block: int | None) -> None:
        self._asked("group", None, consumed, block)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    made = Kafka()
    monkeypatch.setattr(transaction, "Producer", type("Made", (StandIn,), {"kafka": made}))
    return made


def writer(kafka: Kafka) -> TransactionalWriter:
    made = TransactionalWriter(Log(kafka), JOB)
    kafka.calls.clear()
    return made


def produced(kafka: Kafka) -> list[tuple[Any, ...]]:
    return [tuple(rest) for name, *rest in kafka.calls if name == "produce"]
