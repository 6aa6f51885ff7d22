# SPDX-License-Identifier: Apache-2.0
"""One page of a topic's records, read from Kafka when it is asked for, with a bound on what is read.

Each partition has an order; a lane's records are in one partition. From the oldest on, records come as Kafka returns them. From the
newest on, windows before the last place are read, each longer than the one before, and records of several partitions are merged by time.
In both orders the next page begins behind the last record that was looked at in each partition: none is lost or repeated.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from validator.client.streams import BEGINNING, POLL_S, PositionsForeign
from validator.errors import Unavailable, UserError
from validator.serve.cursors import Cursor
from validator.serve.limits import (
    FURTHER_OFFSETS,
    PAGE_BYTES_MAX,
    SCAN_S,
    SCANNED_BYTES_MAX,
    SCANNED_MAX,
    UNREADABLE_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.client.backend import Reading
    from validator.kafka.reader import TopicRecord
    from validator.record_filter import RecordFilter
    from validator.serve.readers import Readers

LOOKS_LONGER: Final = 8
"""How many times as long the next window is."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which records of a topic are wanted, and their JSON; ``decode`` raises `UserError` for a record that cannot be read."""

    topic: str
    decode: Callable[[bytes], dict[str, Any]]
    filter: RecordFilter
    hash: bytes = b""

    def of(self, record: TopicRecord) -> dict[str, Any] | None:
        """Return a record in JSON, None if it is not wanted. Raises `UserError`."""
        if self.hash and self.hash not in record.value:
            return None
        found = self.decode(record.value)
        return found if self.filter.takes(found) else None


class Bounds(NamedTuple):
    """How many records a page may have, and how many records and bytes may be read for it."""

    limit: int
    scanned_max: int = SCANNED_MAX
    scanned_bytes_max: int = SCANNED_BYTES_MAX


@dataclass(slots=True)
class Page:
    """Records in JSON text; ``unreadable`` names those that cannot be read, ``follow`` the place where what arrives later begins."""

    bounds: Bounds
    items: list[str] = field(default_factory=list)
    unreadable: list[dict[str, Any]] = field(default_factory=list)
    scanned: int = 0
    scanned_bytes: int = 0
    at_end: bool = False
    next: Cursor | None = None
    follow: Cursor | None = None
    deadline_s: float = field(default_factory=lambda: time.monotonic() + SCAN_S)
    _size: int = 0

    def add(self, record: TopicRecord, found: dict[str, Any] | UserError | None) -> None:
        """Add what became of a record."""
        if isinstance(found, UserError):
            self.unreadable.append({"partition": record.partition, "offset": record.offset, "why": str(found)})
        elif found is not None:
            self.items.append(text_of(found))
            self._size += len(self.items[-1])

    def count(self, record: TopicRecord) -> None:
        """Count a record that was read."""
        self.scanned += 1
        self.scanned_bytes += len(record.value)

    @property
    def is_full(self) -> bool:
        """Whether nothing more fits."""
        return (
            len(self.items) >= self.bounds.limit
            or self._size >= PAGE_BYTES_MAX
            or len(self.unreadable) >= UNREADABLE_MAX
        )

    @property
    def is_tired(self) -> bool:
        """Whether no more may be read."""
        return (
            self.scanned >= self.bounds.scanned_max
            or self.scanned_bytes >= self.bounds.scanned_bytes_max
            or time.monotonic() > self.deadline_s
        )

    def json(self) -> str:
        """Return the page as a JSON text."""
        cursors = {
            name: None if cursor is None else str(cursor)
            for name, cursor in (("next", self.next), ("follow", self.follow))
        }
        more = {**cursors, "at_end": self.at_end, "scanned": self.scanned, "unreadable": self.unreadable}
        return f'{{"items":[{",".join(self.items)}],{json.dumps(more)[1:]}'


def text_of(record: Mapping[str, Any]) -> str:
    """Return a record as one line of JSON."""
    return json.dumps(record, separators=(",", ":"))


def tried(wanted: Wanted, record: TopicRecord) -> dict[str, Any] | UserError | None:
    """Return a record in JSON, None if it is not wanted, or why it cannot be read."""
    try:
        return wanted.of(record)
    except UserError as error:
        return error


