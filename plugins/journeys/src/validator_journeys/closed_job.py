# SPDX-License-Identifier: Apache-2.0
"""Closed journeys as a job of the product (`validator.plugin.job_api`), with the table `[jobs.journeys-closed]` of the configuration.

Its input is the output of the job `journeys`. Topics are divided into *buckets* by their first bytes. The blocks of all records go to every
bucket, since they are its clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar, Final

from validator.plugin.job_api import (
    DAY_MS,
    Job,
    JobContext,
    JobItem,
    JobRecord,
    KeyedState,
    Measure,
    OutputRecord,
    PluginMetric,
    RecordUnreadable,
    Topic,
    TopicForm,
    UserError,
)
from validator_journeys import closed_records, records
from validator_journeys.closing import Close, Journey, Journeys, Leg
from validator_journeys.options import numbers
from validator_journeys.plain import decode_plain, encode_plain

JOB: Final = "journeys-closed"
BUCKETS_MAX: Final = 64
"""Buckets of the job, each with a producer."""

DIGEST_BYTES: Final = 8

METRICS: Final = (
    PluginMetric("journeys", "Journeys that are open, or were closed lately."),
    PluginMetric("closed_total", "Records of closed journeys, by how they were closed.", ("status",)),
)


def open_job(context: JobContext) -> Job:
    """Return the job. Raises `UserError`."""
    ranges = {"buckets": (1, BUCKETS_MAX), "retention_days": (1, 3650), "timeout_blocks": (1, 1_000_000)}
    return ClosedJob(**numbers(context, dict(context.options), ranges))


@dataclass(frozen=True, slots=True)
class ClosedJob:
    """The job. ``buckets`` can never change once the job has run. A journey that waits for more than ``timeout_blocks`` is timed out."""

    name: ClassVar = JOB
    metrics: ClassVar = METRICS
    causes: ClassVar[tuple[str, ...]] = ()
    effects: ClassVar = (records.JOURNEYS,)
    remembered: ClassVar = (closed_records.JOURNEYS_CLOSED,)
    """What was said of each journey."""

    buckets: int = 1
    retention_days: int = 30
    timeout_blocks: int = 600

    @property
    def topics(self) -> tuple[Topic, ...]:
        """Its input, which the job `journeys` makes too, and its output."""
        retention_ms = self.retention_days * DAY_MS
        purpose = "journeys of messages with one XCM topic, once they are closed"
        return (
            records.journeys_topic(self.retention_days),
            Topic(closed_records.JOURNEYS_CLOSED, None, "compact,delete", retention_ms, purpose),
        )

    @property
    def forms(self) -> dict[str, TopicForm]:
        """The forms of these topics."""
        return records.forms() | closed_records.forms()

    @property
    def keys(self) -> tuple[str, ...]:
        """One key for each bucket, which says how many there are."""
        return tuple(f"{JOB}/{number}-{self.buckets}" for number in range(self.buckets))

    def check_written(self, keys: Iterable[str]) -> None:
        """Refuse another number of buckets than that of the output."""
        for key in keys:
            name, _, rest = key.partition("/")
            before = rest.rpartition("-")[2]
            if name == JOB and before != str(self.buckets):
                raise UserError(
                    f"[jobs.{JOB}] buckets: expected {before}, with which Kafka holds output, found {self.buckets}; "
                    "it can only change with another [topics] prefix"
                )

    def condense(self, record: JobRecord) -> Iterable[tuple[str, bytes]]:
        """Return a message as legs of its journeys, and the block of its last step for the other buckets."""
        try:
            found = records.decode(records.JOURNEYS, record.value)
        except RecordUnreadable:
            return
        keys = self.keys
        if not found["legs"]:
            return
        there = set()
        for topic, leg in closed_records.legs_of(found):
            key = keys[int(topic[:8], 16) % len(keys)]
            there.add(key)
            yield key, encode_plain((topic, tuple(leg)))
        clock = encode_plain((found["lane"], found["legs"][-1]["block"]))
        for key in keys:
            if key not in there:
                yield key, clock

    def restore(self, key: str, pages: Mapping[bytes, bytes]) -> KeyedState:  # noqa: ARG002 - a topic is in one bucket
        """Return a bucket's state."""
        return Bucket(Journeys(self.timeout_blocks), pages)

    def recover(
        self, key: str, found: Iterable[JobRecord], consumed: Mapping[tuple[str, int], int]
    ) -> dict[bytes, bytes]:
        """Return what was said of each journey, and up to where inputs led to it."""
        at = self.keys.index(key)
        below = sorted((partition, end) for (topic, partition), end in consumed.items() if topic == records.JOURNEYS)
        said = {
            _SAID + record.key: digest(record.value)
            for record in found
            if record.key is not None and int(record.key[:8], 16) % self.buckets == at
        }
        return {_SILENT: encode_plain(below), **said}


