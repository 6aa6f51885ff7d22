# SPDX-License-Identifier: Apache-2.0
"""Reads ranges of offsets from Kafka and decodes them, in a process of a worker; also ahead, in a thread, while the lanes of the batch
before execute.

A range is complete once a record at or after its end has come, or the end of its partition: markers of transactions and aborted records use
offsets that no reader sees. So a record of an earlier position that came late would hide what lies before it. A consumer therefore never
changes its position: it reads on from where it stands, or is replaced.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streaming.chunk_files import ChunkFile, PassedOn
from streaming.options import WHOLE_BYTES_MAX
from streaming.range_source import InputsRemoved, OffsetRange, SourceSettings, TaskDecoder, TaskRanges, failure
from validator.core.limits import DEAD_LETTER_END_BYTES
from validator.kafka.calls import ASK_ENDS, CLOSE, READ_RANGE, within
from validator.kafka.reader import NOT_UNPACKED, available
from validator.kafka.retry import ends_reading, spans_of
from validator.kafka.settings import INPUTS, INPUTS_SPARING, consumer_config
from validator.kafka.transaction import KafkaGone

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

AHEAD_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of packed inputs that a worker reads ahead, in memory or in files; the rest of its ranges it reads when their task comes."""

AHEAD_NICE: Final = 10
"""Niceness of a thread that reads ahead: a tenth of the share of the lanes' workers."""

RECORDS_AT_ONCE: Final = 1_000
"""Records that are taken from the consumer at once. After each time, a task hands over what is packed."""

HELD_MAX: Final = 10_000
"""Records behind its range that are held for the next task; with more, the partition is no longer read until another consumer begins."""

HELD_BYTES_MAX: Final = 32 * 1024 * 1024
"""The same in bytes of values, all partitions together."""

SILENCE_S_MAX: Final = 45.0
"""Seconds without a record of a range that Kafka has said to have, after which the batch fails and is repeated."""

POLL_S: Final = 0.2
"""Seconds that one poll waits for records."""


class TooLarge(Exception):
    """A producer's batch cannot be unpacked: the memory of its reader does not suffice, or it takes too long."""


class Cursor:
    """A consumer that reads on from where it stands; ``at`` has the next offset of each partition that it reads.

    ``heard`` is called with the partition's end, which shows that Kafka can be reached, and then as soon as records have come.
    """

    def __init__(
        self, config: dict[str, Any], ranges: tuple[OffsetRange, ...], heard: Callable[[int | None], None] | None = None
    ) -> None:
        self.fetched = 0
        """With ``heard``, the next offset to fetch, behind aborted records, too."""
        self._consumer = consumer = Consumer(config if heard is None else config | {"stats_cb": self._note_fetched})
        self._heard = heard
        if heard is not None:
            with within(ASK_ENDS):
                spans = spans_of(consumer, [each[:2] for each in ranges], patience_s=ASK_ENDS.bound_s)
            for _, end in spans.values():
                heard(end)
        self.at = {(each.topic, each.partition): each.first for each in ranges}
        self._earlier: list[Message] = []
        self._held: list[Message] = []
        self._held_of: Counter[tuple[str, int]] = Counter()
        self._held_bytes = 0
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self.at.items()])

    def stands_at(self, ranges: tuple[OffsetRange, ...]) -> bool:
        """Return whether it stands at the beginning of each range, and reads nothing else."""
        return self.at == {(each.topic, each.partition): each.first for each in ranges}

    def begin(self) -> None:
        """Let the next poll return what an earlier task has left."""
        self._earlier, self._held = self._held, []
        self._held_of.clear()
        self._held_bytes = 0

    def poll(self) -> list[Message]:
        """Return messages that have arrived, waiting for them for a moment."""
        if self._earlier:
            messages, self._earlier = self._earlier, []
            return messages
        with within(READ_RANGE):
            messages = available(self._consumer, RECORDS_AT_ONCE, POLL_S)
        if self._heard is not None and any(each.error() is None for each in messages):
            self._heard(None)
        return messages

    def hold(self, place: tuple[str, int], message: Message) -> None:
        """Keep a message that lies behind its range."""
        if place not in self.at:
            return
        self._held.append(message)
        self._held_of[place] += 1
        self._held_bytes += len(message.value() or b"")
        if self._held_of[place] > HELD_MAX or self._held_bytes > HELD_BYTES_MAX:
            # a partition that brings more is far from the next task's ranges
            del self.at[place]
            self._consumer.incremental_unassign([TopicPartition(*place)])

    def close(self) -> None:
        with within(CLOSE):
            self._consumer.close()

    def _note_fetched(self, statistics: str) -> None:
        topics = json.loads(statistics)["topics"].values()
        self.fetched = max(
            (each["next_offset"] for topic in topics for each in topic["partitions"].values()), default=0
        )


