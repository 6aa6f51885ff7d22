# SPDX-License-Identifier: Apache-2.0
"""Sends records to topics and counts the acknowledged ones."""

from __future__ import annotations

import time
from functools import partial
from threading import local
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from validator.errors import UserError
from validator.kafka.refusals import line_of, why
from validator.kafka.retry import missing_topics, user_error
from validator.kafka.settings import producer_config
from validator.kafka.topics import hidden_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from validator.kafka.settings import KafkaTable

FLUSH_S_MAX: Final = 60.0
"""Seconds in which Kafka must acknowledge everything that was sent."""
SLICE_S: Final = 0.2
"""Seconds of one call to librdkafka: Ctrl-C has no effect before it returns."""


class _Failure(NamedTuple):
    """Why a record was not sent, which one, and the bytes of its value."""

    error: KafkaError
    topic: str
    name: str
    size: int


class _Sent(local):
    """What a thread has sent since it last heard of a failure."""

    def __init__(self) -> None:
        self.failures: list[_Failure] = []
        """At most one: of the first record that Kafka did not accept, or the largest one if a batch is too large."""


class RecordSender:
    """A producer that reports failures as `UserError`; ``delivered`` counts the acknowledged records.

    A failure is raised once, in the thread that has sent the record, by its next `send` or `flush`. Then send again everything that it has
    sent since its last `flush` that succeeded: a lane recognises by its bytes what Kafka has already. If the client itself cannot continue,
    for example without the right to write to any topic, every later `send` raises that. Several threads may use one sender.
    """

    def __init__(self, kafka: KafkaTable, prefix: str) -> None:
        config = producer_config(kafka)
        self._kafka = kafka
        self._bootstrap = config["bootstrap.servers"]
        self._prefix = prefix
        self.delivered = 0
        self._sent = _Sent()
        self._topic = prefix
        """The last topic that was sent to."""
        self._fatal: KafkaError | None = None
        """Why the client cannot continue."""
        try:
            self._producer = Producer(config)
        except KafkaException as error:
            raise UserError(f"[kafka]: the client does not accept it: {line_of(error.args[0])}") from error

    def check(self, topic: str) -> None:
        """Check that a topic exists. Raises `UserError`."""
        name = self._prefix + topic
        try:
            missing = missing_topics(self._producer, [name])
            hidden = hidden_topics(self._kafka, missing)
        except KafkaException as error:
            reason = why(error.args[0], self._kafka, f"Write on topic {name}")
            text = f"no Kafka answers at {self._bootstrap} ({reason}): check bootstrap.servers"
            raise user_error(error.args[0], text) from error
        if hidden:
            raise UserError(f"{name}: {self._bootstrap}: {why(hidden[name], self._kafka, f'Write on topic {name}')}")
        if missing:
            raise UserError(
                f"topic {name} does not exist at {self._bootstrap}: check [topics] prefix, or create it with `validator topics create`"
            )

    def send(
        self, topic: str, key: bytes, value: bytes, name: str = "a record", on_sent: Callable[[], None] | None = None
    ) -> None:
        """Pass a record to the producer; wait if its queue is full. Raises `UserError` if an earlier record failed.

        ``name`` is what an error calls the record. ``on_sent`` is called in `send` or `flush` once Kafka has it.
        """
        full = self._topic = self._prefix + topic
        heard = partial(self._on_delivery, self._sent.failures, name, len(value or b""), on_sent)
        while True:
            self._raise_failure()
            try:
                self._producer.produce(full, value, key, on_delivery=heard)
            except BufferError:
                self._serve(self._producer.poll, SLICE_S)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._FATAL and self._fatal is None:
                    self._serve(self._producer.poll, SLICE_S)  # says why
                    self._sent.failures = []
                raise UserError(self._text(_Failure(error.args[0], full, name, len(value)))) from error
            else:
                self._serve(self._producer.poll, 0)
                return

    def flush(self, timeout_s: float = FLUSH_S_MAX) -> None:
        """Wait until every record is acknowledged. Raises `UserError` if one failed or ``timeout_s`` was too short."""
        deadline = time.monotonic() + timeout_s
        while (left := self._serve(self._producer.flush, SLICE_S)) and time.monotonic() < deadline:
            pass
        self._raise_failure()
        if left:
            self._sent.failures = []  # those that are left may fail later, and are reported now
            raise UserError(f"{left} records were not acknowledged by {self._bootstrap} within {timeout_s:.0f} s")

    def give_up(self) -> None:
        """Send nothing any more of what Kafka has not acknowledged; some of that may have arrived."""
        self._producer.purge()
        self._serve(self._producer.flush, SLICE_S)
        self._sent.failures = []

    def _serve(self, call: Callable[[float], int], seconds: float) -> int:
        """Let librdkafka report what has become of records, and return what ``call`` returns.

        What makes the client useless it raises out of any such call, perhaps more than once; records fail with it.
        """
        try:
            return call(seconds)
        except KafkaException as error:
            if self._fatal is None:
                self._fatal = error.args[0]
                self._sent.failures.append(_Failure(error.args[0], self._topic, "", 0))
            return len(self._producer)

    def _raise_failure(self) -> None:
        failures = self._sent.failures
        if failures:
            self._sent.failures = []  # a new list: other records of the same attempt may still fail
            raise UserError(self._text(failures[0]))

    def _on_delivery(
        self,
        failures: list[_Failure],
        name: str,
        size: int,
        on_sent: Callable[[], None] | None,
        error: Any,
        message: Any,
    ) -> None:
        if error is None:
            self.delivered += 1
            if on_sent is not None:
                on_sent()
            return
        failure = _Failure(error, message.topic(), name, size)
        if not failures or not failures[0].name:
            failures[:1] = [failure]
        elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and size > failures[0].size:
            failures[0] = failure  # Kafka refuses a whole batch

    def _text(self, failure: _Failure) -> str:
        error, topic, name, size = failure
        reason = why(self._fatal or error, self._kafka, f"Write on topic {topic}")
        of = f" of {size} bytes" if error.code() == KafkaError.MSG_SIZE_TOO_LARGE else ""
        what = f"did not accept {name}{of}" if name else "accepts no records"
        return f"{topic}: {self._bootstrap} {what}: {reason}"
