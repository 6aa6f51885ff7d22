# SPDX-License-Identifier: Apache-2.0
"""Reads committed records of output topics for a transport, from chosen positions."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from validator.errors import Unavailable, UserError
from validator.kafka.client import admin_config, consumer_config
from validator.kafka.refusals import why
from validator.kafka.registry import plain_values
from validator.kafka.retry import ends_reading, is_missing, offsets_of, partitions_of, spans_of, user_error
from validator.plugin.api import OutputRecord
from validator.plugin.limits import COMMIT_S_MAX, POLL_S_MAX, READER_FETCH_KIB
from validator.plugin.submission import check_timeout, start_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from validator.kafka.client import KafkaTable
    from validator.plugin.submission import Place

_READER: Final = {"queued.max.messages.kbytes": READER_FETCH_KIB}


class KafkaOutputReader:
    """A reader of the partitions that the topics have now (`validator.plugin.api.OutputReader`).

    ``check`` raises if nothing may be delivered any more; ``stopping`` returns whether to stop waiting. Every method raises `UserError` if
    a topic does not exist or Kafka does not answer within `COMMIT_S_MAX`.
    """

    def __init__(
        self,
        kafka: KafkaTable,
        prefix: str,
        topics: Sequence[str],
        check: Callable[[], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._prefix, self._check, self._stopping = prefix, check, stopping
        self._kafka, self._topics = kafka, [prefix + topic for topic in topics]
        self._plain = plain_values(kafka)
        self._lock = Lock()
        """Held while the consumer is in use, so that it can be closed from another thread."""
        self.is_closed = False
        """Whether `close` was called."""
        config = consumer_config(kafka, group_id="validator-reader", partition_eof=True, lasting=True)
        self._bootstrap = config["bootstrap.servers"]
        self._consumer = Consumer(config | _READER)
        self._admin: AdminClient | None = None
        """Asks for ends that have nothing to do with transactions: what this consumer asks for is where open ones begin."""
        self._positions: dict[Place, int] = {}
        try:
            with self._translated():
                numbers = {
                    topic: partitions_of(self._consumer, prefix + topic, patience_s=COMMIT_S_MAX) for topic in topics
                }
                self._places = tuple((topic, number) for topic in topics for number in numbers[topic])
                self._assign({place: first for place, (first, _) in self._spans().items()})
        except BaseException:
            self.close()
            raise

    def seek(self, offsets: Mapping[Place, int]) -> None:
        """Continue from the given offsets, and from the first record of the partitions that are not named. Raises ``ValueError``."""
        with self._open():
            spans = self._spans()
            begins = {place: first for place, (first, _) in spans.items()}
            self._assign(start_offsets(offsets, begins, {place: end for place, (_, end) in spans.items()}))

    def receive(self, timeout_s: float) -> OutputRecord | None:
        """Return the next committed record, or None at the timeout or a request to stop. Raises ``ValueError``."""
        check_timeout(timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            with self._open():
                message = self._consumer.poll(min(left, POLL_S_MAX))
                record = None if message is None else self._taken(message)
            self._check()
            if record is not None:
                return record
            if message is None and (left <= POLL_S_MAX or self._stopping()):
                return None

    def positions(self) -> dict[Place, int]:
        """Return each partition's next offset."""
        return dict(self._positions)

    def ends(self, *, committed: bool = True) -> dict[Place, int]:
        """Return the offset after each partition's last committed record, or after the last one of all."""
        with self._open():
            if committed:
                return {place: end for place, (_, end) in self._spans().items()}
            if self._admin is None:
                self._admin = AdminClient(admin_config(self._kafka))
            asked = {
                TopicPartition(self._prefix + topic, number): OffsetSpec.latest() for topic, number in self._places
            }
            ends = offsets_of(self._admin, asked, patience_s=COMMIT_S_MAX)
            return {(place.topic.removeprefix(self._prefix), place.partition): end for place, end in ends.items()}

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                self._consumer.close()

    def _taken(self, message: Any) -> OutputRecord | None:
        """Move the position past a message and return it, if it is a record with a value."""
        error = message.error()
        topic = message.topic()
        place = "" if topic is None else topic.removeprefix(self._prefix), message.partition()
        if error is None:
            value = message.value()
            try:
                value = None if value is None else self._plain(value)
            except UserError:  # the schema registry is away, or refuses the login: the same record comes again
                self._assign(self._positions)
                raise
            self._positions[place] = message.offset() + 1
            if value is not None:  # skip the tombstones of compacted topics
                return OutputRecord(*place, message.offset(), message.key() or b"", value)
        elif error.code() == KafkaError._PARTITION_EOF:
            # the markers of transactions take offsets, but are no messages
            self._positions[place] = max(self._positions[place], message.offset())
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._reset(place)
        elif ends_reading(error):
            raise self._error(error)
        return None

    def _reset(self, place: Place) -> None:
        """Continue from the first record that is left in a partition whose position retention has overtaken: `positions` shows it."""
        first, end = self._spans()[place]
        position = self._positions[place]
        if position > end:
            raise Unavailable(
                f"topic {self._prefix}{place[0]}, partition {place[1]}, ends at {end}, before the next offset to read, {position}: "
                "it was replaced, or has lost records"
            )
        self._assign(self._positions | {place: max(position, first)})

    def _assign(self, positions: dict[Place, int]) -> None:
        self._positions = positions
        self._consumer.assign(
            [TopicPartition(self._prefix + topic, number, offset) for (topic, number), offset in positions.items()]
        )

    def _spans(self) -> dict[Place, tuple[int, int]]:
        """Return each partition's first offset and the end of its committed records."""
        places = [(self._prefix + topic, number) for topic, number in self._places]
        found = spans_of(self._consumer, places, patience_s=COMMIT_S_MAX)
        return {(topic.removeprefix(self._prefix), number): span for (topic, number), span in found.items()}

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock, self._translated():
            if self.is_closed:
                raise ValueError("reader: expected an open one, found a closed one")
            self._check()
            yield

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._error(error.args[0]) from error

    def _error(self, error: KafkaError) -> UserError:
        hint = ": create it with `validator topics create`" if is_missing(error) else ""
        reason = why(error, self._kafka, f"Read on topic {', '.join(self._topics)}")
        return user_error(error, f"output records cannot be read at {self._bootstrap}: {reason}{hint}")