class Reading:
    """The ranges of one task: what has been read of them, and what is left; ``file`` gets the decoder's large chunks.

    If it is ``sparing``, whatever a poll brings is in a chunk at once.
    """

    def __init__(
        self,
        ranges: tuple[OffsetRange, ...],
        cursor: Cursor,
        decoder: TaskDecoder,
        file: ChunkFile,
        *,
        sparing: bool = False,
    ) -> None:
        self._sparing = sparing
        self.ranges = ranges
        self.cursor = cursor
        self._decoder = decoder
        self._file = file
        self._bytes = 0
        """Bytes of the chunks that are in no file."""
        self._left = {(each.topic, each.partition): each.end for each in ranges}
        self._chunks: list[tuple[pa.RecordBatch, tuple[OffsetRange, ...]]] = []
        self._silent_s = 0.0
        """Seconds that polls have taken since the last record of a range: while nobody polls, nothing can be heard."""
        self._fetched = 0
        """`Cursor.fetched` at that time."""
        self._worked_s = _processor_s()
        """Seconds of processor time of this process when that came."""

    @property
    def bytes(self) -> int:
        """Bytes of all chunks so far."""
        return self._bytes + self._file.size

    @property
    def is_complete(self) -> bool:
        """Whether every range has been read."""
        return not self._left

    def take(self) -> list[tuple[pa.RecordBatch, tuple[OffsetRange, ...]]]:
        """Return the chunks that are ready, each with what is left of the ranges behind it."""
        chunks, self._chunks = self._chunks, []
        return chunks

    def step(self) -> None:
        """Read and decode what has arrived. Raises `InputsRemoved`, `TooLarge`, `KafkaGone`, `UserError`."""
        began = time.monotonic()
        messages = self.cursor.poll()
        self._silent_s += time.monotonic() - began
        at, left, add = self.cursor.at, self._left, self._decoder.add
        heard = False
        for message in messages:
            place = topic, partition = message.topic(), message.partition()
            offset: int = message.offset()
            end = left.get(place)
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._fail(error, place)
            elif end is None or offset >= end:
                if end is not None:
                    self._end(place)
                self.cursor.hold(place, message)
            elif error is None and offset >= at[place]:
                heard = True
                value = message.value()
                at[place] = offset + 1
                chunk = add(topic, partition, offset, message.key(), *_sized(value))
                if chunk is not None:
                    self._keep(chunk)
                if offset + 1 == end:
                    self._end(place)
        if heard or self.cursor.fetched > self._fetched:
            self._silent_s, self._worked_s, self._fetched = 0.0, _processor_s(), self.cursor.fetched
            if self._sparing and (chunk := self._decoder.take()) is not None:
                self._keep(chunk)
        elif left and self._silent_s > SILENCE_S_MAX:
            if _processor_s() - self._worked_s > SILENCE_S_MAX / 2:
                raise TooLarge(f"{self._places(left)} is still not unpacked after {SILENCE_S_MAX:.0f} s")
            raise KafkaGone(f"no record of {self._places(left)} came within {SILENCE_S_MAX:.0f} s")

    def _end(self, place: tuple[str, int]) -> None:
        self.cursor.at[place] = self._left.pop(place)
        if not self._left and (chunk := self._decoder.take()) is not None:
            self._keep(chunk)

    def _keep(self, chunk: pa.RecordBatch) -> None:
        at = self.cursor.at
        rest = (OffsetRange(*place, at[place], end) for place, end in sorted(self._left.items()))
        self._chunks.append((chunk, tuple(each for each in rest if each.first < each.end)))
        self._bytes += chunk.nbytes

    def end(self) -> Cursor:
        """Return the cursor of a reading that is complete; the task's successor reads on with it."""
        self._file.close()
        return self.cursor

    def close(self) -> None:
        """Give up, and close the connections."""
        self._file.close()
        self.cursor.close()

    def _fail(self, error: KafkaError, place: tuple[str, int]) -> None:
        """Raise for an error after which librdkafka does not continue."""
        places = [place] if place in self._left else list(self._left)
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise InputsRemoved(self._places(places))
        if error.code() in NOT_UNPACKED:
            raise TooLarge(f"{self._places(places)} cannot be unpacked: {error.str()} ({error.name()})")
        if ends_reading(error):
            raise failure(error)

    def _places(self, places: Iterable[tuple[str, int]]) -> str:
        at = self.cursor.at
        return ", ".join(f"{topic}[{partition}] from offset {at[topic, partition]}" for topic, partition in places)


