# SPDX-License-Identifier: Apache-2.0
"""Writes a transport's enqueued records to Kafka in the background."""

from __future__ import annotations

from collections import deque
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from validator.errors import UserError
from validator.kafka.refusals import line_of, why
from validator.kafka.settings import ENDLESS, producer_config
from validator.plugin.enqueued import CLOSED, Enqueued, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from validator.kafka.settings import KafkaTable
    from validator.plugin.enqueued import Done

POLL_S: Final = 0.1
"""Seconds after which the queue's thread notices that it has to end."""

PURGE_S_MAX: Final = 10.0
"""Seconds that librdkafka has to report the records that it gives up; it takes milliseconds."""

_GIVEN_UP: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)


class RecordQueue:
    """An idempotent producer whose records wait without a timeout, and a thread that calls ``done`` for each of them.

    Raises `UserError` if the client does not accept the configuration.
    """

    def __init__(self, kafka: KafkaTable, prefix: str) -> None:
        self._kafka, self._prefix = kafka, prefix
        self._waiting = Enqueued()
        self._refused: deque[tuple[int, str]] = deque()
        """Records that the producer did not take at all, for the thread to report."""
        self._failure: str | None = None
        self._wait_s = 0.0
        self._ending = Event()
        config = producer_config(kafka, ENDLESS)
        self._bootstrap = config["bootstrap.servers"]
        try:
            self._producer = Producer(config)
        except KafkaException as error:
            raise UserError(f"[kafka]: the client does not accept it: {line_of(error.args[0])}") from error
        self._thread = Thread(target=self._run, name="enqueued records", daemon=True)
        self._thread.start()

    def put(self, topic: str, key: bytes, value: bytes, done: Done, headers: Mapping[str, bytes]) -> bool:
        """Take a record, or return False if the queue is full. Raises as `check` does."""
        self.check()
        number = self._waiting.add(size_of(key, value, headers), done)
        if number is None:
            return False
        try:
            self._producer.produce(
                self._prefix + topic,
                value,
                key,
                headers=list(headers.items()),
                on_delivery=partial(self._report, number),
            )
        except BufferError:  # the user's table allows librdkafka less than our limits
            self._waiting.withdraw(number)
            return False
        except KafkaException as error:
            self._refused.append((number, self._reason(topic, error.args[0])))
        return True

    @property
    def has_failed(self) -> bool:
        """Whether `check` raises."""
        return self._failure is not None or self._waiting.has_failed

    def check(self) -> None:
        """Raise ``RuntimeError`` if a ``done`` has raised, and `UserError` if the producer cannot continue or the queue is closed."""
        self._waiting.check()
        if self._failure is not None:
            raise UserError(self._failure)

    def check_done(self) -> None:
        """Raise ``RuntimeError`` if a ``done`` has raised."""
        self._waiting.check()

    def close(self, wait_s: float) -> None:
        """Wait up to ``wait_s`` for the records, report what is left, and end the thread."""
        self._wait_s = wait_s
        self._failure = self._failure or "records cannot be enqueued any more: the transport has ended"
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._serve(self._producer.poll, POLL_S)
            self._report_refused()
        if self._wait_s and self._waiting:
            self._serve(self._producer.flush, self._wait_s)
        self._producer.purge()
        self._serve(self._producer.flush, PURGE_S_MAX)
        self._report_refused()
        self._waiting.settle_all(CLOSED)

    def _serve(self, call: Callable[[float], int], seconds: float) -> None:
        """Let librdkafka report, for at most ``seconds``. It raises once if the producer cannot continue."""
        try:
            call(seconds)
        except KafkaException as error:
            reason = why(error.args[0], self._kafka, f"Write on topics {self._prefix}*")
            self._failure = self._failure or f"records cannot be enqueued at {self._bootstrap}: {reason}"

    def _report_refused(self) -> None:
        while self._refused:
            self._waiting.settle(*self._refused.popleft())

    def _report(self, number: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._waiting.settle(number, None)
        elif error.code() in _GIVEN_UP:
            self._waiting.settle(number, CLOSED)
        else:
            self._waiting.settle(number, self._reason(message.topic().removeprefix(self._prefix), error))

    def _reason(self, topic: str, error: KafkaError) -> str:
        reason = why(error, self._kafka, f"Write on topic {self._prefix}{topic}")
        return f"{topic}: {self._bootstrap} did not accept the record: {reason}"
