# SPDX-License-Identifier: Apache-2.0
"""Thousands of schedules in which everything fails: each verdict is told once, in order. And broken variants, which are found out."""

from __future__ import annotations

import itertools
import marshal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from streaming import lane_operator
from tests.repetitions import repetitions
from tests.simulation import spark
from tests.simulation.inputs import Item, Place
from tests.simulation.log import Log, Writer
from tests.simulation.spark import StatesDiffer
from tests.simulation.world import SimulationFailed, World
from tests.unit.lanes.backend import Attempt
from validator.codec.encode import source_of
from validator.errors import UserError
from validator.lanes import store
from validator.lanes.marker import Marker, consumed_by
from validator.lanes.processor import LaneProcessor
from validator.lanes.slots import PARA_SLOTS
from validator.lanes.store import LaneCache, LiveLane

SCHEDULES = repetitions(300, 1_000)
SCHEDULES_OF_STAGES = repetitions(20, 50)
SCHEDULES_UNTIL_FOUND = 400

FAULTS = {
    "worker killed", "job killed", "call failed", "answer lost", "finished late", "never reached", "another job",
    "another job on the checkpoint", "another query on the checkpoint", "speculative attempt", "commit deleted",
    "commit and offsets deleted", "checkpoint deleted", "backup restored", "offsets expired", "some offsets expired",
    "offsets in doubt", "dead letters asked for", "another job found", "writer of another worker",
}  # fmt: skip


def test_each_verdict_is_told_once_whatever_fails() -> None:
    faults: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        faults += World(seed).run()
    assert faults.keys() == FAULTS, "every kind of fault has happened, and none that is not listed"
    assert min(faults.values()) > SCHEDULES // 50, faults


def test_the_stages_of_the_job_do_so_too() -> None:
    for seed in range(SCHEDULES_OF_STAGES):
        World(seed, stages=True).run()


def test_a_schedule_is_its_seed() -> None:
    for seed in range(20):
        worlds = [World(seed), World(seed)]
        for world in worlds:
            world.run()
        assert worlds[0].schedule.trace == worlds[1].schedule.trace


# --- broken variants ---------------------------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def the_marker_is_not_read(patch: Patch) -> None:
    patch.setattr(Marker, "has_told", lambda *_: False)


def inputs_taken_are_forgotten(patch: Patch) -> None:
    patch.setattr(Marker, "after", lambda self, block, _: Marker(block if block is not None else self.block, {}))


def what_was_taken_counts_as_told(patch: Patch) -> None:
    """A late record may have been taken, and have waited."""

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


def a_cached_lane_is_taken_whatever_its_token(patch: Patch) -> None:
    def take(self: LaneCache, name: str) -> LiveLane | None:
        cached = self._lanes.pop(name, None)
        return None if cached is None else replace(cached, token=AnyToken(), saved_token=AnyToken())

    patch.setattr(LaneCache, "take", take)


def a_rebuilt_lane_leaves_out_its_journal(patch: Patch) -> None:
    patch.setattr(LaneProcessor, "catch_up", lambda *_: None)


def the_journal_is_not_cut(patch: Patch) -> None:
    patch.setattr(Attempt, "clear_journal", lambda _: None)


def a_save_leaves_out_a_slot_that_was_there(patch: Patch) -> None:
    save_slot = Attempt.save_slot

    def forgetful(self: Attempt, number: int, data: bytes) -> None:
        if number >= PARA_SLOTS or number not in self.slots:
            save_slot(self, number, data)

    patch.setattr(Attempt, "save_slot", forgetful)


def the_journal_is_appended_twice(patch: Patch) -> None:
    append_journal = Attempt.append_journal

    def twice(self: Attempt, entry: bytes) -> None:
        append_journal(self, entry)
        append_journal(self, entry)

    patch.setattr(Attempt, "append_journal", twice)


def a_lane_stays_in_the_cache_while_it_executes(patch: Patch) -> None:
    patch.setattr(LaneCache, "take", lambda self, name: self._lanes.get(name))