def _sized(value: bytes | None) -> tuple[bytes | None, int | None]:
    """Return what is handed on of a record's value, of one above `WHOLE_BYTES_MAX` only the ends, and its size."""
    if value is None:
        return None, None
    size = len(value)
    return (value if size <= WHOLE_BYTES_MAX else value[:DEAD_LETTER_END_BYTES] + value[-DEAD_LETTER_END_BYTES:]), size


class Ahead(threading.Thread):
    """Reads ahead until everything is read, `AHEAD_BYTES_MAX`, or the task comes."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(name="reads ahead", daemon=True)
        self._reading: Reading | None = reading
        self._wanted = threading.Event()

    def run(self) -> None:
        reading = self._reading
        assert reading is not None
        _give_way()
        try:
            while not (self._wanted.is_set() or reading.is_complete or reading.bytes > AHEAD_BYTES_MAX):
                reading.step()
        except Exception:  # noqa: BLE001 - the task reads again, and says what is wrong
            self._reading = None
            reading.close()

    def stopped(self) -> Reading | None:
        """Stop, and return what has been read; None if that failed."""
        self._wanted.set()
        self.join()
        return self._reading


def _give_way() -> None:
    """Let this thread wait for the lanes, for which the next batch waits, where processors are short; Linux has priorities of threads."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), AHEAD_NICE)


class RangeReader:
    """Reads tasks of one start of the query; ``decoder`` begins a task. With ``heard`` it is sparing, and calls it as `Cursor` does."""

    def __init__(
        self,
        settings: SourceSettings,
        decoder: Callable[[Callable[[bytes], PassedOn]], TaskDecoder],
        heard: Callable[[int | None], None] | None = None,
    ) -> None:
        self.left: tuple[OffsetRange, ...] = ()
        """What is left of a task behind the last chunk."""
        self._settings = settings
        self._decoder = decoder
        self._heard = heard
        self._cursor: Cursor | None = None
        """Where the last task has ended, None while a cursor is in use."""
        self._ahead: Ahead | None = None

    def read(self, task: TaskRanges) -> Iterator[pa.RecordBatch]:
        """Yield a task's chunks, then begin to read ahead. Raises as `Reading.step` does, and `MemoryError`."""
        try:
            reading = self._read_ahead(task.ranges) or self._begun(task.ranges, task.batch)
            try:
                while True:
                    for chunk, self.left in reading.take():
                        yield chunk
                    if reading.is_complete:
                        break
                    reading.step()
            except BaseException:  # also if nobody wants the rest
                reading.close()
                raise
        except KafkaException as error:
            raise failure(error.args[0]) from error
        self._cursor = reading.end()
        if task.ahead:
            self._begin_ahead(task.ahead, task.batch + 1)

    def close(self) -> None:
        """Forget everything, and close the connections."""
        self._read_ahead(())
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _read_ahead(self, ranges: tuple[OffsetRange, ...]) -> Reading | None:
        """Return what has been read ahead, None if it is something else."""
        ahead, self._ahead = self._ahead, None
        reading = None if ahead is None else ahead.stopped()
        if reading is not None and reading.ranges != ranges:
            reading.close()
            reading = None
        return reading

    def _begin_ahead(self, ranges: tuple[OffsetRange, ...], batch: int) -> None:
        """Begin to read ahead. What fails is left to the task that reads these ranges."""
        with suppress(KafkaException, MemoryError):
            reading = self._begun(ranges, batch)
            try:
                ahead = Ahead(reading)
                ahead.start()
            except (RuntimeError, MemoryError):  # no thread can start
                reading.close()
            else:
                self._ahead = ahead

    def _begun(self, ranges: tuple[OffsetRange, ...], batch: int) -> Reading:
        file = ChunkFile(self._settings.folder, batch)
        decoder = self._decoder(file.put)
        cursor, self._cursor = self._cursor, None
        if cursor is not None and cursor.stands_at(ranges):
            cursor.begin()
        else:
            if cursor is not None:
                cursor.close()
            reading = INPUTS if self._heard is None else INPUTS_SPARING
            config = consumer_config(self._settings.kafka, reading, group_id="validator-inputs")
            cursor = Cursor(config, ranges, self._heard)
        return Reading(ranges, cursor, decoder, file, sparing=self._heard is not None)


def _processor_s() -> float:
    used = os.times()
    return used.user + used.system
