# SPDX-License-Identifier: Apache-2.0
"""Reads how much of a lane's output Kafka holds: the lane's marker, its consumer group's offsets and its dead letters.

The marker is read from its topic. It is written in the same transaction as the output that it marks, so both commit or neither does. The
offsets of the lane's consumer group are for people, and for a quick check whether another writer has written the lane. They are not the
truth: after a Kafka 4.3 broker is killed during a commit, they can stay in doubt indefinitely (KAFKA-20734).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, TopicPartition

from validator.kafka.client import consumer_config
from validator.kafka.reader import TopicReader
from validator.kafka.retry import committed_of, passes
from validator.lanes.marker import Marker
from validator.topics import DEAD_LETTERS, MARKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from validator.kafka.client import KafkaTable
    from validator.kafka.reader import TopicRecord

Ends: TypeAlias = "Mapping[tuple[str, int], int]"
"""By full topic and partition, the offset after a last record."""

CALL_S_MAX: Final = 60.0
"""Seconds that one call to Kafka may take."""

PROGRESS_S_MAX: Final = 60.0
"""Seconds that reading a topic may make no progress."""

MARKER_PARTITION: Final = 0

IN_DOUBT_S_MAX: Final = 2.0
"""Seconds that an offset commit may stay in doubt before it is ignored."""


class LastWrite(NamedTuple):
    """The last committed write, if any: the number of the block after the last one emitted, 0 without one, and who wrote it."""

    offset: int | None
    job: str | None
    writer: str | None = None
    """Differs between any two writers, those of one job too."""

    @property
    def metadata(self) -> str:
        """What Kafka keeps with the offset."""
        return f"{self.job} {self.writer}"

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> LastWrite:
        """Return the write that an offset and its metadata stand for."""
        job, _, writer = (metadata or "").partition(" ")
        return cls(offset, job or None, writer or None)


def group_of(prefix: str, lane: str) -> str:
    """Return the consumer group whose offsets show a lane's progress."""
    return f"{prefix}lane.{lane}"


def read_marker(kafka: KafkaTable, prefix: str, lane: str, progress_s: float = PROGRESS_S_MAX) -> Marker:
    """Return a lane's marker, an empty one after a record without a value. Raises `UserError`, also if the record is not a marker."""
    last = {record.partition: record.value for record in _committed(kafka, prefix, MARKERS, lane, progress_s)}
    return Marker.merged(last.values())


def marked_keys(kafka: KafkaTable, prefix: str, progress_s: float = PROGRESS_S_MAX) -> list[str]:
    """Return every key that has a marker: the lanes and the keys of jobs of which Kafka holds output. Raises `UserError`."""
    with TopicReader(kafka, prefix, [MARKERS], patience_s=CALL_S_MAX) as reader:
        return sorted({(record.key or b"").decode() for record in reader.read_past_transactions(progress_s)})


def dead_letter_ends(kafka: KafkaTable, prefix: str) -> Ends:
    """Return where the dead letters of all lanes end, those of open transactions included. Raises `UserError`."""
    with TopicReader(kafka, prefix, [DEAD_LETTERS], patience_s=CALL_S_MAX) as reader:
        return reader.ends()


def read_dead_letters(
    kafka: KafkaTable, prefix: str, lane: str, progress_s: float = PROGRESS_S_MAX, ends: Ends | None = None
) -> set[bytes]:
    """Return the sources (`codec.encode.source_header`) of a lane's dead letters, up to ``ends`` if given. Raises `UserError`."""
    records = _committed(kafka, prefix, DEAD_LETTERS, lane, progress_s, ends)
    return {dict(record.headers)["source"] for record in records}


def _committed(
    kafka: KafkaTable, prefix: str, topic: str, lane: str, progress_s: float, ends: Ends | None = None
) -> Iterator[TopicRecord]:
    """Yield a lane's committed records up to the topic's current end, or earlier ``ends``, those without a value too."""
    key = lane.encode()
    with TopicReader(kafka, prefix, [topic], nulls=True, patience_s=CALL_S_MAX) as reader:
        yield from (record for record in reader.read_past_transactions(progress_s, ends) if record.key == key)


class LaneOffsets:
    """The consumer group of a lane, in whose offsets each write leaves its block, its job and its writer.

    librdkafka's admin client is not used here: it crashes the process if the group's coordinator is still loading.
    """

    def __init__(self, kafka: KafkaTable, prefix: str, lane: str) -> None:
        """Raises `confluent_kafka.KafkaException`."""
        settings = consumer_config(kafka, group_id=group_of(prefix, lane))
        self._place = TopicPartition(prefix + MARKERS, MARKER_PARTITION)
        self._settled = Consumer(settings)
        self._any = Consumer(settings | {"isolation.level": "read_uncommitted"})

    def group_metadata(self) -> Any:
        """Return the metadata with which a producer commits offsets in a transaction."""
        return self._settled.consumer_group_metadata()

    def last_write(self) -> LastWrite:
        """Return the last write. Raises `confluent_kafka.KafkaException`.

        Waits at most `IN_DOUBT_S_MAX` for a commit in progress; after that the previous commit counts.
        """
        # right after a broker starts, the group's coordinator must first be found and load its state
        (found,) = committed_of(self._any, [self._place], patience_s=CALL_S_MAX)
        try:
            (found,) = committed_of(self._settled, [self._place], patience_s=IN_DOUBT_S_MAX)
        except KafkaException as error:
            if not passes(error.args[0]):
                raise
        return LastWrite(None, None) if found.offset == OFFSET_INVALID else LastWrite.of(found.offset, found.metadata)
