# SPDX-License-Identifier: Apache-2.0
"""What a worker reports of its lane, with the lane's own transaction."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from validator_simulators import SimulationSettings

from tests.unit.lanes.chains import chain, definition_of
from tests.unit.lanes.running import BATCHES, FAULTY_BATCH, Running, batches_of, failing, undisturbed
from validator.codec.inflight import Arrival
from validator.codec.json_form import shown_json, to_json
from validator.core.execute import execute
from validator.core.levels import ChannelLevel
from validator.core.outcomes import Executed
from validator.lanes.arrived import Inputs
from validator.lanes.meter import LaneMeter, MeterSettings, _put_channel, waits_for
from validator.lanes.parking import LaneBatch
from validator.lanes.processor import LaneProcessor
from validator.lanes.sink import TransactionalSink
from validator.lanes.store import LaneCache, Recovery
from validator.metrics.report import Report, Values

ALL = MeterSettings((), 1000, 1000)


class Clock:
    """A clock that moves only when it is read."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


class Measured(Running):
    """A lane whose batches are measured as the lane stage does it."""

    def __init__(
        self, settings: MeterSettings = ALL, enactment: Literal["immediate", "on-inclusion"] = "immediate"
    ) -> None:
        of = chain(
            SimulationSettings(
                seed=3,
                blocks=12,
                candidates_per_block=3,
                session_length_blocks=5,
                enactment=enactment,
                lane="polkadot",
            )
        )
        super().__init__(of, definition_of(of))
        self.meter = LaneMeter(self.chain.lane, settings, Clock())
        self.meter._next_sample_s = float("-inf")
        self.new_worker()

    def new_worker(self) -> None:
        self.cache = LaneCache(self.meter.recovered)

    def run(self, items: list[Arrival], lost: str = "") -> None:
        """Run a batch; of one that is ``lost`` the worker hears nothing, whether Kafka was ``before`` or ``after`` its commit."""
        attempt = self.store.attempt()
        batch = LaneBatch(
            self.definition, attempt, self.cache, Inputs(items), self.held, checkpoint="here", on_bug=lambda _: None,
            observe=self.meter.executed,
        )  # fmt: skip
        self.meter._next_sample_s = float("-inf")
        sink = TransactionalSink(lambda _: self.log)
        self.log.open = []
        lane = self.chain.lane
        sink.write(lane, list(self.meter.measured(batch.run(), lambda: self.cache.look(lane))))
        if lost == "before":
            return
        written = sink.commit(lane, batch.consumed)
        if lost == "after":
            return
        self.meter.written(written)
        self.store.commit(attempt)

    def reports(self) -> list[Report]:
        return [Report.decode(record.value) for record in self.log.records if record.topic == "metrics"]

    def sums(self, name: str) -> dict[tuple[str, ...], float]:
        found: dict[tuple[str, ...], float] = {}
        for report in self.reports():
            for labels, value in report.add.get(name, {}).items():
                found[labels] = found.get(labels, 0) + value
        return found

    def last(self) -> Values:
        return self.reports()[-1].set


@pytest.fixture
def measured() -> Measured:
    return Measured()


def verdicts_of(running: Running) -> list[dict[str, object]]:
    return [shown_json("verdicts", each.value) for each in running.log.records if each.topic == "verdicts"]


def rejected(running: Running) -> dict[tuple[str, ...], int]:
    found: dict[tuple[str, ...], int] = {}
    for verdict in verdicts_of(running):
        if isinstance(error := verdict.get("error"), dict):
            found[error["kind"],] = found.get((error["kind"],), 0) + 1
    return found


