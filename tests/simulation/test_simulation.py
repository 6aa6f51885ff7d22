# SPDX-License-Identifier: Apache-2.0
"""Thousands of schedules in which everything fails: each verdict is told once, in order. And broken variants, which are found out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation.log import Log
from tests.simulation.world import SimulationFailed, World
from tests.unit.lanes.backend import Attempt
from validator.codec.encode import source_of
from validator.lanes import store
from validator.lanes.marker import Marker
from validator.lanes.slots import PARA_SLOTS
from validator.lanes.store import CachedLane, LaneCache

SCHEDULES = 1_500
SCHEDULES_UNTIL_FOUND = 400

FAULTS = {
    "worker killed", "job killed", "call failed", "answer lost", "finished late", "never reached", "another job",
    "speculative attempt", "commit deleted", "commit and offsets deleted", "checkpoint deleted", "backup restored",
    "offsets expired", "dead letters asked for", "another job found", "writer of another worker",
}  # fmt: skip


def test_each_verdict_is_told_once_whatever_fails() -> None:
    faults: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        faults += World(seed).run()
    assert faults.keys() == FAULTS, "every kind of fault has happened, and none that is not listed"
    assert min(faults.values()) > 20, faults


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
    def take(self: LaneCache, name: str) -> CachedLane | None:
        cached = self._lanes.pop(name, None)
        return None if cached is None else CachedLane(AnyToken(), AnyToken(), cached.lane)

    patch.setattr(LaneCache, "take", take)


def a_rebuilt_lane_leaves_out_its_journal(patch: Patch) -> None:
    patch.setattr(store.LaneWorker, "replay", lambda *_: None)


def the_journal_is_not_cut(patch: Patch) -> None:
    patch.setattr(Attempt, "clear_journal", lambda _: None)


def a_save_leaves_out_a_slot_that_was_there(patch: Patch) -> None:
    save_slot = Attempt.save_slot

    def forgetful(self: Attempt, number: int, data: bytes) -> None:
        if number >= PARA_SLOTS or number not in self.slots:
            save_slot(self, number, data)

    patch.setattr(Attempt, "save_slot", forgetful)


def nobody_is_fenced(log: Log) -> None:
    log.fences = False


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
    ],
)
def test_a_broken_program_is_found_out(break_it: Callable[[Patch], None], monkeypatch: Patch) -> None:
    break_it(monkeypatch)
    assert _found(lambda _: None)


@pytest.mark.parametrize("break_it", [nobody_is_fenced, the_marker_has_a_transaction_of_its_own])
def test_a_log_that_does_not_keep_its_word_is_found_out(break_it: Callable[[Log], None]) -> None:
    assert _found(break_it)


def _found(break_it: Callable[[Log], None]) -> bool:
    for seed in range(SCHEDULES_UNTIL_FOUND):
        try:
            World(seed, break_it).run()
        except SimulationFailed as failure:
            return f"--seed {seed} --trace" in str(failure)
    return False
