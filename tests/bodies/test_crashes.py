# SPDX-License-Identifier: Apache-2.0
"""In schedules full of crashes every outcome is emitted once, byte for byte; and broken variants are detected."""

from __future__ import annotations

from collections import Counter

import pytest
from validator_xcmp_bodies import records
from validator_xcmp_bodies.job import Bucket, open_job

from tests.bodies.history import LANE, honest, hostile
from tests.repetitions import repetitions
from tests.simulation.keyed import Inputs, World, undisturbed
from tests.simulation.log import Log
from validator.codec.encode import OutputRecord
from validator.lanes.keyed import FIRST, Head, StepSink
from validator.lanes.marker import Marker
from validator.plugin.job_api import JobContext

SCHEDULES = repetitions(60, 1_000)
SCHEDULES_UNTIL_FOUND = 300
FAULTS = {
    "worker killed",
    "job killed",
    "call failed",
    "answer lost",
    "finished late",
    "never reached",
    "group silent",
    "group commit lost",
    "marker not shown",
}
CHAINS = {LANE: {"protocol": "xcmp-network", "limits": {}}}


def inputs(seed: int) -> Inputs:
    job = open_job(JobContext("xcmp-bodies", {"buckets": 2, "unlisted_bytes": 2_000 * (seed % 2)}, CHAINS))
    return Inputs(job, hostile(seed) if seed % 3 else honest(seed))


def differs(world: World) -> bool:
    return world.run() != undisturbed(world.inputs, world.checkpoint)


def fails(world: World) -> bool:
    """Return whether the output is wrong or the job never ends."""
    try:
        return differs(world)
    except AssertionError:
        return True


def test_output_is_that_of_an_undisturbed_process_under_any_faults() -> None:
    faults: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        world = World(seed, inputs(seed))
        assert not differs(world), f"seed {seed}"
        faults += world.schedule.faults
    assert faults.keys() == FAULTS
    assert min(faults.values()) > SCHEDULES // 20, faults


def test_a_job_on_an_earlier_checkpoint_stops_before_it_emits_anything_twice() -> None:
    refused = stuck = 0
    for seed in range(SCHEDULES):
        world = World(seed, inputs(seed), goes_back=True)
        output = world.run()
        refused += world.other is not None
        stuck += world.refused
        runs = [undisturbed(world.inputs, each) for each in (world.checkpoint, world.other) if each is not None]
        for key, written in output.items():
            whole = [run[key] for run in runs]
            if world.refused:
                whole = [run[: len(written)] for run in whole]
            assert written in whole, f"seed {seed}: {key}"
    assert refused > SCHEDULES // 20
    assert stuck < refused


def test_a_job_that_has_lost_its_checkpoint_rebuilds_and_repeats_nothing() -> None:
    lost = 0
    for seed in range(0, 2 * SCHEDULES, 2):
        of = Inputs(inputs(seed).job, honest(seed, acknowledged=False))
        world = World(seed, of)
        world.rebuilds = True
        output = world.run()
        lost += world.lost
        named: Counter[tuple[object, ...]] = Counter()
        for record in (each for written in output.values() for each in written):
            decoded = records.decode(record.topic, record.value)
            if record.topic == records.HELD:
                named["held", decoded["sender"], decoded["recipient"], decoded["sent_at"]] += 1
            elif record.topic == records.REFUSED:
                named["refused", decoded["offset"]] += 1
        assert set(named.values()) == {1}, f"seed {seed}"
        assert sum(kind == "held" for kind, *_ in named) == listed(of), f"seed {seed}"
    assert lost > SCHEDULES // 10


def kinds(output: dict[str, list[OutputRecord]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for written in output.values():
        for record in written:
            decoded = records.decode(record.topic, record.value)
            found[decoded["kind"] if record.topic == records.REFUSED else record.topic] += 1
    return found


def listed(of: Inputs) -> int:
    return sum(
        topic == "ingress-events" and records.decode(topic, value)["event"] == "queued" for topic, value in of.history
    )


@pytest.mark.parametrize("seed", range(0, 30, 6))
def test_no_body_of_an_honest_sender_is_early_and_each_is_held_once(seed: int) -> None:
    of = Inputs(inputs(seed).job, honest(seed, acknowledged=False))
    found = kinds(World(seed, of).run())
    assert found["Body/NotExpected"] == 0
    assert found[records.HELD] == listed(of)


def test_a_source_that_reads_causes_first_refuses_honest_bodies() -> None:
    assert any(
        kinds(World(seed, Inputs(inputs(seed).job, honest(seed, acknowledged=False), causes_first=True)).run())[
            "Body/NotExpected"
        ]
        for seed in range(0, SCHEDULES_UNTIL_FOUND, 6)
    )


# --- broken variants -----------------------------------------------------------------------------------------------------------------


def every_step_is_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StepSink, "commit", commits_always)


def commits_always(self: StepSink, lane: str, consumed: dict[tuple[str, int], int]) -> dict[str, int]:
    for step, emitted in self._steps.pop(lane, []):
        writer = self.writer(lane)
        writer.write(emitted)
        writer.commit(Marker(step, consumed))
    return {}


def tokens_say_nothing(patch: pytest.MonkeyPatch) -> None:
    after = Head.after
    patch.setattr(Head, "after", lambda *given, **emits: after(*given, **emits)._replace(token=FIRST.token))


def pages_are_not_saved(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Bucket, "changes", lambda self: iter(()))


@pytest.mark.parametrize("break_it", [every_step_is_new, pages_are_not_saved, tokens_say_nothing])
def test_broken_product_is_found(break_it: object, monkeypatch: pytest.MonkeyPatch) -> None:
    break_it(monkeypatch)  # type: ignore[operator]
    assert any(fails(World(seed, inputs(seed))) for seed in range(SCHEDULES_UNTIL_FOUND))


def records_and_marker_apart(log: Log) -> None:
    log.atomic = False


def nobody_is_fenced(log: Log) -> None:
    log.finishes = False


@pytest.mark.parametrize("break_it", [records_and_marker_apart, nobody_is_fenced])
def test_broken_log_is_found(break_it: object) -> None:
    assert any(
        differs(World(seed, inputs(seed), break_it))  # type: ignore[arg-type]
        for seed in range(SCHEDULES_UNTIL_FOUND)
    )