def test_reports_add_up_to_what_was_emitted(measured: Measured) -> None:
    for items in batches_of(measured.chain):
        measured.run(items)
    kinds = rejected(measured)
    assert len(kinds) > 2
    assert measured.sums("validator_lane_rejections_total") == kinds
    by_para = measured.sums("validator_para_rejections_total")
    assert by_para
    assert all(sum(by_para[key] for key in by_para if key[1:] == kind) <= count for kind, count in kinds.items())
    assert measured.sums("validator_lane_transactions_total") == {(): BATCHES}
    dispatched = sum(record.topic == "dispatches" for record in measured.log.records)
    assert sum(measured.sums("validator_para_upward_dispatched_total").values()) == dispatched > 0
    parts = measured.sums("validator_lane_batch_part_seconds_total")
    assert set(parts) == {("execute",), ("write",), ("commit",)}
    assert all(seconds > 0 for seconds in parts.values())


def test_last_report_is_what_the_last_status_says(measured: Measured) -> None:
    for items in batches_of(measured.chain):
        measured.run(items)
    status = [to_json("lanes", each.value) for each in measured.log.records if each.topic == "lanes"][-1]
    values = measured.last()
    assert values["validator_lane_executed_block"] == {(): status["executed_block"]}
    outcomes = values["validator_lane_records_total"]
    assert outcomes == {(name,): status[name] for name in ("accepted", "rejected", "duplicate", "dead")}
    assert values["validator_lane_waiting_records"] == {(): status["waiting"]}
    live = measured.cache.look(measured.chain.lane)
    assert live is not None
    assert values["validator_lane_pages_bytes"] == {(): live.sizes.pages_bytes}
    assert values["validator_lane_journal_entries"] == {(): live.sizes.journal_entries}


def test_output_is_the_same_with_a_meter(measured: Measured) -> None:
    for items in batches_of(measured.chain):
        measured.run(items)
    assert measured.output("metrics") == undisturbed(measured).output()
    assert measured.log.last == undisturbed(measured).log.last


@pytest.mark.parametrize("lost", ["before", "after"])
def test_batch_that_is_repeated_counts_once(lost: str) -> None:
    measured = Measured(enactment="on-inclusion")
    for items in batches_of(measured.chain):
        measured.run(items, lost)
        measured.new_worker()  # the live lanes of a batch that failed are dropped
        measured.run(items)
    assert measured.sums("validator_lane_rejections_total") == rejected(measured)
    dispatched = sum(record.topic == "dispatches" for record in measured.log.records)
    assert sum(measured.sums("validator_para_upward_dispatched_total").values()) == dispatched > 0
    undisturbed_one = Measured(enactment="on-inclusion")
    for items in batches_of(undisturbed_one.chain):
        undisturbed_one.run(items)
    carried = "validator_lane_pending_candidates_carried_total"
    assert measured.sums(carried) == undisturbed_one.sums(carried) != {(): 0}


def test_recoveries_are_reported_and_executed_blocks_are_not_counted_again(measured: Measured) -> None:
    for items in batches_of(measured.chain):
        measured.new_worker()
        measured.run(items)
    assert measured.sums("validator_lane_rejections_total") == rejected(measured)
    assert measured.sums("validator_lane_recoveries_total") == {("rebuilt",): BATCHES - 1, ("caught_up",): 0}


def test_batch_that_writes_nothing_leaves_its_increments_to_the_next(measured: Measured) -> None:
    *first, last = batches_of(measured.chain)
    for items in first:
        measured.run(items)
    before = len(measured.reports())
    measured.meter.recovered(recovery())
    measured.run([])
    assert len(measured.reports()) == before
    measured.run(last)
    assert measured.sums("validator_lane_recoveries_total") == {("caught_up",): 1, ("rebuilt",): 0}
    assert measured.sums("validator_lane_transactions_total") == {(): BATCHES}


