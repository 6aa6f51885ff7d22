# SPDX-License-Identifier: Apache-2.0
"""A key's state, its head, and the sink that emits each step once; `tests/bodies/test_crashes.py` has whole schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from tests.simulation.keyed import Pages
from validator.codec.encode import BlockOutput, OutputRecord
from validator.errors import UserError
from validator.lanes.keyed import FIRST, Head, KeyedCache, Recovery, StepSink, ordered, process_keyed
from validator.lanes.marker import Consumed, Marker
from validator.metrics.limits import OWN_SERIES_MAX
from validator.metrics.report import Report
from validator.plugin.job_api import JobItem, JobRecord, Measure, PluginMetric, Topic

PLACE = ("p.in", 0)


@dataclass
class Sum:
    """Adds numbers up and says the sum; an item of no bytes says nothing."""

    total: int
    stored: int

    def process(self, items: Sequence[JobItem]) -> list[OutputRecord]:
        contents = [item.content for item in items if item.content]
        self.total += sum(map(int, contents))
        return [OutputRecord("out", b"", str(self.total).encode())] if contents else []

    def changes(self) -> Iterator[tuple[bytes, bytes | None]]:
        if self.total != self.stored:
            self.stored = self.total
            yield b"total", str(self.total).encode() if self.total else None


class SumJob:
    """A job of sums (`validator.plugin.job_api.Job`)."""

    name = "sums"
    causes: tuple[str, ...] = ("in",)
    effects: tuple[str, ...] = ("later",)
    topics: tuple[Topic, ...] = ()
    keys: tuple[str, ...] = ("a",)
    remembered: tuple[str, ...] = ()
    restored = 0

    def condense(self, record: JobRecord) -> Iterable[tuple[str, bytes]]:
        return (("a", record.value),)

    def restore(self, key: str, pages: Mapping[bytes, bytes]) -> Sum:
        self.restored += 1
        total = int(pages.get(b"total", b"0"))
        return Sum(total, total)

    def recover(
        self, key: str, records: Iterable[JobRecord], consumed: Mapping[tuple[str, int], int]
    ) -> dict[bytes, bytes]:
        return {}


def item(offset: int, content: bytes = b"1", topic: str = "in") -> JobItem:
    return JobItem(topic, 0, offset, content)


def test_a_live_state_is_used_only_if_it_is_the_stored_one() -> None:
    job, store, cache = SumJob(), Pages(), KeyedCache()
    process_keyed(job, "a", store, cache, [item(0)], "p.")
    before = Pages(store.head, dict(store.pages))
    output, consumed, *_ = process_keyed(job, "a", store, cache, [item(1)], "p.")
    assert (output, consumed) == (BlockOutput(1, [OutputRecord("out", b"", b"2")]), {PLACE: 2})
    assert job.restored == 1
    repeated, *_ = process_keyed(job, "a", before, cache, [item(1)], "p.")
    assert (repeated, job.restored) == (output, 2), "the live state is one batch ahead"
    assert before == store


class MeasuredSum(Sum):
    """A sum that measures itself."""

    def measures(self) -> Iterator[Measure]:
        yield Measure("total", self.total, ("all",))


class MeasuredJob(SumJob):
    """A job of such sums."""

    metrics = (PluginMetric("total", "The sum.", ("what",)),)

    def restore(self, key: str, pages: Mapping[bytes, bytes]) -> Sum:
        return MeasuredSum(0, 0)


def test_a_measured_step_has_the_values_of_its_key() -> None:
    store, cache = Pages(), KeyedCache()
    output, *_ = process_keyed(MeasuredJob(), "a", store, cache, [item(0, b"7")], "p.", measured=True)
    assert output.records[:-1] == [OutputRecord("out", b"", b"7")]
    topic, key, value, _ = output.records[-1]
    assert (topic, key) == ("metrics", b"key/a")
    report = Report.decode(value)
    assert (report.of, report.reporter) == ("key", "a")
    assert report.set == {"validator_plugin_sums_total": {("all",): 7.0}}
    silent, *_ = process_keyed(MeasuredJob(), "a", store, cache, [item(1, b"")], "p.", measured=True)
    assert silent.records == [], "a batch without output reports nothing"
    for job, measured in ((MeasuredJob(), False), (SumJob(), True)):
        plain, *_ = process_keyed(job, "a", Pages(), KeyedCache(), [item(0, b"7")], "p.", measured=measured)
        assert [record.topic for record in plain.records] == ["out"]


class RaisingSum(MeasuredSum):
    """A sum whose metrics have a fault."""

    def measures(self) -> Iterator[Measure]:
        yield from super().measures()
        raise ZeroDivisionError("in a plugin's\nmetrics")


class ExitingSum(MeasuredSum):
    """A sum whose metrics end the process."""

    def measures(self) -> Iterator[Measure]:
        raise SystemExit(3)


class WordySum(MeasuredSum):
    """A sum with a label that no scrape could show."""

    def measures(self) -> Iterator[Measure]:
        yield Measure("total", self.total, ("line\nbreak",))


class LargeSum(MeasuredSum):
    """A sum with values within every limit that are no record of Kafka all the same."""

    def measures(self) -> Iterator[Measure]:
        for at in range(OWN_SERIES_MAX):
            yield Measure("large", 1.0, (f"{at:0200d}", *("x" * 200,) * 3))


@pytest.mark.parametrize(
    ("sums", "line"),
    [
        (RaisingSum, "ZeroDivisionError: in a plugin's metrics"),
        (ExitingSum, "SystemExit: 3"),
        (WordySum, "ValueError: metric total: expected labels of at most 200 printable characters"),
        (LargeSum, "expected a report of at most 921600 bytes, found 16"),
    ],
)
def test_a_fault_in_metrics_leaves_them_out_and_is_said_once(sums: type[Sum], line: str) -> None:
    class FaultyJob(MeasuredJob):
        metrics = (*MeasuredJob.metrics, PluginMetric("large", "Much.", ("a", "b", "c", "d")))

        def restore(self, key: str, pages: Mapping[bytes, bytes]) -> Sum:
            return sums(0, 0)

    lines: list[str] = []
    store, cache = Pages(), KeyedCache(tell=lines.append)
    for at, content in enumerate((b"7", b"1")):
        output, *_ = process_keyed(FaultyJob(), "a", store, cache, [item(at, content)], "p.", measured=True)
        *records, (topic, key, value, _) = output.records
        assert [record.topic for record in records] == ["out"]
        assert (topic, key) == ("metrics", b"key/a")
        assert Report.decode(value) == Report("key", "a"), "earlier values are not shown as those of now"
    (said,) = lines
    assert said.startswith(f"job sums: metrics of a are left out: {line}")


def test_only_batches_with_output_are_steps() -> None:
    job, store, cache = SumJob(), Pages(), KeyedCache()
    steps = [
        process_keyed(job, "a", store, cache, [item(at, content)], "p.")
        for at, content in enumerate((b"", b"1", b"", b"2"))
    ]
    assert [step.output.block for step in steps] == [None, 0, None, 1]
    assert steps[-1].consumed == {PLACE: 4}


def test_a_page_that_is_gone_is_removed() -> None:
    job, store, cache = SumJob(), Pages(), KeyedCache()
    process_keyed(job, "a", store, cache, [item(0)], "p.")
    assert store.pages == {b"total": b"1"}
    process_keyed(job, "a", store, cache, [item(1, b"-1")], "p.")
    assert store.pages == {}


def test_a_recovered_key_continues_after_its_last_step() -> None:
    job, store = SumJob(), Pages()
    recovery = Recovery(5, {PLACE: 9}, {b"total": b"40"})
    output, consumed, *_ = process_keyed(job, "a", store, KeyedCache(), [item(0, b"2")], "p.", recovery)
    assert (output, consumed) == (BlockOutput(5, [OutputRecord("out", b"", b"42")]), {PLACE: 9})
    again, *_ = process_keyed(job, "a", store, KeyedCache(), [item(1, b"1")], "p.", recovery)
    assert again.block == 6, "a stored state is not recovered"


def test_a_head_survives() -> None:
    head = FIRST.after([item(3), item(7, topic="later")], "p.", emits=True)
    assert Head.decode(head.encode()) == head
    assert head.step == 1
    assert head.token != FIRST.after([item(4)], "p.", emits=True).token


def test_causes_come_before_effects_and_each_by_offset() -> None:
    items = [item(2), item(0, topic="later"), item(1)]
    assert ordered(SumJob(), items) == [item(1), item(2), item(0, topic="later")]


@dataclass
class Log:
    """A key's log, with the writer's interface."""

    marker_is: Marker = field(default_factory=Marker)
    records: list[OutputRecord] = field(default_factory=list)
    open: list[OutputRecord] = field(default_factory=list)

    def confirm(self, *, corrects: bool) -> None:
        """Believe the marker."""

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        return self.marker_is.after(None, dict.fromkeys(places, 0))

    def note_dead_letters(self) -> None:
        raise AssertionError("steps have no dead letters")

    def written_dead_letters(self) -> set[bytes]:
        raise AssertionError("steps have no dead letters")

    def write(self, records: Iterable[OutputRecord]) -> None:
        self.open += records

    def commit(self, marker: Marker) -> None:
        self.records, self.open, self.marker_is = self.records + self.open, [], marker


def emit(log: Log, step: int | None, consumed: Consumed) -> dict[str, int]:
    sink = StepSink(lambda key: log)
    sink.begin("a", "point")
    sink.write("a", [BlockOutput(step, [OutputRecord("out", b"", str(step).encode())])])
    return sink.commit("a", consumed)


def test_a_step_is_emitted_once() -> None:
    log = Log()
    assert emit(log, 0, {PLACE: 1}) == {"out": 1}
    assert emit(log, 0, {PLACE: 1}) == {}
    assert emit(log, None, {PLACE: 2}) == {}
    assert emit(log, 1, {PLACE: 3}) == {"out": 1}
    assert [record.value for record in log.records] == [b"0", b"1"]
    assert log.marker_is == Marker(1, {PLACE: 3})


@pytest.mark.parametrize(("step", "consumed"), [(1, {PLACE: 2}), (0, {PLACE: 1}), (3, {PLACE: 9})])
def test_a_step_that_does_not_follow_the_marker_stops_the_job(step: int, consumed: Consumed) -> None:
    log = Log(Marker(1, {PLACE: 3}))
    with pytest.raises(UserError, match=f"a: step {step} does not follow step 1 on Kafka"):
        emit(log, step, consumed)
    assert log.records == []
