# SPDX-License-Identifier: Apache-2.0
"""Two threads that read output topics: one the live records for all feeds, one slices for feeds that catch up.

A thread hands its results to the event loop, which may be behind by `BATCHES_MAX` batches. An exception is handed over, too, and ends the
gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import TYPE_CHECKING, Any

from validator_channel.application import WATCH_TOPICS
from validator_channel.gateway.records import FeedRecord, Key, read_feed_record
from validator_channel.limits import BATCH_RECORDS_MAX, BATCHES_MAX, POLL_S, SLICE_RECORDS_MAX, SLICE_S_MAX

if TYPE_CHECKING:
    from validator.plugin.api import OutputReader, OutputRecord, TransportContext

Report = Callable[[str], None]
"""Called with one line about a record that cannot be read."""


@dataclass(frozen=True, slots=True)
class SliceRequest:
    """What a feed needs next: records for some keys from the offsets by partition on, as many and as many bytes as it has room for."""

    topic: str
    next: Mapping[int, int]
    keys: frozenset[Key]
    records_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Slice:
    """What was read for a feed, and the next offsets; ``error`` says that the position does not exist."""

    records: tuple[FeedRecord, ...] = ()
    next: Mapping[int, int] = ()  # type: ignore[assignment]
    error: str | None = None


class _Worker:
    """A thread that may call functions in the event loop until it is stopped."""

    def __init__(
        self, kafka: TransportContext, name: str, fail: Callable[[BaseException], None], report: Report
    ) -> None:
        self._kafka = kafka
        self._loop = asyncio.get_running_loop()
        self._fail = fail
        self._report = report
        self._stopping = Event()
        self._take: Callable[[Any], None]
        self._thread = Thread(target=self._guarded, name=name, daemon=True)

    def start(self, take: Callable[[Any], None]) -> None:
        """Begin to read; ``take`` gets the results in the event loop."""
        self._take = take
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - raised in the gateway's own thread
            self._call(self._fail, error)

    def _run(self) -> None:
        raise NotImplementedError

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop has ended; nobody needs the result any more
            self._loop.call_soon_threadsafe(function, *arguments)


class LiveReader(_Worker):
    """Reads all topics that can be watched from their present ends on; the function given to `start` gets the records in batches."""

    def __init__(self, kafka: TransportContext, fail: Callable[[BaseException], None], report: Report) -> None:
        super().__init__(kafka, "live records", fail, report)
        self._reader = kafka.reader(tuple(WATCH_TOPICS))
        self.ends = self._reader.ends()
        """By topic and partition, the offset of the first record that is read."""
        self._reader.seek(self.ends)
        self._room = Semaphore(BATCHES_MAX)

    def _run(self) -> None:
        while not self._stopping.is_set():
            batch = []
            record = self._reader.receive(POLL_S)
            while record is not None:
                read = read_record(self._kafka, record, self._report)
                if read is not None:
                    batch.append(read)
                record = self._reader.receive(0) if len(batch) < BATCH_RECORDS_MAX else None
            if batch:
                self._hand_over(batch)
        self._reader.close()

    def _hand_over(self, batch: list[FeedRecord]) -> None:
        while not self._room.acquire(timeout=POLL_S):
            if self._stopping.is_set():
                return
        self._call(self._taken, batch)

    def _taken(self, batch: list[FeedRecord]) -> None:
        self._room.release()
        self._take(batch)


class SliceReader(_Worker):
    """Reads one slice after the other, each for one feed; the function given to `start` gets them. It keeps one reader for each topic."""

    def __init__(self, kafka: TransportContext, fail: Callable[[BaseException], None], report: Report) -> None:
        super().__init__(kafka, "records of feeds that catch up", fail, report)
        self._requests: SimpleQueue[SliceRequest | None] = SimpleQueue()
        self._readers: dict[str, OutputReader] = {}

    def read(self, request: SliceRequest) -> None:
        """Read a slice in the background."""
        self._requests.put(request)

    def stop(self) -> None:
        super().stop()
        self._requests.put(None)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None and not self._stopping.is_set():
            if request.topic not in self._readers:
                self._readers[request.topic] = self._kafka.reader((request.topic,))
            self._call(self._take, self._slice(self._readers[request.topic], request))
        for reader in self._readers.values():
            reader.close()

    def _slice(self, reader: OutputReader, request: SliceRequest) -> Slice:
        wanted = {(request.topic, partition): offset for partition, offset in request.next.items()}
        if any(reader.positions().get(place) != offset for place, offset in wanted.items()) or not wanted:
            try:
                reader.seek(wanted)
            except ValueError as error:
                return Slice(error=str(error))
        records: list[FeedRecord] = []
        size = 0
        deadline = time.monotonic() + SLICE_S_MAX
        for _ in range(SLICE_RECORDS_MAX):
            if len(records) >= request.records_max or size >= request.bytes_max or time.monotonic() > deadline:
                break
            found = reader.receive(POLL_S)
            if found is None:
                if self._stopping.is_set() or is_at_end(reader):
                    break
                continue
            record = read_record(self._kafka, found, self._report)
            if record is not None and record.is_for(request.keys):
                records.append(record)
                size += len(record.payload)
        return Slice(tuple(records), {partition: offset for (_, partition), offset in reader.positions().items()})


def is_at_end(reader: OutputReader) -> bool:
    """Return whether a reader has received every committed record."""
    positions = reader.positions()
    return all(positions[place] >= end for place, end in reader.ends().items())


def read_record(kafka: TransportContext, record: OutputRecord, report: Report) -> FeedRecord | None:
    """Return a record of Kafka as feeds have it; None, with a line, for one that is not a record of its topic."""
    try:
        decoded = kafka.decode(record.topic, record.value)
        return read_feed_record(record.topic, record.partition, record.offset, decoded, kafka.decode)
    except (ValueError, KeyError) as error:
        report(f"{record.topic}[{record.partition}]@{record.offset} is not sent to anybody: {error}")
        return None
