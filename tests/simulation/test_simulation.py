# SPDX-License-Identifier: Apache-2.0
"""In thousands of schedules full of faults, each verdict is emitted once, in order; and a log without its guarantees is detected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.repetitions import repetitions
from tests.simulation.log import Log
from tests.simulation.search import search
from tests.simulation.world import World

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


def writers_are_not_fenced(log: Log) -> None:
    log.fences = False


def writer_opens_before_last_commit_is_finished(log: Log) -> None:
    log.finishes = False


def marker_has_a_separate_transaction(log: Log) -> None:
    log.atomic = False


@pytest.mark.parametrize(
    "break_it",
    [
        writers_are_not_fenced,
        marker_has_a_separate_transaction,
        writer_opens_before_last_commit_is_finished,
    ],
)
def test_log_without_its_guarantees_is_detected(break_it: Callable[[Log], None]) -> None:
    """What `python -m tests.crash --breaks` breaks in the program, this breaks in Kafka."""
    found = search(SCHEDULES_UNTIL_FOUND, break_it)
    assert found.failure is not None, f"not detected in {SCHEDULES_UNTIL_FOUND} schedules"
    assert f"--seed {found.failure.seed} --trace" in str(found.failure)
    assert not found.by_accident, "detected by its output or state, not by an accident"