def page_from_oldest(readers: Readers, wanted: Wanted, cursor: Cursor | None, bounds: Bounds) -> Page:
    """Return the records behind a cursor, or the first ones. Raises `UserError` as the client does."""
    page = Page(bounds)
    with readers.lent(wanted.topic, BEGINNING if cursor is None else cursor.begin) as reading:
        offsets = reading.positions()
        while not page.at_end and not page.is_tired and not page.is_full:
            polled = reading.poll(POLL_S)
            for record in polled:
                offsets[record.partition] = record.offset + 1
                page.count(record)
                page.add(record, tried(wanted, record))
                if page.is_full:
                    break
            else:
                offsets.update(reading.positions())  # an end may lie behind the last record
                page.at_end = reading.at_end
        page.next = Cursor(wanted.topic, reading.topic_id, "oldest", offsets)
    return page


def page_from_newest(readers: Readers, wanted: Wanted, cursor: Cursor | None, bounds: Bounds) -> Page:
    """Return the records before a cursor, or the last ones, newest first. Raises `UserError` as the client does."""
    page = Page(bounds)
    with readers.lent(wanted.topic, BEGINNING) as reading:
        spans = reading.spans
        ends = {partition: end for partition, (_, end) in spans.items()}
        if cursor is None:
            page.follow = Cursor(wanted.topic, reading.topic_id, "oldest", dict(ends))
        else:
            _check(cursor, reading)
            ends = {
                partition: cursor.offsets.get(partition, 0) for partition in spans
            }  # an added partition has newer records only
        further = bounds.limit + FURTHER_OFFSETS
        while not page.is_full and not page.is_tired:
            left = [partition for partition, end in ends.items() if end > spans[partition][0]]
            if not left:
                break
            length = max(1, min(further, (bounds.scanned_max - page.scanned) // len(left)))
            window = {each: (max(spans[each][0], ends[each] - length), ends[each]) for each in left}
            found = _read_window(reading, window, page)
            if found is None:
                further = max(1, length // 2)
                continue
            _take(page, wanted, window, found, ends)
            further = LOOKS_LONGER * length
        page.at_end = all(end <= spans[partition][0] for partition, end in ends.items())
        page.next = None if page.at_end else Cursor(wanted.topic, reading.topic_id, "newest", ends)
    return page


def _check(cursor: Cursor, reading: Reading) -> None:
    if None not in (cursor.topic_id, reading.topic_id) and cursor.topic_id != reading.topic_id:
        raise PositionsForeign("cursor: the topic was deleted and made again, or the cursor belongs to another cluster")
    for partition, offset in cursor.offsets.items():
        if partition not in reading.spans or offset > reading.spans[partition][1]:
            raise PositionsForeign(f"cursor: the topic has no offset {offset} of partition {partition}")


def _read_window(
    reading: Reading, window: Mapping[int, tuple[int, int]], page: Page
) -> dict[int, list[TopicRecord]] | None:
    """Return the records of a window by partition; None if they are too large together, and a shorter one is to be read."""
    reading.go_to({each: window[each][0] if each in window else end for each, (_, end) in reading.spans.items()})
    found: dict[int, list[TopicRecord]] = {partition: [] for partition in window}
    size, is_shortest = 0, all(end - first <= 1 for first, end in window.values())
    while any(reading.positions()[partition] < end for partition, (_, end) in window.items()):
        for record in reading.poll(POLL_S):
            if record.partition in window and record.offset < window[record.partition][1]:
                found[record.partition].append(record)
                size += len(record.value)
        if size > page.bounds.scanned_bytes_max and not is_shortest:
            return None
        if time.monotonic() > page.deadline_s:
            raise Unavailable(f"Kafka did not return the records of {page.bounds.limit} places within {SCAN_S:.0f} s")
    return found


def _take(
    page: Page,
    wanted: Wanted,
    window: Mapping[int, tuple[int, int]],
    found: Mapping[int, list[TopicRecord]],
    ends: dict[int, int],
) -> None:
    """Take a window's records, newest first, until the page is full, and move the ends to where the next page continues."""

    def backwards(records: list[TopicRecord]) -> Iterator[TopicRecord]:
        return reversed(records)

    newest_first = merge(*map(backwards, found.values()), key=lambda record: -record.timestamp_ms)
    for record in newest_first:
        if page.is_full:
            return
        page.count(record)
        page.add(record, tried(wanted, record))
        ends[record.partition] = record.offset
    for partition, (first, _) in window.items():
        ends[partition] = first
