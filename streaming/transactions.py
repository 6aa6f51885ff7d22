# SPDX-License-Identifier: Apache-2.0
"""One lane's outputs to Kafka, each batch and its marker in one transaction.

The marker is the offsets of a consumer group of the lane's own: those of the inputs that it has taken, which any Kafka tool shows as
lag, and as the offset of a place on the `markers` topic the number of the block after the last one told, with the name of the job that
told it as that offset's metadata. They are committed inside the
transaction with the records, so that either both are there or neither. Kafka forgets the offsets of a group that has been idle for a week;
so the same transaction writes the marker as a record of that compacted topic too.

librdkafka lacks KIP-890: after a transactional call that failed or timed out nobody knows whether it took effect. So nothing is ever
retried on the same producer. It is thrown away; a new one with the same transactional.id fences it off, its `init_transactions` finishes
or aborts what was open, and the marker, read again, says which.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from validator.errors import UserError
from validator.kafka.client import admin_config, consumer_config, producer_config
from validator.lanes.marker import Marker
from validator.service.topic_reader import RECORDS_PER_POLL, TopicReader

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from validator.codec.encode import OutputRecord
    from validator.kafka.client import KafkaTable

CALL_S_MAX: Final = 60.0
"""Seconds for one transactional call."""

TRANSACTION_MS_MAX: Final = 300_000
"""Milliseconds after which the broker aborts a transaction that nobody ended: readers of committed records wait as long for a dead writer
whose lane nobody takes over."""

MARKER_TOPIC: Final = "markers"
MARKER_PARTITION: Final = 0

_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


_COORDINATOR_STARTS: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._WAIT_COORD,
)

RETRY_S: Final = 0.2
"""Seconds between two questions to a coordinator that is starting."""


class WriteFailed(Exception):
    """Kafka did not take a batch; it is done again from the marker."""


class WriterFenced(Exception):
    """Another job writes this lane now; this one must not go on."""


def group_of(prefix: str, lane: str) -> str:
    """Return the consumer group whose offsets are a lane's marker."""
    return f"{prefix}lane.{lane}"


def read_marker(kafka: KafkaTable, prefix: str, lane: str, places: Iterable[tuple[str, int]]) -> Marker:
    """Return a lane's marker, as far as the offsets of ``places`` (topic and partition of inputs) go.

    Raises `confluent_kafka.KafkaException` where Kafka does not answer, `UserError` where the topic of markers cannot be read.
    """
    consumer = Consumer(consumer_config(kafka, group_id=group_of(prefix, lane)))
    try:
        marker = _committed(consumer, prefix, places)
    finally:
        consumer.close()
    return _recorded(kafka, prefix, lane).after(marker.block, marker.consumed)


def _recorded(kafka: KafkaTable, prefix: str, lane: str) -> Marker:
    """Return the last marker of a lane on the topic of markers."""
    last = None
    with TopicReader(kafka, prefix, [MARKER_TOPIC]) as reader:
        for record in reader.read_to_end():
            if record.key == lane.encode():
                last = record.value
    return Marker() if last is None else Marker.decode(last)


def _told_dead_letters(kafka: KafkaTable, topic: str, lane: str) -> set[bytes]:
    """Read a topic up to its present end, what transactions hold open included: they end, or the call gives up after `CALL_S_MAX`."""
    consumer = Consumer(consumer_config(kafka, group_id="validator-reader", partition_eof=True))
    told: set[bytes] = set()
    try:
        partitions = consumer.list_topics(topic, timeout=CALL_S_MAX).topics[topic].partitions
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        behind = {place.partition: end for place, end in _ends(kafka, places).items() if end}
        consumer.assign(places)
        deadline = time.monotonic() + CALL_S_MAX
        while behind:
            for message in consumer.consume(RECORDS_PER_POLL, RETRY_S):
                partition, offset = message.partition(), message.offset()
                error = message.error()
                if error is None:
                    deadline = time.monotonic() + CALL_S_MAX
                    if message.key() == lane.encode():
                        told.add(dict(message.headers() or ())["source"])
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif offset >= behind.get(partition, 0):  # else a transaction is open there
                    behind.pop(partition, None)
            if time.monotonic() > deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{topic} cannot be read to its end"))
    finally:
        consumer.close()
    return told


