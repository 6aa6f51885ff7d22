# SPDX-License-Identifier: Apache-2.0
"""The thread that reads for the endpoint: what it does about errors that nobody has foreseen; without Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from queue import Queue
from typing import ClassVar, Self

import pytest

from tests.codecs import codec_for
from validator.codec.encode import Encoder, LaneStatus, encode_dead_letter
from validator.codec.json_form import encode_input
from validator.core.counters import Counters
from validator.core.inputs import DeadLetter, DeadReason, RecordKind, Source
from validator.errors import Unavailable
from validator.job import metric_feed
from validator.job.metric_feed import Feed, FeedThread
from validator.kafka.reader import TopicRecord
from validator.lanes.parked import running
from validator.metrics.report import LANE, Report
from validator.metrics.store import MetricStore

LANE_NAME = "polkadot"
AWAITED_S_MAX = 60.0


def record(offset: int, value: bytes) -> TopicRecord:
    return TopicRecord("metrics", 0, offset, LANE_NAME.encode(), value, 0)


class Reader:
    """A reader of topics whose polls a test has prepared (`validator.kafka.reader.TopicReader`)."""

    polls: ClassVar[list[Exception | list[TopicRecord]]] = []
    letters: ClassVar[list[list[TopicRecord]]] = []
    ends: ClassVar[dict[str, dict[int, int]]] = {}
    starts: ClassVar[list[tuple[str, Mapping[tuple[str, int], int]]]] = []
    at_end = caught_up = True

    def __init__(self, kafka: object, prefix: str, topics: list[str], reading: object = None) -> None:
        self._topic = topics[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def spans(self) -> Mapping[tuple[str, int], tuple[int, int]]:
        return {(self._topic, each): (0, end) for each, end in self.ends.get(self._topic, {0: 0}).items()}

    def start_at(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.starts.append((self._topic, offsets))

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        if self._topic == "dead-letters" and self.letters:
            return self.letters.pop(0)
        if self._topic != "metrics" or not self.polls:
            return []
        found = self.polls.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_feed, "TopicReader", Reader)
    monkeypatch.setattr(metric_feed, "UNFORESEEN_S", 0.0)


@pytest.mark.usefixtures("reads")
def test_no_error_ends_the_thread_or_leaves_old_values_as_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Report(LANE, LANE_NAME)
    made.put("validator_lane_executed_block", 5)
    unforeseen = RecursionError("too deep")
    monkeypatch.setattr(
        Reader, "polls", [unforeseen, unforeseen, Unavailable("away"), [record(0, b"?"), record(1, made.encode())]]
    )
    up, lines = list[float](), list[str]()
    taken: Queue[float] = Queue()

    class Noted(MetricStore):
        def set(self, name: str, value: float, *labels: str) -> None:
            super().set(name, value, *labels)
            if name == "validator_metrics_kafka_up":
                up.append(value)

        def take(self, report: Report, *, is_new: bool = True) -> None:
            super().take(report, is_new=is_new)
            taken.put(report.set["validator_lane_executed_block"][()])

    store = Noted([LANE_NAME])
    feed = Feed(store, [LANE_NAME], codec_for())
    with FeedThread({}, "p.", feed, store, {}, tell=lines.append):
        assert taken.get(timeout=AWAITED_S_MAX) == 5
    assert up[:3] == [0, 0, 0], "0 while it cannot read, also just after it has connected"
    assert up[3:] in ([], [1])
    assert lines == ["metrics cannot be read: RecursionError: too deep"], (
        "said once, and that Kafka is away, others say"
    )


@pytest.mark.usefixtures("reads")
def test_record_that_nobody_can_take_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "polls", [[record(7, b"bad"), record(8, b"good")]])
    lines: list[str] = []
    taken: Queue[bytes] = Queue()

    class Picky(Feed):
        def take(self, record: TopicRecord) -> None:
            if record.value == b"bad":
                raise KeyError(record.value)
            taken.put(record.value)

    store = MetricStore([LANE_NAME])
    with FeedThread({}, "p.", Picky(store, [LANE_NAME], codec_for()), store, {}, tell=lines.append):
        assert taken.get(timeout=AWAITED_S_MAX) == b"good"
    assert lines == ["metrics go without metrics[0]@7: KeyError: b'bad'"]


@pytest.mark.usefixtures("reads")
def test_dead_letters_are_counted_by_reason_with_or_without_a_lane_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting begins at the end that the topic has when the job starts, and continues there after Kafka was away."""

    def letter(partition: int, offset: int, lane: str, reason: DeadReason) -> TopicRecord:
        made = encode_dead_letter(DeadLetter(lane, reason, "", Source("blocks", 0, offset), b""))
        return TopicRecord("dead-letters", partition, offset, made.key, made.value, 0, made.headers)

    stranger = TopicRecord("dead-letters", 0, 8, None, b"", 0, (("reason", b"HUNGRY"),))
    found = [letter(0, 7, "", DeadReason.UNDECODABLE), stranger, letter(0, 9, "polkadto", DeadReason.UNKNOWN_LANE)]
    found.append(letter(1, 4, LANE_NAME, DeadReason.LATE))
    monkeypatch.setattr(Reader, "letters", [found[:2], found[2:]])
    monkeypatch.setattr(Reader, "starts", [])
    monkeypatch.setattr(Reader, "ends", {"dead-letters": {0: 7, 1: 4}})
    counts: Queue[str] = Queue()

    class Noted(MetricStore):
        def add(self, name: str, value: float, *labels: str) -> None:
            super().add(name, value, *labels)
            if name == "validator_job_dead_letters_total" and value:
                counts.put(*labels)

    store = Noted([LANE_NAME])
    feed = Feed(store, [LANE_NAME], codec_for())
    with FeedThread({}, "p.", feed, store, {}) as thread:
        assert [counts.get(timeout=AWAITED_S_MAX) for _ in range(3)] == ["UNDECODABLE", "UNKNOWN_LANE", "LATE"]
        monkeypatch.setattr(Reader, "ends", {"dead-letters": {0: 20, 1: 5, 2: 3}})
        monkeypatch.setattr(Reader, "polls", [Unavailable("away")])
        while len([topic for topic, _ in Reader.starts if topic == "dead-letters"]) < 2:
            assert thread.is_alive()
    begun = [offsets for topic, offsets in Reader.starts if topic == "dead-letters"]
    assert begun[0] == {("dead-letters", 0): 7, ("dead-letters", 1): 4}
    assert begun[1] == {("dead-letters", 0): 10, ("dead-letters", 1): 5, ("dead-letters", 2): 0}, "2 was added since"
    samples = {
        sample.labels["reason"]: sample.value
        for metric in store.collect()
        for sample in metric.samples
        if sample.name == "validator_job_dead_letters_total"
    }
    assert sorted(samples) == sorted(DeadReason.__members__), "Prometheus sees a counter grow only if it began at 0"
    assert {reason for reason, value in samples.items() if value} == {"UNDECODABLE", "UNKNOWN_LANE", "LATE"}


