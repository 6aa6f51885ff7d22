# SPDX-License-Identifier: Apache-2.0
"""How much of a lane's output Kafka holds: the lane's marker, its last receipt, its dead letters, and its consumer group's offsets.

The marker is read from its topic. It is written in the same transaction as the output that it marks, so both commit or neither does. The
offsets of the lane's consumer group are committed after it, at some time or not at all. So a group that is ahead of the marker says that
Kafka does not show the last marker; one that is behind, or that does not answer, says nothing.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaException, TopicPartition

from validator.codec.json_form import to_json
from validator.kafka.calls import ABANDONED_S_MAX, ASK_GROUP, CALL_S_MAX, GROUP_S_MAX, PROGRESS_S_MAX, within
from validator.kafka.reader import TopicReader
from validator.kafka.retry import committed_of
from validator.kafka.settings import LASTING_COMMITS, OF_LANE, UNCOMMITTED, consumer_config, producer_config
from validator.kafka.transaction import FencedWriter
from validator.lanes.marker import Marker
from validator.topics import DEAD_LETTERS, INPUT_TOPICS, MARKERS, RECEIPTS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from validator.core.types import BlockNumber
    from validator.kafka.reader import TopicRecord
    from validator.kafka.settings import KafkaTable
    from validator.lanes.marker import Consumed


Ends: TypeAlias = "Mapping[tuple[str, int], int]"
"""By full topic and partition, the offset after a last record."""

MARKER_PARTITION: Final = 0
"""The partition of `markers` at which a lane's group has the number of the block after the last one emitted, wherever the marker is."""

RECEIPTS_BACK: Final = 1_000
"""Offsets before the end of `receipts` in which a lane's last one is looked for first; each further look is `RECEIPTS_FURTHER` times as
long."""
RECEIPTS_FURTHER: Final = 30

JOB_HEADER: Final = "job"
WRITER_HEADER: Final = "writer"
DOUBTFUL_HEADER: Final = "doubtful"


class Written(NamedTuple):
    """A lane's marker as Kafka has it, and who wrote the last record of it.

    ``place`` is that record's partition and offset, None if there is none; ``job`` and ``writer`` are empty if it does not name them.
    ``is_reset`` says that a person has removed the marker, so that there may be output without one.
    """

    marker: Marker
    job: str = ""
    writer: str = ""
    place: tuple[int, int] | None = None
    is_reset: bool = False

    @classmethod
    def of(cls, records: Collection[TopicRecord], *, is_removed: bool) -> Written:
        """Return what the last records of a lane say, one of each partition. Raises `UserError` if one is not a marker."""
        newest = max(records, key=lambda record: record.timestamp_ms)
        headers = dict(newest.headers)
        job, writer = (headers.get(name, b"").decode("utf-8", "replace") for name in (JOB_HEADER, WRITER_HEADER))
        marker = Marker.merged(record.value for record in records)
        is_reset = marker == Marker() and is_removed
        marker = replace(marker, doubtful=DOUBTFUL_HEADER in headers)
        return cls(marker, job, writer, (newest.partition, newest.offset), is_reset)


NOT_WRITTEN: Final = Written(Marker())
"""Kafka has no marker."""


def group_of(prefix: str, lane: str) -> str:
    """Return the consumer group whose offsets show a lane's progress."""
    return f"{prefix}lane.{lane}"


def written_of(
    kafka: KafkaTable,
    prefix: str,
    keys: Collection[str] | None = None,
    *,
    progress_s: float | None = None,
    lane: str | None = None,
) -> dict[str, Written]:
    """Return the markers of some keys, or of all: of lanes, and of keys of jobs. Those that Kafka has no record of are left out.

    ``progress_s`` is of `TopicReader.read_to_end`, ``lane`` of `TopicReader`. Raises `UserError`, also if a record is not a marker.
    """
    wanted = None if keys is None else {key.encode() for key in keys}
    last: dict[bytes, dict[int, TopicRecord]] = {}
    removed: set[bytes] = set()
    patience_s = None if progress_s is None else CALL_S_MAX
    with TopicReader(kafka, prefix, [MARKERS], nulls=True, patience_s=patience_s, lane=lane) as reader:
        for record in reader.read_to_end(progress_s):
            key = record.key or b""
            if wanted is None or key in wanted:
                last.setdefault(key, {})[record.partition] = record
                if not record.value:
                    removed.add(key)
    return {key.decode(): Written.of(each.values(), is_removed=key in removed) for key, each in last.items()}


def read_markers(kafka: KafkaTable, prefix: str, *, progress_s: float | None = None) -> dict[str, Marker]:
    """Return the marker of each lane and key that has one; the empty name has the dead letters that belong to no configured lane.

    ``progress_s`` is of `TopicReader.read_to_end`. Raises `UserError`.
    """
    found = written_of(kafka, prefix, progress_s=progress_s)
    return {key: written.marker for key, written in found.items() if not written.is_reset}


class ReceiptsGone(Exception):
    """The receipts of a lane, if there were any, are no longer in Kafka."""


