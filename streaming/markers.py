# SPDX-License-Identifier: Apache-2.0
"""Reads how much of a lane's output Kafka holds: the lane's marker, its consumer group's offsets and its dead letters.

The marker is read from its topic. It is written in the same transaction as the output that it marks, so both commit or neither does. The
offsets of the lane's consumer group are for people, and for a quick check whether another writer has written the lane. They are not the
truth: after a Kafka 4.3 broker is killed during a commit, they can stay in doubt indefinitely (KAFKA-20734).
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
"""Seconds that one call to Kafka may take."""

PROGRESS_S_MAX: Final = 60.0
"""Seconds that reading a topic may make no progress."""

MARKER_PARTITION: Final = 0

IN_DOUBT_S_MAX: Final = 2.0
"""Seconds that an offset commit may stay in doubt before it is ignored."""


class LastWrite(NamedTuple):
    """The last committed write: the number of the block after the last one emitted, and the job that wrote it. None if there is none."""

    offset: int | None
    job: str | None


def group_of(prefix: str, lane: str) -> str:
    """Return the consumer group whose offsets show a lane's progress."""
    return f"{prefix}lane.{lane}"


def read_marker(kafka: KafkaTable, prefix: str, lane: str) -> Marker:
    """Return a lane's marker, an empty one after a record without a value. Raises `UserError`, also if the record is not a marker."""
    last = b""
    for record in _committed(kafka, prefix, MARKERS, lane):
        last = record.value
    return Marker.decode(last) if last else Marker()


def read_dead_letters(kafka: KafkaTable, prefix: str, lane: str) -> set[bytes]:
    """Return the sources (`codec.encode.source_header`) of a lane's dead letters. Raises `UserError`."""
    return {dict(record.headers)["source"] for record in _committed(kafka, prefix, DEAD_LETTERS, lane)}


def _committed(kafka: KafkaTable, prefix: str, topic: str, lane: str) -> Iterator[TopicRecord]:
    """Yield a lane's committed records up to the topic's current end, those without a value too."""
    key = lane.encode()
    with TopicReader(kafka, prefix, [topic], nulls=True, patience_s=CALL_S_MAX) as reader:
        yield from (record for record in reader.read_past_transactions(PROGRESS_S_MAX) if record.key == key)


def last_write(admin: AdminClient, prefix: str, lane: str) -> LastWrite:
    """Return the last write according to the lane's consumer group. Raises `confluent_kafka.KafkaException`.

    Waits at most `IN_DOUBT_S_MAX` for a commit in progress; after that the previous commit counts.
    """
    place = TopicPartition(prefix + MARKERS, MARKER_PARTITION)
    asked = ConsumerGroupTopicPartitions(group_of(prefix, lane), [place])

    def ask(left_s: float, *, stable: bool) -> TopicPartition:
        (future,) = admin.list_consumer_group_offsets([asked], require_stable=stable, request_timeout=left_s).values()
        (found,) = future.result().topic_partitions
        if found.error is not None and found.error.code() != KafkaError.UNSTABLE_OFFSET_COMMIT:
            raise KafkaException(found.error)
        return found

    # right after a broker starts, the group's coordinator must first be found and load its state
    stable, unstable = partial(ask, stable=True), partial(ask, stable=False)
    deadline = time.monotonic() + IN_DOUBT_S_MAX
    while (found := answer(stable, patience_s=CALL_S_MAX)).offset == OFFSET_INVALID:
        found = answer(unstable, patience_s=CALL_S_MAX)
        if found.offset == OFFSET_INVALID or time.monotonic() > deadline:
            break
        time.sleep(IN_DOUBT_S_MAX / 20)
    return LastWrite(None, None) if found.offset == OFFSET_INVALID else LastWrite(found.offset, found.metadata or None)