def one_attempt_saves_and_another_does_not(patch: Patch) -> None:
    turns = itertools.cycle((True, False, False))
    patch.setattr(store, "_wants_saving", lambda *_: next(turns))


def a_batch_has_taken_one_record_less_than_it_says(patch: Patch) -> None:
    def one_more(items: Iterable[Item]) -> dict[Place, int]:
        return {place: offset + 1 for place, offset in consumed_by(items).items()}

    patch.setattr(spark, "consumed_by", one_more)


def the_last_record_of_a_batch_does_not_count_as_taken(patch: Patch) -> None:
    def one_less(items: Iterable[Item]) -> dict[Place, int]:
        return {place: offset - 1 for place, offset in consumed_by(items).items()}

    patch.setattr(spark, "consumed_by", one_less)


def the_marker_is_that_of_the_group(patch: Patch) -> None:
    """Whose offsets expire, and may stay in doubt."""
    read = Writer.marker

    def marker(self: Writer, places: Iterable[Place]) -> Marker:
        own = self._log.lane(self._lane)
        recorded, own.recorded = own.recorded, own.group or Marker()
        try:
            return read(self, places)
        finally:
            own.recorded = recorded

    patch.setattr(Writer, "marker", marker)


def nobody_asks_for_dead_letters(patch: Patch) -> None:
    patch.setattr(Writer, "told_dead_letters", lambda _: set())


def nobody_is_fenced(log: Log) -> None:
    log.fences = False


def a_writer_is_let_in_before_the_last_commit_is_finished(log: Log) -> None:
    log.finishes = False


def the_marker_has_a_transaction_of_its_own(log: Log) -> None:
    log.atomic = False


@pytest.mark.parametrize(
    "break_it",
    [
        the_marker_is_not_read,
        inputs_taken_are_forgotten,
        what_was_taken_counts_as_told,
        a_cached_lane_is_taken_whatever_its_token,
        a_rebuilt_lane_leaves_out_its_journal,
        the_journal_is_not_cut,
        a_save_leaves_out_a_slot_that_was_there,
        the_journal_is_appended_twice,
        a_lane_stays_in_the_cache_while_it_executes,
        one_attempt_saves_and_another_does_not,
        a_batch_has_taken_one_record_less_than_it_says,
        the_last_record_of_a_batch_does_not_count_as_taken,
        the_marker_is_that_of_the_group,
        nobody_asks_for_dead_letters,
    ],
)
def test_a_broken_program_is_found_out(break_it: Callable[[Patch], None], monkeypatch: Patch) -> None:
    break_it(monkeypatch)
    _assert_found()


@pytest.mark.parametrize(
    "break_it",
    [
        nobody_is_fenced,
        the_marker_has_a_transaction_of_its_own,
        a_writer_is_let_in_before_the_last_commit_is_finished,
    ],
)
def test_a_log_that_does_not_keep_its_word_is_found_out(break_it: Callable[[Log], None]) -> None:
    _assert_found(break_it)


def chunks_are_taken_as_they_come(patch: Patch) -> None:
    patch.setattr(lane_operator, "sorted", list, raising=False)


def what_a_batch_took_is_lost_between_stages(patch: Patch) -> None:
    patch.setattr(lane_operator, "pack_consumed", lambda _: marshal.dumps([]))


@pytest.mark.parametrize("break_it", [chunks_are_taken_as_they_come, what_a_batch_took_is_lost_between_stages])
def test_a_broken_stage_is_found_out(break_it: Callable[[Patch], None], monkeypatch: Patch) -> None:
    break_it(monkeypatch)
    _assert_found(stages=True)


def _assert_found(break_it: Callable[[Log], None] = lambda _: None, *, stages: bool = False) -> None:
    for seed in range(SCHEDULES_UNTIL_FOUND):
        try:
            World(seed, break_it, stages=stages).run()
        except SimulationFailed as failure:
            found = failure
            break
    else:
        pytest.fail(f"not found in {SCHEDULES_UNTIL_FOUND} schedules")
    assert f"--seed {found.seed} --trace" in str(found)
    assert isinstance(found.__cause__, UserError | StatesDiffer | None), (
        "found by what it tells or keeps, not by an accident"
    )