def test_earlier_report_from_a_former_partition_does_not_replace_the_newest() -> None:
    """Partitions were added to the topic after all, and are read in any order; what is new is counted in any case."""

    def report(block: int, growth: int) -> bytes:
        made = Report(LANE, LANE_NAME, add={"validator_lane_batches_total": {(): growth}})
        made.put("validator_lane_executed_block", block)
        return made.encode()

    taken: list[tuple[float, bool]] = []

    class Noted(MetricStore):
        def take(self, report: Report, *, is_new: bool = True) -> None:
            taken.append((report.set["validator_lane_executed_block"][()], is_new))

    feed = Feed(Noted([LANE_NAME]), [LANE_NAME], codec_for())
    feed.begin({0: 4, 1: 9})
    for partition, offset, block, at_ms in ((1, 8, 70, 500), (0, 3, 60, 400), (0, 4, 61, 400)):
        feed.take(TopicRecord("metrics", partition, offset, LANE_NAME.encode(), report(block, 1), at_ms))
    assert taken == [(70, False), (61, True)]


def test_status_stands_for_the_report_of_a_lane_that_has_none() -> None:
    """A job that begins with `[metrics]` has series of an idle lane before the lane's next block."""

    def status(lane: str, consumed: int) -> TopicRecord:
        counters = Counters(consumed=consumed, accepted=consumed)
        made = Encoder(lane, bytes(32)).lane_status(LaneStatus(7, 0, 0, "", counters, None, 0, 11))
        return TopicRecord("lanes", 0, 1, lane.encode(), made.value, 5_000)

    def value(name: str, **labels: str) -> float | None:
        samples = [sample for metric in store.collect() for sample in metric.samples]
        return next((each.value for each in samples if each.name == name and each.labels == labels), None)

    store = MetricStore([LANE_NAME])
    feed = Feed(store, [LANE_NAME], codec_for())
    assert value("validator_lane_executed_block", lane=LANE_NAME) is None
    for parked in running(LANE_NAME).records:
        feed.take(TopicRecord("lanes", 0, 0, parked.key, parked.value, 4_000))
    feed.take(status("of another job", 1))
    feed.take(status(LANE_NAME, 3))
    feed.has_read()
    assert value("validator_lane_executed_block", lane=LANE_NAME) == 7
    assert value("validator_lane_records_total", lane=LANE_NAME, outcome="accepted") == 3
    assert value("validator_lane_blocks_behind", lane=LANE_NAME) == 0
    assert value("validator_lane_status_timestamp_seconds", lane=LANE_NAME) == 5
    report = Report(LANE, LANE_NAME)
    report.put("validator_lane_executed_block", 8)
    feed.take(record(0, report.encode()))
    feed.take(status(LANE_NAME, 4))
    assert value("validator_lane_executed_block", lane=LANE_NAME) == 8


