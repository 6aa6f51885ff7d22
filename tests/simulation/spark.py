# SPDX-License-Identifier: Apache-2.0
"""Spark as the stages of the job see it: an offset log, a commit log, versions of state that are committed whole, and workers.

The contract: what batch N reads is written down before it runs, and a batch whose commit is not in the log runs again with it; a task that
runs again finds the state of the batch before; only one attempt's state is committed; workers live on between batches, or do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.simulation.inputs import Inputs, Item, Place, between
from tests.simulation.log import CallFailed, Fenced, JobKilled, Log, WorkerKilled, Writer, raise_fault
from tests.simulation.schedule import Schedule
from tests.unit.lanes.backend import Attempt
from validator.codec.encode import Told
from validator.lanes.marker import consumed_by
from validator.lanes.sink import TransactionalSink
from validator.lanes.store import LaneCache, process_batch

ATTEMPTS_MAX = 4


class QueryFailed(Exception):
    """A task failed too often; the job starts the query again, and its workers live on."""


@dataclass(slots=True)
class Checkpoint:
    """What a job keeps in its folder."""

    offsets: list[dict[Place, int]] = field(default_factory=list)
    """By batch, up to where it reads."""
    commits: set[int] = field(default_factory=set)
    states: dict[tuple[int, int], dict[str, Attempt]] = field(default_factory=dict)
    """By state partition and version, the lanes' states; version N is what batch N starts from."""

    def copy(self) -> Checkpoint:
        """Return a copy, as a backup has it; states are never changed once they are there."""
        return Checkpoint(list(self.offsets), set(self.commits), dict(self.states))


class SteppedAttempt(Attempt):
    """A lane's state as an attempt changes it; a worker may die at each call."""

    step: Callable[[str], None] = staticmethod(lambda _: None)

    def load_head(self) -> bytes | None:
        self.step("read head")
        return Attempt.load_head(self)

    def load_slots(self) -> dict[int, bytes]:
        self.step("read slots")
        return Attempt.load_slots(self)

    def append_journal(self, entry: bytes) -> None:
        self.step("before the journal")
        Attempt.append_journal(self, entry)

    def clear_journal(self) -> None:
        self.step("after the slots")
        Attempt.clear_journal(self)

    def save_head(self, head: bytes) -> None:
        self.step("before the head")
        Attempt.save_head(self, head)
        self.step("after the head")


@dataclass(slots=True)
class Worker:
    """A core of an executor: one Python worker for lanes, one for the sink."""

    cache: LaneCache = field(default_factory=LaneCache)
    sink: TransactionalSink | None = None


