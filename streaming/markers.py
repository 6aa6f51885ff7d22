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

from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from validator.kafka.reader import TopicReader
from validator.kafka.retry import answer
from validator.lanes.marker import Marker
from validator.topics import DEAD_LETTERS, MARKERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient

    from validator.kafka.client import KafkaTable
    from validator.kafka.reader import TopicRecord

CALL_S_MAX: Final = 60.0
"""Seconds for one call to Kafka, and without any progress in reading a topic."""

MARKER_PARTITION: Final = 0

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
    """Return a lane's marker. Raises `UserError`, also if its record is none of ours."""
    last = None
    for record in _committed(kafka, prefix, MARKERS, lane):
        last = record.value
    return Marker() if last is None else Marker.decode(last)


def read_dead_letters(kafka: KafkaTable, prefix: str, lane: str) -> set[bytes]:
    """Return the sources (`codec.encode.source_header`) of a lane's dead letters. Raises `UserError`."""
    return {dict(record.headers)["source"] for record in _committed(kafka, prefix, DEAD_LETTERS, lane)}


def _committed(kafka: KafkaTable, prefix: str, topic: str, lane: str) -> Iterator[TopicRecord]:
    """Yield the records of a lane that are committed up to the topic's present end."""
    key = lane.encode()
    with TopicReader(kafka, prefix, [topic], patience_s=CALL_S_MAX) as reader:
        yield from (record for record in reader.read_past_transactions() if record.key == key)


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
