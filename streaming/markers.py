# SPDX-License-Identifier: Apache-2.0
"""Up to where Kafka holds a lane's output: its marker, the offsets of its consumer group, its dead letters.

The marker is read from its topic, where it was written in the transaction of what it marks: whatever becomes of a transaction becomes of
both. The offsets of the lane's consumer group are for people, and for a quick look whether somebody else has gone on: they have been seen
to stay in doubt for ever when a broker of Kafka 4.3 was killed in the middle of a commit (KAFKA-20734).
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from validator.kafka.client import admin_config, consumer_config
from validator.kafka.consume import available
from validator.kafka.retry import answer, partitions_of, passes
from validator.lanes.marker import Marker
from validator.service.topic_reader import RECORDS_PER_POLL
from validator.topics import DEAD_LETTERS, MARKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from validator.kafka.client import KafkaTable

CALL_S_MAX: Final = 60.0
"""Seconds for one call to Kafka, and without any progress in reading a topic."""

MARKER_PARTITION: Final = 0

POLL_S: Final = 0.2
"""Seconds that one look at a topic waits for records."""

IN_DOUBT_S_MAX: Final = 2.0
"""Seconds that a commit of offsets may be in doubt before it is left out of account."""


class LastWrite(NamedTuple):
    """The offset that stands for the last block whose output is committed, and the job that committed it; None if there is none."""

    offset: int | None
    job: str | None


def group_of(prefix: str, lane: str) -> str:
    """Return the consumer group whose offsets show how far a lane has come."""
    return f"{prefix}lane.{lane}"


def read_marker(kafka: KafkaTable, prefix: str, lane: str) -> Marker:
    """Return a lane's marker. Raises `confluent_kafka.KafkaException`, `UserError` where its record is none of ours."""
    last = None
    for message in _committed(kafka, prefix + MARKERS):
        if message.key() == lane.encode():
            last = message.value()
    return Marker() if last is None else Marker.decode(last)


def read_dead_letters(kafka: KafkaTable, prefix: str, lane: str) -> set[bytes]:
    """Return the sources (`codec.encode.source_header`) of a lane's dead letters. Raises `confluent_kafka.KafkaException`."""
    return {
        dict(message.headers() or ())["source"]
        for message in _committed(kafka, prefix + DEAD_LETTERS)
        if message.key() == lane.encode()
    }


def last_write(admin: AdminClient, prefix: str, lane: str) -> LastWrite:
    """Return what the lane's consumer group says. Raises `confluent_kafka.KafkaException`.

    A commit that is being finished is waited for, at most `IN_DOUBT_S_MAX`; then the one before it counts.
    """
    place = TopicPartition(prefix + MARKERS, MARKER_PARTITION)
    asked = ConsumerGroupTopicPartitions(group_of(prefix, lane), [place])

    def ask(left_s: float, *, stable: bool) -> TopicPartition:
        (future,) = admin.list_consumer_group_offsets([asked], require_stable=stable, request_timeout=left_s).values()
        (told,) = future.result().topic_partitions
        if told.error is not None and told.error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
            raise KafkaException(told.error)
        return told

    # right after a broker's start the group's coordinator has to be found and to load what it knows
    stable, unstable = partial(ask, stable=True), partial(ask, stable=False)
    deadline = time.monotonic() + IN_DOUBT_S_MAX
    while (told := answer(stable, patience_s=CALL_S_MAX)).offset == OFFSET_INVALID:
        told = answer(unstable, patience_s=CALL_S_MAX)
        if told.offset == OFFSET_INVALID or time.monotonic() > deadline:
            break
        time.sleep(IN_DOUBT_S_MAX / 20)
    return LastWrite(None, None) if told.offset == OFFSET_INVALID else LastWrite(told.offset, told.metadata or None)


def _committed(kafka: KafkaTable, topic: str) -> Iterator[Message]:
    """Yield what is committed on a topic up to its present end.

    What transactions hold open there is waited for: they end, or the call gives up after `CALL_S_MAX`.
    """
    consumer = Consumer(consumer_config(kafka, group_id="validator-reader", partition_eof=True))
    try:
        partitions = partitions_of(consumer, topic, patience_s=CALL_S_MAX)
        places = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions]
        behind = {place.partition: end for place, end in _ends(kafka, places).items() if end}
        consumer.assign(places)
        deadline = time.monotonic() + CALL_S_MAX
        while behind:
            for message in available(consumer, RECORDS_PER_POLL, POLL_S):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is None:
                    deadline = time.monotonic() + CALL_S_MAX
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    if offset >= behind.get(partition, 0):  # else a transaction is open there
                        behind.pop(partition, None)
                elif not passes(error):
                    raise KafkaException(error)
            if behind and time.monotonic() > deadline:
                raise KafkaException(
                    KafkaError(
                        KafkaError._TIMED_OUT,
                        f"{topic} cannot be read to its end: a transaction may be open there",
                    )
                )
    finally:
        consumer.close()


def _ends(kafka: KafkaTable, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offsets after the last records, committed or not."""
    asked = {TopicPartition(place.topic, place.partition): OffsetSpec.latest() for place in places}
    admin = AdminClient(admin_config(kafka))

    def ask(left_s: float) -> dict[TopicPartition, int]:
        futures = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=left_s)
        return {place: future.result().offset for place, future in futures.items()}

    return answer(ask, patience_s=CALL_S_MAX)
