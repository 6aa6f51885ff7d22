# SPDX-License-Identifier: Apache-2.0
"""Records on their way to subscriptions: those that keep up share what one reader reads; the others read Kafka again, in turns.

`Recent` holds the last records of all topics that anybody wants. A subscription whose position it reaches takes from there; one whose
position it has passed gets a slice from `Behind`, until `Recent` reaches it again. So nothing is lost, and memory is bounded, whatever
receivers do.
"""

from __future__ import annotations

import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from threading import Event, Lock, Thread
from typing import Any, Final, Literal, NamedTuple

from validator.plugin.api import OutputReader, OutputRecord, RecordFilter, TransportContext
from validator_webhook.limits import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    BEHIND_READERS_MAX,
    POLL_S,
    RECENT_BYTES_MAX,
    RECENT_RECORDS_MAX,
    SCAN_RECORDS_MAX,
    SCAN_S_MAX,
)
from validator_webhook.records import Partition

LOG: Final = logging.getLogger("validator_webhook")


class Entry(NamedTuple):
    """A record, and the body that every subscription gets of it."""

    place: Partition
    offset: int
    record: Mapping[str, Any]
    body: bytes


class Batch(NamedTuple):
    """Records for one subscription, in order, and where it continues after them; ``removed`` are offsets that retention has removed."""

    entries: list[Entry]
    next: dict[Partition, int]
    removed: int = 0


def entry_of(context: TransportContext, record: OutputRecord) -> Entry | None:
    """Return a record as subscriptions get it, None for a foreign one, which is said."""
    place = record.topic, record.partition
    try:
        shown = context.decode(record.topic, record.value)
    except ValueError as error:
        LOG.warning("%s/%d/%d is left out: %s", *place, record.offset, str(error)[:300])
        return None
    body = {"topic": record.topic, "partition": record.partition, "offset": record.offset, "record": shown}
    return Entry(place, record.offset, shown, json.dumps(body).encode())


class Recent:
    """The last records of some topics, read by one thread from ``starts`` or the topics' ends on.

    ``changed`` is called after each record; ``failed`` gets what ends the thread.
    """

    def __init__(
        self,
        context: TransportContext,
        topics: Iterable[str],
        starts: Mapping[Partition, int],
        changed: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._context, self._changed, self._failed = context, changed, failed
        self.topics = frozenset(topics)
        self._reader: OutputReader = context.reader(sorted(self.topics))
        ends = self._reader.ends()
        self._reader.seek({place: min(starts.get(place, end), end) for place, end in ends.items()})
        self._lock = Lock()
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._first = 0
        """The number of the first entry, counted from the start of this reader."""
        self._begins = self._reader.positions()
        """By partition, the offset from which on every record is here."""
        self._next = dict(self._begins)
        self._end = Event()
        self._thread = Thread(target=self._run, name="recent records", daemon=True)
        self._thread.start()

    @property
    def next(self) -> dict[Partition, int]:
        """By partition, the offset after what was read."""
        with self._lock:
            return dict(self._next)

    def take(
        self, topics: frozenset[str], start: Mapping[Partition, int], seen: int | None, wanted: RecordFilter
    ) -> tuple[Batch, int] | None:
        """Return what comes after a position, and the number up to which entries have been looked at; None if it is no longer here.

        ``seen`` is the number that the last call returned, None for a position from elsewhere.
        """
        if not topics <= self.topics:
            return None
        with self._lock:
            if seen is None or seen < self._first:
                if any(start.get(place, 0) < begin for place, begin in self._begins.items() if place[0] in topics):
                    return None
                seen = self._first
            following = dict(start)
            found: list[Entry] = []
            size = 0
            for entry in islice(self._entries, seen - self._first, None):
                if len(found) >= BATCH_RECORDS_MAX or size >= BATCH_BYTES_MAX:
                    return Batch(found, following), seen
                seen += 1
                if entry.place[0] not in topics or entry.offset < following.get(entry.place, 0):
                    continue
                following[entry.place] = entry.offset + 1
                if wanted.takes(entry.record):
                    found.append(entry)
                    size += len(entry.body)
            for place, offset in self._next.items():
                if place[0] in topics:
                    following[place] = max(offset, following.get(place, 0))
            return Batch(found, following), seen

    def stop(self) -> None:
        """End the thread, and close the reader."""
        self._end.set()
        self._thread.join()
        self._reader.close()

    def _run(self) -> None:
        try:
            while not self._end.is_set() and not self._context.stopping:
                record = self._reader.receive(POLL_S)
                entry = None if record is None else entry_of(self._context, record)
                with self._lock:
                    moved = self._reader.positions() != self._next
                    self._next = self._reader.positions()
                    if entry is not None:
                        self._append(entry)
                if moved:
                    self._changed()
        except BaseException as error:  # noqa: BLE001 - the transport ends with it
            self._failed(error)

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._bytes += len(entry.body)
        while len(self._entries) > RECENT_RECORDS_MAX or (self._bytes > RECENT_BYTES_MAX and len(self._entries) > 1):
            gone = self._entries.popleft()
            self._bytes -= len(gone.body)
            self._begins[gone.place] = gone.offset + 1
            self._first += 1


class Behind:
    """Reads Kafka again for one subscription at a time. One thread calls it."""

    def __init__(self, context: TransportContext, clock: Callable[[], float] = time.monotonic) -> None:
        self._context, self._clock = context, clock
        self._readers: OrderedDict[frozenset[str], OutputReader] = OrderedDict()

    def read(self, topics: frozenset[str], start: Mapping[Partition, int], wanted: RecordFilter) -> Batch:
        """Return a slice of what comes after a position. Raises what the context does."""
        reader = self._reader(topics)
        ends = reader.ends()
        reader.seek({place: min(start.get(place, 0), end) for place, end in ends.items()})
        began = reader.positions()
        removed = sum(max(0, began[place] - start[place]) for place in began if place in start)
        found: list[Entry] = []
        size = 0
        deadline = self._clock() + SCAN_S_MAX
        for _ in range(SCAN_RECORDS_MAX):
            if len(found) >= BATCH_RECORDS_MAX or size >= BATCH_BYTES_MAX or self._clock() >= deadline:
                break
            record = reader.receive(POLL_S)
            if record is None:
                if all(reader.positions()[place] >= end for place, end in ends.items()):
                    break
                continue
            entry = entry_of(self._context, record)
            if entry is not None and wanted.takes(entry.record):
                found.append(entry)
                size += len(entry.body)
        return Batch(found, reader.positions(), removed)

    def starts(self, topics: frozenset[str], start: Literal["now", "beginning"]) -> dict[Partition, int]:
        """Return the first positions in topics. Raises ``ValueError`` for a topic that is not an output, and what the context does."""
        reader = self._reader(topics)
        if start == "now":
            return reader.ends()
        reader.seek({})
        return reader.positions()

    def _reader(self, topics: frozenset[str]) -> OutputReader:
        reader = self._readers.pop(topics, None) or self._context.reader(sorted(topics))
        self._readers[topics] = reader
        if len(self._readers) > BEHIND_READERS_MAX:
            self._readers.popitem(last=False)[1].close()
        return reader