def test_parked_lane_still_reports(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = batches_of(measured.chain)
    for items in batches[:FAULTY_BATCH]:
        measured.run(items)
    before = measured.last()
    with monkeypatch.context() as patch:
        failing(lambda: RuntimeError("a bug"))(patch, measured)
        measured.run(batches[FAULTY_BATCH])
    assert measured.parked() is not None
    assert measured.last() == before


@pytest.mark.parametrize("executed", [1, 2])
def test_blocks_before_a_fault_in_mid_batch_count_once(
    measured: Measured, monkeypatch: pytest.MonkeyPatch, executed: int
) -> None:
    items = [each for batch in batches_of(measured.chain) for each in batch]
    measured.kafka |= {item.source: item for item in items}
    process = LaneProcessor.process

    def fail(*arguments: Any) -> Executed:
        if len(executing) == executed:
            raise RuntimeError("a bug")
        executing.append(0)
        return execute(*arguments)

    executing: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(LaneProcessor, "process", lambda self, items, _: process(self, items, fail))
        measured.run(items)
    assert measured.parked() is not None
    before = rejected(measured)
    assert measured.sums("validator_lane_rejections_total") == before
    measured.order()
    assert measured.parked() is None
    assert sum(rejected(measured).values()) > sum(before.values()) > 0
    assert measured.sums("validator_lane_rejections_total") == rejected(measured)


def test_series_are_bounded_by_configuration() -> None:
    measured = Measured(MeterSettings((), 2, 1))
    for items in batches_of(measured.chain):
        measured.run(items)
    live = measured.cache.look(measured.chain.lane)
    assert live is not None
    paras, channels = live.processor.lane.rules.state.paras, live.processor.lane.rules.state.hrmp_channels
    values = measured.last()
    assert set(values["validator_para_upward_messages"]) == {(str(para),) for para in sorted(paras)[:2]}
    assert len(values["validator_channel_used_messages"]) == 1
    assert values["validator_lane_subjects_left_out"] == {(): len(paras) - 2 + len(channels) - 1}
    named = Measured(MeterSettings((max(paras),), 1000, 1000))
    for items in batches_of(named.chain):
        named.run(items)
    assert set(named.last()["validator_para_upward_messages"]) == {(str(max(paras)),)}
    ends = set(named.last().get("validator_channel_used_messages", {}))
    assert ends == {(str(one), str(other)) for one, other in channels if max(paras) in (one, other)}


def test_too_large_report_goes_without_paras(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validator.lanes.meter.REPORT_BYTES_MAX", 4000)
    for items in batches_of(measured.chain):
        measured.run(items)
    values = measured.last()
    assert "validator_lane_executed_block" in values
    assert not any(name.startswith(("validator_para", "validator_channel")) for name in values)
    assert values["validator_lane_subjects_left_out"][()] > 0


def test_levels_are_read_less_often_when_that_takes_long() -> None:
    measured = Measured()
    first, *_ = batches_of(measured.chain)
    measured.run(first)
    read = []
    live = measured.cache.look(measured.chain.lane)
    assert live is not None
    measured.meter._sample(live)  # one second by this clock: the next one is due in fifty
    before = dict(measured.meter._levels)
    measured.meter._levels = {}
    measured.meter._sample(live)
    read.append(measured.meter._levels)
    measured.meter.clock.now_s += 100  # type: ignore[attr-defined]
    measured.meter._sample(live)
    read.append(measured.meter._levels)
    assert read == [{}, before]


def test_what_a_lane_waits_for_is_one_word(measured: Measured) -> None:
    words = set()
    for item in [each for items in batches_of(measured.chain) for each in items]:
        measured.run([item])
        live = measured.cache.look(measured.chain.lane)
        assert live is not None
        words.add(waits_for(live.processor.lane))
    assert {"nothing", "candidates"} <= words <= {"nothing", "block", "candidates", "requests", "downward"}


def recovery() -> Recovery:
    return Recovery("polkadot", rebuilt=False, slots_bytes=0, journal_entries=1, seconds=0.5)


def test_channel_has_series_only_for_what_its_protocol_knows() -> None:
    report = Report("lane", "polkadot")
    _put_channel(report, ChannelLevel(1, 2, 3, 30, 10, None, 5, None, None), 9)
    assert {name: rows["1", "2"] for name, rows in report.set.items()} == {
        "validator_channel_used_messages": 3,
        "validator_channel_used_bytes": 30,
        "validator_channel_messages_used_ratio": 0.3,
        "validator_channel_oldest_age_blocks": 4,
    }
