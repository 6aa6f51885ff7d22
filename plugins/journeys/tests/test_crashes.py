# SPDX-License-Identifier: Apache-2.0
"""In schedules full of crashes every step of a message is emitted once, byte for byte."""

from __future__ import annotations

from collections import Counter
from functools import cache

from played import played
from validator_journeys.job import open_job

from tests.repetitions import repetitions
from tests.simulation.keyed import Inputs, World
from validator.plugin.job_api import JobContext, OutputRecord

SCHEDULES = repetitions(12, 300)
BLOCKS = 25


@cache
def inputs(*, causes_first: bool = False) -> Inputs:
    of = played("router-on-inclusion")
    job = open_job(JobContext("journeys", {}, {of.chain.lane: {"protocol": of.protocol}}))
    history = [record for block in of.blocks[:BLOCKS] for record in block]
    return Inputs(job, history, causes_first=causes_first)


@cache
def whole() -> list[OutputRecord]:
    """What one batch of everything gives."""
    job = inputs().job
    ((key, items),) = inputs().items({}, dict.fromkeys((*job.causes, *job.effects), 10**9)).items()
    return job.restore(key, {}).process(items)


def test_output_is_that_of_an_undisturbed_process_under_any_faults() -> None:
    faults: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        world = World(seed, inputs())
        assert list(world.run().values()) == [whole()], f"seed {seed}"
        faults += world.schedule.faults
    assert faults["worker killed"]
    assert faults["job killed"]


def test_a_job_that_has_lost_its_checkpoint_repeats_no_step() -> None:
    lost = 0
    for seed in range(SCHEDULES):
        world = World(seed, inputs())
        world.rebuilds = True
        (output,) = world.run().values()
        lost += world.lost
        assert output == whole(), f"seed {seed}"
    assert lost


def test_a_source_that_reads_causes_first_loses_messages() -> None:
    right, wrong = (
        [sum(map(len, World(seed, inputs(causes_first=first)).run().values())) for seed in range(SCHEDULES)]
        for first in (False, True)
    )
    assert len(set(right)) == 1
    assert min(wrong) < right[0]