_CLOCK, _JOURNEY, _SAID, _SILENT = b"c", b"j", b"e", b"s"


def digest(value: bytes) -> bytes:
    """Return what is kept of a record that was emitted."""
    return blake2b(value, digest_size=DIGEST_BYTES).digest()


class Bucket:
    """The state of a bucket (`validator.plugin.job_api.KeyedState`).

    One that was recovered is silent until it has taken again what led to the output on Kafka.
    """

    def __init__(self, journeys: Journeys, pages: Mapping[bytes, bytes]) -> None:
        self.journeys = journeys
        self._heights = {page[1:].decode(): decode_plain(pages[page]) for page in pages if page[:1] == _CLOCK}
        journeys.heights |= self._heights
        self._stored = {page for page in pages if page[:1] == _JOURNEY}
        for page in sorted(self._stored):
            journeys.keep(page[1:].decode(), _decode(pages[page]))
        self._said = {page[1:].decode(): pages[page] for page in pages if page[:1] == _SAID}
        self._silent_below = dict(decode_plain(pages[_SILENT])) if _SILENT in pages else {}
        self._gone: list[bytes] = []
        self._closed: Counter[Close] = Counter()

    def process(self, items: Sequence[JobItem]) -> list[OutputRecord]:
        """Take a batch of messages, and return the journeys that are closed, or closed with a further leg."""
        for _, partition, offset, content in items:
            name, told = decode_plain(content)
            if isinstance(told, tuple):
                self.journeys.add(name, Leg(*told))
            else:
                self.journeys.advance(name, told)
            if offset + 1 >= self._silent_below.get(partition, 1 << 63):
                del self._silent_below[partition]
                self._gone.append(_SILENT)
        if self._silent_below:
            return []
        if self._gone:
            self.journeys.look_at_all()
        return list(self._emit())

    def _emit(self) -> Iterator[OutputRecord]:
        for found in self.journeys.close():
            record = closed_records.encode_closed(found)
            said, journey = digest(record.value), self.journeys.journeys[found.topic]
            before = journey.emitted or self._said.get(found.topic, b"")
            if self._said.pop(found.topic, None) is not None:
                self._gone.append(_SAID + found.topic.encode())
            if journey.emitted != said:
                journey.emitted = said
                self.journeys.touched.add(found.topic)
            if before != said:
                self._closed[found.close] += 1
                yield record

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the pages that have changed."""
        for lane, height in sorted(self.journeys.heights.items()):
            if self._heights.get(lane) != height:
                self._heights[lane] = height
                yield _CLOCK + lane.encode(), encode_plain(height)
        for topic in sorted(self.journeys.touched):
            page, journey = _JOURNEY + topic.encode(), self.journeys.journeys.get(topic)
            if journey is not None:
                self._stored.add(page)
                yield page, _encode(journey)
            elif page in self._stored:
                self._stored.remove(page)
                yield page, None
        self.journeys.touched.clear()
        for page in dict.fromkeys(self._gone):
            if page == _SILENT and self._silent_below:
                yield page, encode_plain(sorted(self._silent_below.items()))
            else:
                yield page, None
        self._gone.clear()

    def measures(self) -> Iterator[Measure]:
        """Yield the bucket's figures."""
        yield Measure("journeys", len(self.journeys.journeys))
        for close, count in sorted(self._closed.items()):
            yield Measure("closed_total", count, (str(close),))


def _encode(journey: Journey) -> bytes:
    legs = tuple(map(tuple, journey.in_order()))
    return encode_plain((legs, tuple(sorted(journey.left_out)), journey.emitted))


def _decode(page: bytes) -> Journey:
    legs, left_out, emitted = decode_plain(page)
    return Journey({leg[0]: Leg(*leg) for leg in legs}, set(left_out), emitted)