def _ends(kafka: KafkaTable, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offsets after the last records, committed or not."""
    asked = {TopicPartition(place.topic, place.partition): OffsetSpec.latest() for place in places}
    admin = AdminClient(admin_config(kafka))
    answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=CALL_S_MAX)
    return {place: answer.result().offset for place, answer in answers.items()}


def _committed(consumer: Consumer, prefix: str, places: Iterable[tuple[str, int]]) -> Marker:
    block_place = TopicPartition(prefix + MARKER_TOPIC, MARKER_PARTITION)
    asked = [block_place, *(TopicPartition(topic, partition) for topic, partition in places)]
    block, *offsets = _patiently(lambda: _answers(consumer, asked))
    return Marker(
        block=None if block.offset == OFFSET_INVALID else block.offset - 1,
        consumed={(place.topic, place.partition): place.offset for place in offsets if place.offset != OFFSET_INVALID},
    )


def _answers(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    answers: list[TopicPartition] = consumer.committed(asked, timeout=CALL_S_MAX)
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return answers


def _patiently(ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
    """Ask until the group's coordinator answers: right after a broker's start it has to be found and to load what it knows."""
    deadline = time.monotonic() + CALL_S_MAX
    while True:
        try:
            return ask()
        except KafkaException as error:
            if error.args[0].code() not in _COORDINATOR_STARTS or time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


class _Told(NamedTuple):
    """The offset that stands for the last told block of a lane, and the job that told it; None where there is none."""

    offset: int | None
    job: str | None


class LaneWriter:
    """Writes one lane's batches; after any exception it is of no more use."""

    def __init__(self, kafka: KafkaTable, prefix: str, lane: str, job: str) -> None:
        """Take over the lane for a job: whoever wrote it before is fenced off. Raises `WriteFailed`."""
        self._kafka = kafka
        self._prefix = prefix
        self._lane = lane
        self._job = job
        self._topics: dict[str, str] = {}
        self._open = False
        self._failure: KafkaError | None = None
        self._consumer = Consumer(consumer_config(kafka, group_id=group_of(prefix, lane)))
        self._marker: Marker | None = None
        self._seen = _Told(None, None)
        self._dead_letters: set[bytes] | None = None
        try:
            self._producer = Producer(
                producer_config(kafka, transactional_id=group_of(prefix, lane))
                | {"transaction.timeout.ms": TRANSACTION_MS_MAX}
            )
            self._producer.init_transactions(CALL_S_MAX)
        except KafkaException as error:
            raise self._failed(error) from error

    def is_current(self) -> bool:
        """Say whether nobody has written the lane since this writer last looked. Raises `WriteFailed`, `WriterFenced`."""
        told = self._last_told()
        if self._marker is None or told != self._seen:
            self._refuse_another_job(told)
            return False
        return True

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return what the lane has told, as far as the offsets of ``places`` go. Raises `WriteFailed`."""
        unknown = [place for place in places if self._marker is None or place not in self._marker.consumed]
        if self._marker is None or unknown:
            try:
                read = _committed(self._consumer, self._prefix, unknown)
            except KafkaException as error:
                raise self._failed(error) from error
            if self._marker is None:
                # whole: it also holds the places that nobody has asked for yet
                self._marker = self._recorded().after(read.block, {})
                self._seen = self._last_told()
            # a place without an offset is known to have none, so that it is asked for once
            self._marker = self._marker.after(None, dict.fromkeys(unknown, 0) | dict(read.consumed))
        return self._marker

    def told_dead_letters(self) -> Container[bytes]:
        """Return the sources of the lane's dead letters that are committed. Reads their topic, once. Raises `WriteFailed`."""
        if self._dead_letters is None:
            try:
                self._dead_letters = _told_dead_letters(self._kafka, f"{self._prefix}dead-letters", self._lane)
            except KafkaException as error:
                raise self._failed(error) from error
        return self._dead_letters

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Add records to the batch's transaction. Raises `WriteFailed`, `WriterFenced`."""
        try:
            self._begin()
            for topic, key, value, headers in records:
                name = self._topics.get(topic) or self._topics.setdefault(topic, self._prefix + topic)
                self._produce(name, key, value, headers)
                if topic == "dead-letters" and self._dead_letters is not None:
                    self._dead_letters.add(dict(headers)["source"])
            self._producer.poll(0)
        except KafkaException as error:
            raise self._failed(error) from error

    def commit(self, marker: Marker) -> None:
        """Commit the batch's records and the new marker, both or neither. Raises `WriteFailed`, `WriterFenced`."""
        offsets = [
            TopicPartition(topic, partition, offset)
            for (topic, partition), offset in sorted(marker.consumed.items())
            if offset
        ]
        if marker.block is not None:
            offsets.append(
                TopicPartition(self._prefix + MARKER_TOPIC, MARKER_PARTITION, marker.block + 1, metadata=self._job)
            )
        self.write([marker.encode(self._lane)])
        try:
            if offsets:
                self._producer.send_offsets_to_transaction(
                    offsets, self._consumer.consumer_group_metadata(), CALL_S_MAX
                )
            self._producer.commit_transaction(CALL_S_MAX)
        except KafkaException as error:
            raise self._failed(error) from error
        if self._failure is not None:
            raise WriteFailed(f"Kafka refused a record: {self._failure.str()}")
        self._open = False
        self._marker = marker
        self._seen = _Told(None if marker.block is None else marker.block + 1, self._job)

    def _recorded(self) -> Marker:
        try:
            return _recorded(self._kafka, self._prefix, self._lane)
        except UserError as error:
            raise WriteFailed(str(error)) from error

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True

    def _produce(self, topic: str, key: bytes, value: bytes, headers: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, headers=list(headers) or None, on_delivery=self._delivered)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - librdkafka's signature
        if error is not None and self._failure is None:
            self._failure = error

    def _last_told(self) -> _Told:
        place = TopicPartition(self._prefix + MARKER_TOPIC, MARKER_PARTITION)
        try:
            (told,) = _patiently(lambda: _answers(self._consumer, [place]))
        except KafkaException as error:
            raise self._failed(error) from error
        return _Told(None, None) if told.offset == OFFSET_INVALID else _Told(told.offset, told.metadata or None)

    def _refuse_another_job(self, told: _Told) -> None:
        if told != self._seen and told.job not in (self._job, None):
            raise WriterFenced(f"another job has taken over lane {self._lane}: {told.job}")

    def _failed(self, error: KafkaException) -> WriteFailed | WriterFenced:
        reason: KafkaError = error.args[0]
        if reason.code() not in _FENCED:
            return WriteFailed(f"Kafka did not take the batch: {reason.str()}")
        try:
            self._refuse_another_job(self._last_told())
        except WriterFenced as fenced:
            return fenced
        # by another worker of this job, or by another job that has not told anything yet: one of the two will find the other's marker
        return WriteFailed(f"lane {self._lane} has been taken over: {reason.str()}")
