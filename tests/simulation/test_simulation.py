# SPDX-License-Identifier: Apache-2.0
"""In thousands of schedules full of faults, each verdict is emitted once, in order; and broken variants are detected."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from streaming import lane_operator, sink
from tests.repetitions import repetitions
from tests.simulation import directly
from tests.simulation.inputs import Item, Partition, inputs
from tests.simulation.log import Log, Writer
from tests.simulation.search import search
from tests.simulation.world import World
from tests.unit.lanes.backend import Attempt
from validator.codec.encode import BlockOutput, encode_dead_letter, source_of
from validator.codec.orders import LaneOrder
from validator.core.inputs import DeadLetter
from validator.lanes import arrived, store
from validator.lanes.collected import CollectedWrites
from validator.lanes.marker import Marker, consumed_by
from validator.lanes.parked import Parked, Span, held_with
from validator.lanes.parking import LaneBatch
from validator.lanes.processor import LaneProcessor
from validator.lanes.slots import PARA_SLOTS
from validator.lanes.store import LaneCache, LiveLane

SCHEDULES = repetitions(200, 1_000)
SCHEDULES_OF_STAGES = repetitions(20, 50)
SCHEDULES_UNTIL_FOUND = 400

FAULTS = {
    "worker killed", "job killed", "call failed", "answer lost", "finished late", "never reached", "another job",
    "another job on the checkpoint", "another query on the checkpoint", "speculative attempt", "commit deleted",
    "commit and offsets deleted", "checkpoint deleted", "backup restored", "offsets expired", "group silent", "group commit lost",
    "dead letters asked for", "another job found", "lane parked", "state damaged", "marker not shown", "marker forged",
}  # fmt: skip


def test_each_verdict_is_emitted_once_under_any_faults() -> None:
    faults: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        faults += World(seed).run()
    assert faults.keys() == FAULTS, "every listed kind of fault has happened, and no other"
    assert min(faults.values()) > SCHEDULES // 50, faults


def test_stages_of_the_job_emit_each_verdict_once() -> None:
    for seed in range(SCHEDULES_OF_STAGES):
        World(seed, stages=True).run()


def test_seed_determines_the_schedule() -> None:
    for seed in range(20):
        worlds = [World(seed), World(seed)]
        for world in worlds:
            world.run()
        assert worlds[0].schedule.trace == worlds[1].schedule.trace


# --- broken variants ---------------------------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def marker_is_not_read(patch: Patch) -> None:
    patch.setattr(Marker, "has_written", lambda *_: False)


def consumed_offsets_are_forgotten(patch: Patch) -> None:
    patch.setattr(Marker, "after", lambda self, block, _: Marker(block if block is not None else self.block, {}))


def taken_dead_letters_count_as_emitted(patch: Patch) -> None:
    """A late record may have been taken while it still waited."""

    def has_taken(self: Marker, record: Any, _: object) -> bool:
        source = source_of(record)
        return source.offset < self.consumed.get((source.topic, source.partition), 0)

    patch.setattr(Marker, "_has_taken", has_taken)


class AnyToken(bytes):
    """Equal to every token."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


def cached_lane_is_used_despite_its_token(patch: Patch) -> None:
    def take(self: LaneCache, name: str) -> LiveLane | None:
        cached = self._lanes.pop(name, None)
        return None if cached is None else replace(cached, token=AnyToken(), saved_token=AnyToken())

    patch.setattr(LaneCache, "take", take)


def rebuilt_lane_omits_its_journal(patch: Patch) -> None:
    patch.setattr(LaneProcessor, "catch_up", lambda *_: None)


def journal_is_not_truncated(patch: Patch) -> None:
    patch.setattr(Attempt, "clear_journal", lambda _: None)


def save_omits_an_existing_slot(patch: Patch) -> None:
    save_slot = Attempt.save_slot

    def forgetful(self: Attempt, number: int, data: bytes) -> None:
        if number >= PARA_SLOTS or number not in self.slots:
            save_slot(self, number, data)

    patch.setattr(Attempt, "save_slot", forgetful)


def journal_entry_is_appended_twice(patch: Patch) -> None:
    append_journal = Attempt.append_journal

    def twice(self: Attempt, entry: bytes) -> None:
        append_journal(self, entry)
        append_journal(self, entry)

    patch.setattr(Attempt, "append_journal", twice)


def lane_stays_in_cache_while_it_executes(patch: Patch) -> None:
    patch.setattr(LaneCache, "take", lambda self, name: self._lanes.get(name))


def only_one_of_two_attempts_saves(patch: Patch) -> None:
    turns = itertools.cycle((True, False, False))
    patch.setattr(store, "_wants_saving", lambda *_: next(turns))


def batch_reports_one_record_too_many(patch: Patch) -> None:
    def one_more(items: Iterable[Item]) -> dict[Partition, int]:
        return {place: offset + 1 for place, offset in consumed_by(items).items()}

    patch.setattr(directly, "consumed_by", one_more)


def batch_reports_one_record_too_few(patch: Patch) -> None:
    def one_less(items: Iterable[Item]) -> dict[Partition, int]:
        return {place: offset - 1 for place, offset in consumed_by(items).items()}

    patch.setattr(directly, "consumed_by", one_less)


def marker_behind_its_group_is_believed(patch: Patch) -> None:
    """As if Kafka's word that a topic is empty were always true."""
    patch.setattr(Marker, "check_not_behind", lambda *_: None)


def marker_of_somebody_else_is_believed(patch: Patch) -> None:
    patch.setattr(Marker, "check_own", lambda *_: None)


def inputs_of_a_marker_of_somebody_else_are_believed(patch: Patch) -> None:
    patch.setattr(
        Marker,
        "corrected",
        classmethod(lambda cls, receipt: cls(receipt, dict.fromkeys(inputs().partitions, 99))),
    )


