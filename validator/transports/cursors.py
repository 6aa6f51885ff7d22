# SPDX-License-Identifier: Apache-2.0
"""Commits records of a transport together with its cursors: all or nothing.

A cursor is a record of the compacted topic `cursors`, keyed `<transport>/<name>`. Its value begins with a number that grows by one with
each commit: the highest one is the last, also after partitions were added to the topic, and a writer which does not know whether a commit
took effect can find out. It discards its producer, since librdkafka lacks KIP-890. A new one takes the transactional.id, which ends the
open transaction, and then the topic is read. The transactional.id also fences off a former active process that does not know yet that it
is one.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from validator.errors import LeaseLost, Unavailable, UserError
from validator.kafka.client import producer_config
from validator.kafka.reader import TopicReader
from validator.kafka.refusals import why
from validator.kafka.retry import answer, passes, user_error
from validator.plugin.limits import COMMIT_S_MAX
from validator.topics import CURSORS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from validator.kafka.client import KafkaTable
    from validator.plugin.api import Record

NUMBER_BYTES: Final = 8
"""Bytes of the number that a cursor's value begins with."""
TRANSACTION_MS_MAX: Final = 120_000
"""Milliseconds after which the broker aborts an abandoned transaction, if no other process of the transport ends it before."""
PAUSE_S: Final = 0.5
"""Seconds between two attempts at a commit."""
READ_S_MAX: Final = 60.0
"""Seconds that reading the topic may make no progress."""

_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class Cursors:
    """The cursors of one transport, for the process that has its lease; ``check`` raises `LeaseLost` once it does not.

    Opening it ends what a former process left open. Raises `UserError`, also if the topic is missing.
    """

    def __init__(self, kafka: KafkaTable, prefix: str, transport: str, check: Callable[[], None]) -> None:
        self._kafka, self._prefix, self._transport, self._check = kafka, prefix, transport, check
        self._lock = Lock()
        self._producer: Producer | None = None
        self._failure: KafkaError | None = None
        self._values: dict[str, bytes] = {}
        """The committed values, numbers included, by name."""
        self._number = 0
        try:
            self._open()
        except KafkaException as error:
            raise self._error(error) from error

    def get(self, name: str) -> bytes | None:
        """Return the cursor that was committed last under a name, or None."""
        with self._lock:
            value = self._values.get(name)
        return None if value is None else value[NUMBER_BYTES:]

    def commit(self, records: Sequence[Record], cursors: Mapping[str, bytes]) -> None:
        """Write records and cursors in one transaction, and return once it is committed.

        Raises `LeaseLost`; `Unavailable` if Kafka does not take it in time, and then nobody may know whether it took effect; `UserError` if
        Kafka refuses it.
        """
        with self._lock:
            number = self._number + 1
            wanted = {name: number.to_bytes(NUMBER_BYTES, "big") + value for name, value in cursors.items()}
            deadline = time.monotonic() + COMMIT_S_MAX
            while True:
                self._check()
                try:
                    if self._producer is None:
                        self._open()
                        if self._took_effect(number, wanted):
                            return
                    self._write(self._producer, records, wanted)
                except KafkaException as error:
                    self._producer = None
                    reason = self._failure or error.args[0]
                    self._failure = None
                    if error.args[0].code() in _FENCED:
                        raise LeaseLost("another process of the transport has taken over its cursors") from error
                    if not passes(reason) or time.monotonic() + PAUSE_S >= deadline:
                        raise self._error(KafkaException(reason)) from error
                    time.sleep(PAUSE_S)
                else:
                    self._number = number
                    self._values |= wanted
                    return

    def _took_effect(self, number: int, wanted: Mapping[str, bytes]) -> bool:
        """Return whether an attempt of which nobody knew is what the topic ends with. Raises `LeaseLost` if somebody else wrote since."""
        if self._number == number and all(self._values.get(name) == value for name, value in wanted.items()):
            return True
        if self._number != number - 1:
            raise LeaseLost("another process of the transport has written its cursors")
        return False

    def _open(self) -> None:
        config = producer_config(self._kafka, transactional_id=f"{self._prefix}transport.{self._transport}")
        producer = Producer(config | {"transaction.timeout.ms": TRANSACTION_MS_MAX})
        answer(producer.init_transactions, patience_s=COMMIT_S_MAX)
        values: dict[str, bytes] = {}
        start = f"{self._transport}/".encode()
        with TopicReader(self._kafka, self._prefix, [CURSORS], patience_s=COMMIT_S_MAX) as reader:
            for record in reader.read_past_transactions(READ_S_MAX):
                if record.key is not None and record.key.startswith(start) and len(record.value) >= NUMBER_BYTES:
                    name = record.key[len(start) :].decode()
                    values[name] = max(record.value, values.get(name, b""), key=_number)
        self._values = values
        self._number = max(map(_number, values.values()), default=0)
        self._producer = producer

    def _write(self, producer: Producer | None, records: Sequence[Record], wanted: Mapping[str, bytes]) -> None:
        assert producer is not None
        producer.begin_transaction()
        for topic, key, value in records:
            self._produce(producer, topic, key, value)
        for name, value in sorted(wanted.items()):
            self._produce(producer, CURSORS, f"{self._transport}/{name}".encode(), value)
        producer.flush(COMMIT_S_MAX)
        if self._failure is not None:
            raise KafkaException(self._failure)
        self._check()  # this process may have been frozen up to here; if it is frozen now, the successor's producer fences it off
        producer.commit_transaction(COMMIT_S_MAX)

    def _produce(self, producer: Producer, topic: str, key: bytes, value: bytes) -> None:
        while True:
            try:
                producer.produce(self._prefix + topic, value, key, on_delivery=self._delivered)
                return
            except BufferError:
                producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None and self._failure is None:
            self._failure = error

    def _error(self, error: KafkaException) -> UserError | Unavailable:
        reason: KafkaError = error.args[0]
        name = f"{self._prefix}transport.{self._transport}"
        text = why(reason, self._kafka, f"Write on topics {self._prefix}*", transactional_id=name)
        return user_error(reason, f"transport {self._transport}: Kafka did not commit: {text}")


def _number(value: bytes) -> int:
    """Return the number that a cursor's value begins with."""
    return int.from_bytes(value[:NUMBER_BYTES], "big")
