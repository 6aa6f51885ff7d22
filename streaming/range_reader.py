# SPDX-License-Identifier: Apache-2.0
"""Reads ranges of offsets from Kafka and decodes them, in a worker; also ahead, in a thread, while the lanes of the batch before execute.

A range is complete once a record at or after its end has come, or the end of its partition: markers of transactions and aborted records use
offsets that no reader sees. So a record of an earlier position that came late would hide what lies before it. A consumer therefore never
changes its position: it reads on from where it stands, or is replaced.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streaming.chunk_files import ChunkFile
from streaming.decode_stage import Decoder
from streaming.held_inputs import ReadFailed, no_memory
from streaming.options import WHOLE_BYTES_MAX
from streaming.range_source import DecodeSettings, InputsRemoved, SourceSettings, TaskRanges, failure
from streaming.shared_folder import attempt_with
from streaming.workers import bound_worker, check_plugins, tune_garbage_collector
from validator.core.limits import DEAD_LETTER_END_BYTES
from validator.kafka.calls import CLOSE, READ_RANGE, within
from validator.kafka.consume import NOT_UNPACKED, available
from validator.kafka.retry import ends_reading
from validator.kafka.settings import INPUTS, consumer_config
from validator.kafka.transaction import KafkaGone
from validator.lanes.definition import job_codec

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

    from streaming.ranges import OffsetRange

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


def read(settings: SourceSettings, task: TaskRanges) -> Iterator[pa.RecordBatch]:
    """Yield a task's inputs as packed runs (`streaming.options.CHUNK_SCHEMA`); after them the worker begins to read ahead.

    Raises `AlreadyFailed`, `UserError` if the worker does not reach the job's folder or its plugins differ from the driver's,
    `InputsRemoved` if Kafka no longer has the ranges, `KafkaGone` if it does not answer, `ReadFailed` if the worker's memory does not
    suffice.
    """
    with attempt_with(settings.shared):
        yield from _reader_of(settings).read(task)


def _reader_of(settings: SourceSettings) -> RangeReader:
    """Return this worker's reader for a start of the query."""
    global _reader
    tune_garbage_collector()
    if _reader is None or _reader.run != settings.run:
        if _reader is not None:
            _reader.close()
            _reader = None
        decode: DecodeSettings = pickle.loads(settings.decode)  # noqa: S301 - the driver has sent it with the task
        check_plugins(decode.definitions.values())
        bound_worker(decode.worker_memory_bytes, lanes=1)
        _reader = RangeReader(settings, decode)
    return _reader


class Cursor:
    """A consumer that reads on from where it stands; ``at`` has the next offset of each partition that it reads."""

    def __init__(self, consumer: Consumer, ranges: tuple[OffsetRange, ...]) -> None:
        self._consumer = consumer
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
            return available(self._consumer, RECORDS_AT_ONCE, POLL_S)

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
        """Close the connections."""
        with within(CLOSE):
            self._consumer.close()


class Reading:
    """The ranges of one task: what has been read of them, and what is left; ``file`` gets the decoder's large chunks."""

    def __init__(self, ranges: tuple[OffsetRange, ...], cursor: Cursor, decoder: Decoder, file: ChunkFile) -> None:
        self.ranges = ranges
        self.cursor = cursor
        self._decoder = decoder
        self._file = file
        self._bytes = 0
        """Bytes of the chunks that are in no file."""
        self._left = {(each.topic, each.partition): each.end for each in ranges}
        self._chunks: list[pa.RecordBatch] = []
        self._silent_s = 0.0
        """Seconds that polls have taken since the last record of a range: while nobody polls, nothing can be heard."""

    @property
    def bytes(self) -> int:
        """Bytes of all chunks so far."""
        return self._bytes + self._file.size

    @property
    def is_complete(self) -> bool:
        """Whether every range has been read."""
        return not self._left

    def take(self) -> list[pa.RecordBatch]:
        """Return the chunks that are ready."""
        chunks, self._chunks = self._chunks, []
        return chunks

    def step(self) -> None:
        """Read and decode what has arrived. Raises `InputsRemoved`, `ReadFailed`, `KafkaGone`, `UserError`."""
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
        if heard:
            self._silent_s = 0.0
        elif left and self._silent_s > SILENCE_S_MAX:
            raise KafkaGone(f"no record of {self._places(left)} came within {SILENCE_S_MAX:.0f} s")

    def _end(self, place: tuple[str, int]) -> None:
        self.cursor.at[place] = self._left.pop(place)
        if not self._left and (chunk := self._decoder.take()) is not None:
            self._keep(chunk)

    def _keep(self, chunk: pa.RecordBatch) -> None:
        self._chunks.append(chunk)
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
            raise ReadFailed(f"{self._places(places)} cannot be unpacked: {error.str()} ({error.name()})")
        if ends_reading(error):
            raise failure(error)

    def _places(self, places: Iterable[tuple[str, int]]) -> str:
        at = self.cursor.at
        return ", ".join(f"{topic}[{partition}] from offset {at[topic, partition]}" for topic, partition in places)


def _sized(value: bytes | None) -> tuple[bytes | None, int | None]:
    """Return what is handed on of a record's value, as `streaming.kafka_rows.with_ends` does, and its size."""
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
    """Reads the tasks of one start of the query that come to this worker; ``run`` names the start."""

    def __init__(self, settings: SourceSettings, decode: DecodeSettings) -> None:
        self.run = settings.run
        self.decode = decode
        self._settings = settings
        self._codec = job_codec(decode.definitions.values()).knowing(decode.ids)
        self._cursor: Cursor | None = None
        """Where the last task has ended, None while a cursor is in use."""
        self._ahead: Ahead | None = None

    def read(self, task: TaskRanges) -> Iterator[pa.RecordBatch]:
        """Yield a task's chunks, then begin to read ahead. Raises as `read` does."""
        try:
            reading = self._read_ahead(task.ranges) or self._begun(task.ranges, task.batch)
            try:
                while True:
                    yield from reading.take()
                    if reading.is_complete:
                        break
                    reading.step()
            except BaseException:  # also if nobody wants the rest
                reading.close()
                raise
        except MemoryError:
            raise no_memory() from None
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
        decode = self.decode
        file = ChunkFile(self._settings.folder, batch)
        decoder = Decoder(decode.kinds, decode.definitions, self._codec, decode.lane_bytes_max, file.put)
        cursor, self._cursor = self._cursor, None
        if cursor is not None and cursor.stands_at(ranges):
            cursor.begin()
        else:
            if cursor is not None:
                cursor.close()
            cursor = Cursor(
                Consumer(consumer_config(self._settings.kafka, INPUTS, group_id="validator-inputs")), ranges
            )
        return Reading(ranges, cursor, decoder, file)


_reader: RangeReader | None = None
"""This worker's reader, which outlives a task."""
