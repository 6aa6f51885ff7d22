# SPDX-License-Identifier: Apache-2.0
"""Reads topics as a bystander: no group, no commits, only what was committed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from validator.errors import UserError
from validator.kafka.client import consumer_config
from validator.kafka.consume import available
from validator.kafka.retry import answer, await_broker, is_missing, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from validator.kafka.client import KafkaTable

RECORDS_PER_POLL = 1_000

_FATAL = frozenset({
    "UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_AUTHORIZATION_FAILED", "_AUTHENTICATION",
    "SASL_AUTHENTICATION_FAILED",
})  # fmt: skip
"""What does not pass; librdkafka retries the rest."""


class TopicRecord(NamedTuple):
    """A Kafka record; ``topic`` is without the prefix, ``timestamp_ms`` is Unix time."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    timestamp_ms: int


class TopicReader:
    """Reads all partitions of some topics.

    From the first record there is or, with ``tail``, from so many offsets before each partition's end. As a context manager it closes its
    connections on leaving. Every method raises `UserError` where the topics are not there or no broker answers.
    """

    def __init__(self, kafka: KafkaTable, prefix: str, topics: Sequence[str], *, tail: int | None = None) -> None:
        self._prefix = prefix
        config = consumer_config(kafka, group_id="validator-reader", partition_eof=True)
        self._bootstrap = config["bootstrap.servers"]
        with self._translated():
            self._consumer = Consumer(config)
        try:
            with self._translated():
                places = self._places(topics, tail)
                self._consumer.assign(places)
        except BaseException:
            self._consumer.close()
            raise
        self._behind = {(place.topic, place.partition) for place in places}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    @property
    def at_end(self) -> bool:
        """Whether every partition has been read to what was its end at some time."""
        return not self._behind

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        """Return what has come, waiting for it as long as ``timeout_s``."""
        records = []
        with self._translated():
            messages = available(self._consumer, RECORDS_PER_POLL, timeout_s)
        for message in messages:
            error = message.error()
            if error is None:
                topic, value = message.topic(), message.value()
                if topic is not None and value is not None:  # a compacted topic's tombstone tells nothing
                    place = message.partition(), message.offset()
                    name = topic.removeprefix(self._prefix)
                    records.append(
                        TopicRecord(name, *place, _bytes(message.key()), _bytes(value) or b"", message.timestamp()[1])
                    )
            elif error.code() == KafkaError._PARTITION_EOF:
                self._behind.discard((message.topic(), message.partition()))
            elif error.code() == KafkaError._ALL_BROKERS_DOWN:
                with self._translated():
                    await_broker(self._consumer)
            elif error.name() in _FATAL:
                raise self._user_error(error)
        return records

    def read_to_end(self) -> Iterator[TopicRecord]:
        """Yield every record up to the end of each partition."""
        while True:
            yield from self.poll(0.2)
            if self.at_end:
                return

    def spans(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return, by topic (without the prefix) and partition, the first offset that is there and the one after the last."""
        with self._translated():
            return {
                (place.topic.removeprefix(self._prefix), place.partition): self._span(place)
                for place in self._consumer.assignment()
            }

    def _span(self, place: TopicPartition) -> tuple[int, int]:
        """Ask for a partition's first offset and the one after its last."""
        first, end = answer(lambda left_s: self._consumer.get_watermark_offsets(place, left_s))
        return first, end

    def _places(self, topics: Sequence[str], tail: int | None) -> list[TopicPartition]:
        places = []
        for topic in topics:
            name = self._prefix + topic
            try:
                numbers = partitions_of(self._consumer, name)
            except KafkaException as error:
                if not is_missing(error.args[0]):
                    raise
                raise UserError(
                    f"topic {name} is not there at {self._bootstrap} ({error.args[0].str()}): check [topics] prefix, or create the topics "
                    "with `validator topics create`"
                ) from error
            places += [TopicPartition(name, number, OFFSET_BEGINNING) for number in numbers]
        if tail is not None:
            for place in places:
                low, high = self._span(place)
                place.offset = max(low, high - tail)
        return places

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._user_error(error.args[0]) from error

    def _user_error(self, error: Any) -> UserError:
        return UserError(f"no records can be read at {self._bootstrap}: {error.str()} ({error.name()})")


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