class LaneOnKafka:
    """What Kafka has of one lane, or of a key of a job, for whoever writes it: calls are watched. Methods raise `UserError`."""

    def __init__(self, kafka: KafkaTable, prefix: str, lane: str) -> None:
        self.lane, self.prefix = lane, prefix
        self._kafka = kafka

    def writer(self) -> FencedWriter:
        """Open a writer, which fences off earlier ones. Raises `WriteFailed`."""
        lane = self.lane
        config = producer_config(self._kafka, OF_LANE, transactional_id=group_of(self.prefix, lane))
        return FencedWriter(config, bound_s=CALL_S_MAX, whose=f" of lane {lane}", lane=lane).open()

    def written(self, progress_s: float | None = PROGRESS_S_MAX) -> Written:
        """Return the marker and who wrote it. Waits for transactions that are open, without ``progress_s`` for none."""
        found = written_of(self._kafka, self.prefix, [self.lane], progress_s=progress_s, lane=self.lane)
        return found.get(self.lane, NOT_WRITTEN)

    def dead_letter_ends(self) -> Ends:
        """Return where the dead letters of all lanes end, those of open transactions included."""
        with self._reader(DEAD_LETTERS) as reader:
            return reader.ends()

    def input_ends(self) -> Ends:
        with self._reader(*INPUT_TOPICS) as reader:
            return reader.ends()

    def dead_letters(self, ends: Ends | None = None) -> set[bytes]:
        """Return the sources (`codec.encode.source_header`) of the lane's dead letters, up to ``ends`` if given.

        Waits for transactions that are open, as long as one may be.
        """
        key = self.lane.encode()
        with self._reader(DEAD_LETTERS) as reader:
            records = reader.read_past_transactions(ABANDONED_S_MAX, ends)
            return {dict(record.headers)["source"] for record in records if record.key == key}

    def last_receipt(self) -> BlockNumber | None:
        """Return the block of the last committed receipt, None if there never was one.

        Reads back from the end, and waits for transactions that are open there. The lane must have no open one itself. Raises
        `ReceiptsGone`.
        """
        key, removed = self.lane.encode(), False
        with self._reader(RECEIPTS) as reader:
            ends = {partition: end for (_, partition), end in reader.ends().items()}
            firsts = {partition: first for (_, partition), (first, _) in reader.spans().items()}
            own = partition_of(key, len(ends))
            # before partitions were added the lane's receipts went to another one
            for partition in (own, *(each for each in sorted(ends) if each != own)):
                first, back = firsts[partition], RECEIPTS_BACK
                removed = removed or first > 0
                while True:
                    start = max(first, ends[partition] - back)
                    reader.restart(RECEIPTS, partition, start)
                    wanted = {(self.prefix + RECEIPTS, partition): ends[partition]}
                    found = [each for each in reader.read_past_transactions(ABANDONED_S_MAX, wanted) if each.key == key]
                    if found:
                        block: int = to_json(RECEIPTS, found[-1].value)["block"]
                        return block
                    if start == first:
                        break
                    back *= RECEIPTS_FURTHER
        if removed:
            raise ReceiptsGone
        return None

    def group_block(self) -> BlockNumber | None:
        """Return the last block that the lane's group knows, None if it knows none or does not answer within `GROUP_S_MAX`.

        librdkafka's admin client is not used: it crashes the process if the group's coordinator is still loading.
        """
        place = TopicPartition(self.prefix + MARKERS, MARKER_PARTITION)
        with within(ASK_GROUP, self.lane):
            # what an earlier version has left in an open transaction does not count, and is not waited for
            consumer = Consumer(consumer_config(self._kafka, UNCOMMITTED, group_id=group_of(self.prefix, self.lane)))
            try:
                (found,) = committed_of(consumer, [place], patience_s=GROUP_S_MAX)
            except KafkaException:
                return None
            finally:
                consumer.close()
        return found.offset - 1 if found.offset > 0 else None

    def hand_to_group(self, consumed: Consumed, block: BlockNumber | None) -> None:
        """Let the lane's group have what was committed (`GroupCommits.commit`)."""
        GROUPS.commit(self._kafka, self.prefix, self.lane, consumed, block)

    def _reader(self, *topics: str) -> TopicReader:
        return TopicReader(self._kafka, self.prefix, topics, lane=self.lane)


class GroupCommits:
    """Commits the offsets of lanes' groups in a thread, of each lane the last ones: no lane waits for a group's coordinator.

    A client that has commits on their way cannot be closed while the coordinator does not answer. So the clients stay open, and belong to
    the thread.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[KafkaTable, dict[tuple[str, int], int]]] = {}
        """By group, the offsets that are still to be committed."""
        self._is_new = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def commit(self, kafka: KafkaTable, prefix: str, lane: str, consumed: Consumed, block: BlockNumber | None) -> None:
        """Let the lane's group have what was committed at some time, if Kafka takes it; ``block`` is the last one that was emitted now."""
        group = group_of(prefix, lane)
        with self._lock:
            _, offsets = self._last.setdefault(group, (kafka, {}))
            offsets |= {place: offset for place, offset in consumed.items() if offset}
            if block is not None:
                offsets[prefix + MARKERS, MARKER_PARTITION] = block + 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="group-commits", daemon=True)
                self._thread.start()
        self._is_new.set()

    def _run(self) -> None:
        consumers: dict[str, Any] = {}
        while True:
            self._is_new.wait()
            self._is_new.clear()
            with self._lock:
                last, self._last = self._last, {}
            for group, (kafka, offsets) in last.items():
                try:
                    if group not in consumers:
                        consumers[group] = Consumer(consumer_config(kafka, LASTING_COMMITS, group_id=group))
                    places = [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
                    consumers[group].commit(offsets=places, asynchronous=False)
                except KafkaException:  # the next batch's offsets are as good
                    continue


GROUPS: Final = GroupCommits()
"""The commits of this worker."""


_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def partition_of(key: bytes, partitions: int) -> int:
    """Return a key's partition. Source: `org.apache.kafka.common.utils.Utils.murmur2`, as the default partitioner uses it."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    value = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        value = value * _M & _MASK ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15
