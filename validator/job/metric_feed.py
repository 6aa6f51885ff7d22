# SPDX-License-Identifier: Apache-2.0
"""Brings the values of other processes to the endpoint: reports of workers and transports, how far blocks have arrived, and dead letters.

It reads committed records as any consumer does, in a separate thread, and nothing waits for it. A report's increments are counted once,
from the end that the topic had when the thread began: a counter begins at 0 with the process that serves it, as Prometheus expects. Until a
lane reports, its status on the topic `lanes` stands for a report: a lane may have executed blocks before `[metrics]` was configured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from validator.codec.decode import decode_record
from validator.codec.json_form import to_json
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Source
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.kafka.reader import POLL_S, Newest, TopicReader, TopicRecord
from validator.kafka.settings import SPARING
from validator.lanes.meter import OUTCOMES
from validator.lanes.parked import shortened
from validator.metrics.limits import ARRIVALS_MAX, ARRIVALS_READ_AGAIN
from validator.metrics.report import LANE, Report
from validator.topics import DEAD_LETTERS, LANES, METRICS
from validator.waiting import UNFORESEEN_S

if TYPE_CHECKING:
    from validator.codec.codec import Codec
    from validator.kafka.settings import KafkaTable
    from validator.metrics.store import MetricStore

BLOCKS: Final = "blocks"

LETTER_POLLS_MAX: Final = 100
"""Polls of the dead letters between two polls of the reports, which wait for them."""

END_S_MAX: Final = 2.0
"""Seconds that the end of the thread is waited for."""


class LaneArrivals:
    """The blocks of one lane that have arrived and are not executed, with the time of arrival in Unix seconds."""

    def __init__(self) -> None:
        self.newest: int | None = None
        self.newest_s: float | None = None
        """When the newest block's record arrived."""
        self.executed: int | None = None
        """None while nobody knows; before the first batch, the block before the lane's first one."""
        self._waiting: list[tuple[int, float]] = []

    def arrived(self, block: int, at_s: float) -> None:
        if self.newest is None or block > self.newest:
            self.newest, self.newest_s = block, at_s
        if self.executed is not None and block <= self.executed:
            return
        self._waiting.append((block, at_s))
        if len(self._waiting) > ARRIVALS_MAX:
            del self._waiting[1::2]

    def execute(self, block: int) -> None:
        """Note the last executed block, which may go back if a lane starts over."""
        self.executed = block
        self._waiting = [each for each in self._waiting if each[0] > block]

    def blocks_behind(self) -> int:
        """Return how many blocks are between the executed and the newest one."""
        if self.newest is None or self.executed is None:
            return 0
        return max(0, self.newest - self.executed)

    def oldest_s(self) -> float | None:
        """Return when the oldest block arrived that is not executed."""
        return min((at_s for _, at_s in self._waiting), default=None)


