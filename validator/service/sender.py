# SPDX-License-Identifier: Apache-2.0
"""Sends records to topics and counts the acknowledged ones."""

from __future__ import annotations

from functools import partial
from threading import local
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException, Producer

from validator.errors import UserError
from validator.kafka.client import producer_config
from validator.kafka.retry import missing_topics, user_error

if TYPE_CHECKING:
    from validator.kafka.client import KafkaTable

FLUSH_S_MAX: Final = 60.0


class _Sent(local):
    """What a thread has sent since it last heard of a failure."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        """At most one: why the first record that Kafka did not accept failed."""


class RecordSender:
    """A producer that reports failures as `UserError`; ``delivered`` counts the acknowledged records.

    A failure is raised once, in the thread that has sent the record, by its next `send` or `flush`. Then send again everything that it has
    sent since its last `flush` that succeeded: a lane recognises by its bytes what Kafka has already. Several threads may use one sender.
    """

    def __init__(self, kafka: KafkaTable, prefix: str) -> None:
        config = producer_config(kafka)
        self._bootstrap = config["bootstrap.servers"]
        self._prefix = prefix
        self.delivered = 0
        self._sent = _Sent()
        try:
            self._producer = Producer(config)
        except KafkaException as error:
            raise UserError(f"[kafka]: the client does not accept it: {error.args[0].str()}") from error

    def check(self, topic: str) -> None:
        """Check that a topic exists. Raises `UserError`."""
        name = self._prefix + topic
        try:
            missing = missing_topics(self._producer, [name])
        except KafkaException as error:
            text = f"no Kafka answers at {self._bootstrap} ({error.args[0].str()}): check bootstrap.servers"
            raise user_error(error.args[0], text) from error
        if missing:
            raise UserError(
                f"topic {name} does not exist at {self._bootstrap}: check [topics] prefix, or create it with `validator topics create`"
            )

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Pass a record to the producer; wait if its queue is full. Raises `UserError` if an earlier record failed."""
        while True:
            self._raise_failure()
            try:
                heard = partial(self._on_delivery, self._sent.failures)
                self._producer.produce(self._prefix + topic, value, key, on_delivery=heard)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                raise UserError(f"{self._prefix}{topic}: the record cannot be sent: {error.args[0].str()}") from error
            else:
                self._producer.poll(0)
                return

    def flush(self) -> None:
        """Wait until every record is acknowledged. Raises `UserError` if one failed or `FLUSH_S_MAX` was too short."""
        left = self._producer.flush(FLUSH_S_MAX)
        self._raise_failure()
        if left:
            self._sent.failures = []  # those that are left may fail later, and are reported now
            raise UserError(f"{left} records were not acknowledged by {self._bootstrap} within {FLUSH_S_MAX:.0f} s")

    def _raise_failure(self) -> None:
        failures = self._sent.failures
        if failures:
            self._sent.failures = []  # a new list: other records of the same attempt may still fail
            raise UserError(failures[0])

    def _on_delivery(self, failures: list[str], error: Any, message: Any) -> None:
        if error is None:
            self.delivered += 1
        elif not failures:
            failures.append(f"{message.topic()}: {self._bootstrap} did not accept a record: {error.str()}")