def committed_dead_letters_are_not_read(patch: Patch) -> None:
    patch.setattr(Writer, "written_dead_letters", lambda _: set())


def end_of_dead_letters_is_not_noted(patch: Patch) -> None:
    """A writer that needs them then waits for its own transaction."""
    patch.setattr(Writer, "note_dead_letters", lambda _: None)


def inputs_of_a_failed_batch_count_as_consumed(patch: Patch) -> None:
    park = LaneBatch._park

    def consuming(self: LaneBatch, *args: Any) -> Iterator[BlockOutput]:
        self.consumed = consumed_by(self.items)
        yield from park(self, *args)

    patch.setattr(LaneBatch, "_park", consuming)


def dead_letters_of_a_failed_batch_are_emitted(patch: Patch) -> None:
    park = LaneBatch._park

    def emitting(self: LaneBatch, *args: Any) -> Iterator[BlockOutput]:
        dead = [encode_dead_letter(item) for item in self.items if isinstance(item, DeadLetter)]
        yield BlockOutput(None, dead)
        yield from park(self, *args)

    patch.setattr(LaneBatch, "_park", emitting)


def parked_lane_forgets_what_it_holds(patch: Patch) -> None:
    def only_the_last(self: Parked, items: Any, _: object) -> Parked:
        return replace(self, held=held_with({}, items) or self.held)

    patch.setattr(Parked, "holding", only_the_last)


def parked_lane_holds_one_record_too_many(patch: Patch) -> None:
    def and_the_one_before(self: Parked, items: Any, _: object) -> Parked:
        held = {place: Span(max(0, first - 1), end) for place, (first, end) in held_with(self.held, items).items()}
        return replace(self, held=held)

    patch.setattr(Parked, "holding", and_the_one_before)


def resuming_lane_forgets_the_rest(patch: Patch) -> None:
    take = LaneBatch._take
    patch.setattr(LaneBatch, "_take", lambda self, held: (take(self, held)[0], {}))


def lane_that_starts_over_forgets_what_it_held(patch: Patch) -> None:
    obeying = Parked.obeying

    def only_what_is_ordered(self: Parked, orders: Iterable[LaneOrder]) -> Parked:
        orders = list(orders)
        spans = {
            (topic, partition): Span(first, end) for each in orders for topic, partition, first, end in each.inputs
        }
        obeyed = obeying(self, orders)
        return replace(obeyed, held=spans or obeyed.held)

    patch.setattr(Parked, "obeying", only_what_is_ordered)


def failed_batch_writes_its_pages(patch: Patch) -> None:
    patch.setattr(CollectedWrites, "save_slot", lambda self, number, data: self._backend.save_slot(number, data))


def writers_are_not_fenced(log: Log) -> None:
    log.fences = False


def writer_opens_before_last_commit_is_finished(log: Log) -> None:
    log.finishes = False


def marker_has_a_separate_transaction(log: Log) -> None:
    log.atomic = False


@pytest.mark.parametrize(
    "break_it",
    [
        marker_is_not_read,
        consumed_offsets_are_forgotten,
        taken_dead_letters_count_as_emitted,
        cached_lane_is_used_despite_its_token,
        rebuilt_lane_omits_its_journal,
        journal_is_not_truncated,
        save_omits_an_existing_slot,
        journal_entry_is_appended_twice,
        lane_stays_in_cache_while_it_executes,
        only_one_of_two_attempts_saves,
        batch_reports_one_record_too_many,
        batch_reports_one_record_too_few,
        marker_behind_its_group_is_believed,
        marker_of_somebody_else_is_believed,
        inputs_of_a_marker_of_somebody_else_are_believed,
        committed_dead_letters_are_not_read,
        end_of_dead_letters_is_not_noted,
        inputs_of_a_failed_batch_count_as_consumed,
        dead_letters_of_a_failed_batch_are_emitted,
        parked_lane_forgets_what_it_holds,
        parked_lane_holds_one_record_too_many,
        resuming_lane_forgets_the_rest,
        lane_that_starts_over_forgets_what_it_held,
        failed_batch_writes_its_pages,
    ],
)
def test_broken_program_is_detected(break_it: Callable[[Patch], None], monkeypatch: Patch) -> None:
    break_it(monkeypatch)
    _assert_found()


@pytest.mark.parametrize(
    "break_it",
    [
        writers_are_not_fenced,
        marker_has_a_separate_transaction,
        writer_opens_before_last_commit_is_finished,
    ],
)
def test_log_without_its_guarantees_is_detected(break_it: Callable[[Log], None]) -> None:
    _assert_found(break_it)


def chunks_are_processed_unsorted(patch: Patch) -> None:
    patch.setattr(arrived, "sorted", lambda items, **_: list(items), raising=False)


def sink_gets_no_consumed_offsets(patch: Patch) -> None:
    write = sink.write_batch
    patch.setattr(lane_operator, "write_batch", lambda sink, lane, outputs, _: write(sink, lane, outputs, dict))


@pytest.mark.parametrize("break_it", [chunks_are_processed_unsorted, sink_gets_no_consumed_offsets])
def test_broken_stage_is_detected(break_it: Callable[[Patch], None], monkeypatch: Patch) -> None:
    break_it(monkeypatch)
    _assert_found(stages=True)


def _assert_found(break_it: Callable[[Log], None] = lambda _: None, *, stages: bool = False) -> None:
    found = search(SCHEDULES_UNTIL_FOUND, break_it, stages=stages)
    assert found.failure is not None, f"not detected in {SCHEDULES_UNTIL_FOUND} schedules"
    assert f"--seed {found.failure.seed} --trace" in str(found.failure)
    assert not found.by_accident, "detected by its output or state, not by an accident"