class Feed:
    """What records of `metrics` and `blocks` say, in a store.

    ``silent_after_s`` has the lanes that a transport feeds: after this many seconds without a new block, since the beginning if none has
    arrived, a lane is silent.
    """

    def __init__(
        self,
        store: MetricStore,
        lanes: Collection[str],
        codec: Codec,
        wall_clock: Callable[[], float] = time.time,
        silent_after_s: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self._store, self._codec, self._wall_clock = store, codec, wall_clock
        self._silent_after_s, self._began_s = silent_after_s, wall_clock()
        self._arrivals = {lane: LaneArrivals() for lane in lanes}
        self._counted: dict[int, int] | None = None
        self._has_read = False
        self._have_reported: set[str] = set()
        """Lanes of which a report was read."""
        self._newest = Newest()
        self._lock = threading.Lock()
        store.before_scrape.append(self.refresh)
        store.add("validator_metrics_reports_refused_total", 0)
        for reason in DeadReason:
            store.add("validator_job_dead_letters_total", 0, reason.name)

    def begin(self, ends: Mapping[int, int]) -> None:
        """Begin to count at the ends of the partitions of `metrics`, unless that was done before."""
        if self._counted is None:
            self._counted = dict(ends)

    def starts(self, first_blocks: Mapping[str, BlockNumber]) -> None:
        """Note that the lanes have executed nothing, and which block each of them begins with."""
        with self._lock:
            for lane, first in first_blocks.items():
                arrivals = self._arrivals.get(lane)
                if arrivals is not None and arrivals.executed is None:
                    arrivals.execute(first - 1)

    def has_read(self) -> None:
        """Note that the topics have been read to their ends once: what has not arrived is not there."""
        self._has_read = True

    def take(self, record: TopicRecord) -> None:
        """Take a record of one of the topics."""
        if record.topic == METRICS:
            self._take_report(record)
        elif record.topic == LANES:
            self._take_status(record)
        elif record.topic == DEAD_LETTERS:
            self._take_letter(record)
        else:
            self._take_block(record)

    def refresh(self) -> None:
        """Compute what depends on the time of the scrape."""
        now_s = self._wall_clock()
        with self._lock:
            for lane, arrivals in self._arrivals.items():
                if arrivals.newest is not None and arrivals.newest_s is not None:
                    self._store.set("validator_lane_newest_block", arrivals.newest, lane)
                    self._store.set("validator_lane_newest_block_timestamp_seconds", arrivals.newest_s, lane)
                if self._has_read and lane in self._silent_after_s:
                    since_s = now_s - (self._began_s if arrivals.newest_s is None else arrivals.newest_s)
                    self._store.set("validator_lane_silent", since_s > self._silent_after_s[lane], lane)
                if arrivals.executed is None or not self._has_read:
                    continue  # what is not known has no series, which a 0 would hide
                oldest_s = arrivals.oldest_s()
                behind_s = 0.0 if oldest_s is None else max(0.0, now_s - oldest_s)
                self._store.set("validator_lane_blocks_behind", arrivals.blocks_behind(), lane)
                self._store.set("validator_lane_seconds_behind", behind_s, lane)

    def _take_report(self, record: TopicRecord) -> None:
        try:
            report = Report.decode(record.value)
        except ValueError:
            self._store.add("validator_metrics_reports_refused_total", 1)
            return
        counted = self._counted if self._counted is not None else {}
        is_new = record.offset >= counted.get(record.partition, 0)
        if is_new:
            counted[record.partition] = record.offset + 1
        if not self._newest.takes(record) and not is_new:
            return
        if report.of == LANE:
            self._have_reported.add(report.reporter)
        self._show(report, record, is_new=is_new)

    def _take_status(self, record: TopicRecord) -> None:
        lane = (record.key or b"").decode("utf-8", "replace")
        if lane not in self._arrivals or lane in self._have_reported:  # other keys than a lane's name have no status
            return
        status = to_json(LANES, record.value)
        report = Report(LANE, lane)
        if status["executed_block"] is not None:
            report.put("validator_lane_executed_block", status["executed_block"])
        if status["last_receipt"] is not None:
            report.put("validator_lane_session", status["last_receipt"]["session"])
        for outcome in OUTCOMES:
            report.put("validator_lane_records_total", status[outcome], outcome)
        report.put("validator_lane_waiting_records", status["waiting"])
        report.put("validator_lane_waiting_blocks", status["waiting_blocks"])
        report.put("validator_lane_waiting_memory_bytes", status["waiting_resident_bytes"])
        report.put("validator_lane_window_memory_bytes", status["window_bytes"])
        self._show(report, record, is_new=False)

    def _show(self, report: Report, record: TopicRecord, *, is_new: bool) -> None:
        self._store.take(report, is_new=is_new)
        if report.of == LANE and (arrivals := self._arrivals.get(report.reporter)) is not None:
            self._store.set("validator_lane_status_timestamp_seconds", record.timestamp_ms / 1000, report.reporter)
            executed = report.set.get("validator_lane_executed_block", {}).get(())
            if executed is not None:
                with self._lock:
                    arrivals.execute(int(executed))

    def _take_letter(self, record: TopicRecord) -> None:
        """Count a dead letter: the topic has those of no lane too, which no worker reports."""
        reason = dict(record.headers).get("reason", b"").decode("utf-8", "replace")
        if reason in DeadReason.__members__:  # another program may have written anything
            self._store.add("validator_job_dead_letters_total", 1, reason)

    def _take_block(self, record: TopicRecord) -> None:
        source = Source(record.topic, record.partition, record.offset)
        decoded = decode_record(self._codec, RecordKind.BLOCK, record.value, source, record.key)
        if isinstance(decoded, DeadLetter):  # the lane says so; orders are no blocks either
            return
        lane, item = decoded
        if (arrivals := self._arrivals.get(lane)) is not None:
            with self._lock:
                arrivals.arrived(item.block, record.timestamp_ms / 1000)


class FeedThread(threading.Thread):
    """Reads the topics for a feed, while it is a context. No error ends it: the values would stay as they are without a word.

    ``consumed`` has, by topic with prefix and partition, what the job has read. ``answers`` is called when Kafka answers. ``tell`` gets a
    line about what nobody has foreseen, once while it repeats; that Kafka is away, others say.
    """

    def __init__(
        self,
        kafka: KafkaTable,
        prefix: str,
        feed: Feed,
        store: MetricStore,
        consumed: Mapping[tuple[str, int], int],
        answers: Callable[[], None] = lambda: None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(name="metrics", daemon=True)
        self._kafka, self._prefix, self._feed, self._store = kafka, prefix, feed, store
        self._consumed, self._answers, self._tell = consumed, answers, tell
        self._told = ""
        self._end = threading.Event()
        self._blocks: dict[int, int] = {}
        """By partition of `blocks`, the next offset."""
        self._letters: dict[int, int] | None = None
        """By partition of `dead-letters`, the next offset; None until the first look, which says where counting begins."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(END_S_MAX)  # it may just be asking a Kafka that is away

    def run(self) -> None:
        while not self._end.is_set():
            try:
                with (
                    TopicReader(self._kafka, self._prefix, [METRICS]) as reports,
                    TopicReader(self._kafka, self._prefix, [BLOCKS]) as blocks,
                    TopicReader(self._kafka, self._prefix, [LANES]) as statuses,
                    TopicReader(self._kafka, self._prefix, [DEAD_LETTERS], reading=SPARING) as letters,
                ):
                    self._feed.begin({partition: end for (_, partition), (_, end) in reports.spans().items()})
                    self._go_to_blocks(blocks)
                    self._go_to_letters(letters)
                    self._follow(reports, blocks, statuses, letters)
            except UserError:
                self._pause()
            except Exception as error:  # noqa: BLE001 - such as what a registry's answer does to a parser
                self._say(f"metrics cannot be read: {type(error).__name__}: {error}")
                self._pause()

    def _pause(self) -> None:
        self._store.set("validator_metrics_kafka_up", 0)
        self._end.wait(UNFORESEEN_S)

    def _say(self, line: str) -> None:
        if line != self._told:
            self._told = line
            self._tell(shortened(line))

    def _take(self, record: TopicRecord) -> None:
        """Pass a record on. One that nobody can take is left out: it would come again after each pause."""
        try:
            self._feed.take(record)
        except Exception as error:  # noqa: BLE001 - a bug, which is said
            place = f"{record.topic}[{record.partition}]@{record.offset}"
            self._say(f"metrics go without {place}: {type(error).__name__}: {error}")

    def _go_to_blocks(self, reader: TopicReader) -> None:
        offsets = {}
        for (topic, partition), (low, _) in reader.spans().items():
            consumed = self._consumed.get((self._prefix + topic, partition), 0)
            offsets[topic, partition] = self._blocks.get(partition, max(low, consumed - ARRIVALS_READ_AGAIN))
        reader.start_at(offsets)

    def _go_to_letters(self, reader: TopicReader) -> None:
        """Begin where the topic ended at the first look, and later where the reader before was: each letter counts once."""
        spans = {partition: span for (_, partition), span in reader.spans().items()}
        if self._letters is None:
            self._letters = {partition: end for partition, (_, end) in spans.items()}
        known = self._letters
        reader.start_at({(DEAD_LETTERS, each): max(low, known.get(each, low)) for each, (low, _) in spans.items()})

    def _take_letters(self, reader: TopicReader) -> None:
        """Take what has come of dead letters, of which a poll returns few: one may have 8 MiB."""
        assert self._letters is not None
        for _ in range(LETTER_POLLS_MAX):
            found = reader.poll(0.0)
            for record in found:
                self._take(record)
                self._letters[record.partition] = record.offset + 1
            if not found:
                return

    def _follow(self, reports: TopicReader, blocks: TopicReader, statuses: TopicReader, letters: TopicReader) -> None:
        is_up = False
        while not self._end.is_set():
            for record in reports.poll(POLL_S):
                self._take(record)
            for record in statuses.poll(0.0):
                self._take(record)
            for record in blocks.poll(0.0):
                self._take(record)
                self._blocks[record.partition] = record.offset + 1
            self._take_letters(letters)
            if (
                not is_up and reports.at_end and blocks.at_end and statuses.at_end
            ):  # not before: a record may end this each time that it is read
                is_up = True
                self._feed.has_read()
                self._store.set("validator_metrics_kafka_up", 1)
            if reports.caught_up:
                self._answers()