def block_record(block: int, at_s: float) -> TopicRecord:
    codec = codec_for()
    value = encode_input(
        codec,
        RecordKind.BLOCK,
        {"lane": LANE_NAME, "block": block, "candidates": 0, "requests": 0, "downward": 0},
        "router",
    )
    return TopicRecord("blocks", 0, block, LANE_NAME.encode(), value, int(at_s * 1000))


def test_lane_that_a_transport_feeds_is_silent_when_nothing_new_arrives() -> None:
    store, now = MetricStore([LANE_NAME, "kusama"]), [1_000.0]
    feed = Feed(store, [LANE_NAME, "kusama"], codec_for(), lambda: now[0], {LANE_NAME: 300.0})
    feed.begin({})

    def values(name: str) -> dict[str, float]:
        feed.refresh()
        samples = (sample for metric in store.collect() for sample in metric.samples if sample.name == name)
        return {sample.labels["lane"]: sample.value for sample in samples}

    def silent() -> float | None:
        assert "kusama" not in values("validator_lane_silent"), "no transport feeds it"
        return values("validator_lane_silent").get(LANE_NAME)

    assert silent() is None, "the topics have not been read: nobody knows"
    feed.has_read()
    assert silent() == 0
    now[0] = 1_301.0
    assert silent() == 1, "since the job has started nothing has arrived"
    feed.take(block_record(7, 1_290.0))
    assert silent() == 0
    feed.take(block_record(6, 1_600.0))  # an old block again is nothing new
    now[0] = 1_591.0
    assert silent() == 1
    feed.take(block_record(8, 1_591.0))
    assert silent() == 0
    assert values("validator_lane_newest_block_timestamp_seconds") == {LANE_NAME: 1_591.0}