class Job:
    """One driver with its workers, on a checkpoint. ``interrupt`` is called at every step with its name, and may run others meanwhile."""

    def __init__(
        self, name: str, of: Inputs, log: Log, checkpoint: Checkpoint, workers: int, interrupt: Callable[[str], None]
    ) -> None:
        self.name = name
        self.inputs = of
        self.log = log
        self.schedule: Schedule = log.schedule
        self.checkpoint = checkpoint
        self.workers = [Worker() for _ in range(workers)]
        self.interrupt = interrupt
        self._lanes = [sorted(of.definitions)[at::2] for at in range(2)]
        """Of each state partition."""
        self._speculated: dict[str, Attempt] | None = None
        self._speculating = False

    def run_batch(self) -> bool:
        """Run the next batch, or the last one again; return whether there was anything to do."""
        checkpoint = self.checkpoint
        number = len(checkpoint.offsets) - 1
        if number < 0 or number in checkpoint.commits:
            number += 1
            ends = self._plan()
            if ends is None:
                return False
            self._step("before the offset log", "job killed")
            checkpoint.offsets.append(ends)
            self._step("after the offset log", "job killed")
        for partition in range(len(self._lanes)):
            state = self._run_task(number, partition)
            self._step("before a state commit", "job killed")
            checkpoint.states[partition, number + 1] = state
            self._step("after a state commit", "job killed")
        self._step("before the commit log", "job killed")
        checkpoint.commits.add(number)
        self._step("after the commit log", "job killed")
        return True

    def done(self) -> bool:
        """Say whether everything has been taken and committed."""
        checkpoint = self.checkpoint
        return len(checkpoint.offsets) - 1 in checkpoint.commits and self._plan() is None

    def _plan(self) -> dict[Place, int] | None:
        """Return up to where the next batch reads, None where nothing is left."""
        before = self.checkpoint.offsets[-1] if self.checkpoint.offsets else {}
        ends, news = {}, False
        whole = self.schedule.chance(0.1)
        for place, items in self.inputs.partitions.items():
            begin = before.get(place, 0)
            size = len(items) if whole else self.schedule.choose((0, 1, 4, 9, 20))
            ends[place] = min(len(items), begin + size)
            news = news or ends[place] > begin
        if news:
            return ends
        left = {place: len(items) for place, items in self.inputs.partitions.items()}
        return left if any(left[place] > before.get(place, 0) for place in left) else None

    def _run_task(self, number: int, partition: int) -> dict[str, Attempt]:
        self._speculated = None
        for _ in range(ATTEMPTS_MAX):
            worker = self._worker()
            try:
                state = self._attempt(number, partition, worker)
            except (WorkerKilled, CallFailed, Fenced) as failure:
                self.schedule.note(f"batch {number} partition {partition}: attempt ended by {type(failure).__name__}")
                if self._speculated is not None:
                    return self._speculated
                if isinstance(failure, Fenced):
                    raise
                if self.schedule.chance(0.3):
                    raise QueryFailed from failure
                continue
            if self._speculated is not None and self.schedule.chance(0.5):
                return self._speculated
            return state
        raise QueryFailed

    def _worker(self) -> Worker:
        """Return the worker that Spark gives a task to: mostly the one of before."""
        return self.workers[0] if self.schedule.chance(0.7) else self.schedule.choose(self.workers)

    def _attempt(self, number: int, partition: int, worker: Worker) -> dict[str, Attempt]:
        """Run one attempt at a task and return the state that it would commit."""
        before = self.checkpoint.states.get((partition, number), {})
        begins = self.checkpoint.offsets[number - 1] if number else {}
        ends = self.checkpoint.offsets[number]
        by_lane = between(self.inputs, begins, ends, self._lanes[partition])
        self.schedule.note(f"batch {number} partition {partition}: { ({k: len(v) for k, v in by_lane.items()}) }")
        after = dict(before)
        # a sink that has failed is not used again
        sink, worker.sink = (
            worker.sink or TransactionalSink(lambda lane: Writer(self.log, lane, self.name, self._interrupted)),
            None,
        )
        lanes = sorted(by_lane)
        self.schedule.random.shuffle(lanes)
        try:
            for lane in lanes:
                after[lane] = self._run_lane(lane, by_lane[lane], before.get(lane), worker, sink)
                self._maybe_speculate(number, partition)
        except WorkerKilled:
            if self.schedule.chance(0.6):
                worker.cache = LaneCache()  # it was the one that holds the lanes
            raise
        worker.sink = sink
        return after

    def _run_lane(
        self, lane: str, items: list[Item], before: Attempt | None, worker: Worker, sink: TransactionalSink
    ) -> Attempt:
        state = (
            SteppedAttempt()
            if before is None
            else SteppedAttempt(before.head, dict(before.slots), list(before.journal))
        )
        state.step = lambda name: self._step(name, "worker killed", "job killed")
        told: Iterator[Told] = process_batch(self.inputs.definitions[lane], state, worker.cache, items)
        if self.schedule.chance(0.3):
            told = iter(list(told))  # the lane's worker is ahead of the sink's, and holds the lane as it will be
        run: list[Told] = []
        for each in told:
            run.append(each)
            if self.schedule.chance(0.4):
                sink.write(lane, run)
                run = []
                self._step("between blocks", "worker killed", "job killed", "call failed")
        sink.write(lane, run)
        self._step("before the last of a lane", "worker killed", "job killed", "call failed")
        sink.commit(lane, consumed_by(items))
        self._step("after the last of a lane", "worker killed", "job killed", "call failed")
        return Attempt(state.head, state.slots, state.journal)

    def _maybe_speculate(self, number: int, partition: int) -> None:
        """Run another attempt at the same task while this one is under way."""
        if self._speculating or self.schedule.step("speculate", "speculative attempt") is None:
            return
        self._speculating = True
        try:
            self._speculated = self._attempt(number, partition, self.schedule.choose(self.workers))
        except (WorkerKilled, CallFailed, Fenced):
            pass
        finally:
            self._speculating = False

    def _interrupted(self, name: str) -> None:
        self.interrupt(name)

    def _step(self, name: str, *faults: str) -> None:
        self.interrupt(name)
        raise_fault(self.schedule.step(name, *faults))


__all__ = ["Checkpoint", "Fenced", "Job", "JobKilled", "QueryFailed", "Worker"]
