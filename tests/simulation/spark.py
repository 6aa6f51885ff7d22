# SPDX-License-Identifier: Apache-2.0
"""Spark as the job's stages see it: an offset log, a commit log, versions of state that are committed completely, and workers.

The contract: Spark records the inputs of batch N before it runs, and runs a batch again with the same inputs if its commit is not in the
log. A repeated task finds the state of the previous batch. Only one attempt's state is committed. Workers may or may not survive between
batches.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.simulation.inputs import Inputs, Item, Partition, between, lane_parked
from tests.simulation.log import JobKilled, Log, WorkerKilled, Writer, raise_fault
from tests.simulation.schedule import Schedule
from tests.simulation.strands import Strand, Strands
from tests.unit.lanes.backend import Attempt
from validator.codec.orders import LaneOrder
from validator.kafka.transaction import WriteFailed, WriterFenced
from validator.lanes.parked import Fault, Parked, Span
from validator.lanes.sink import TransactionalSink
from validator.lanes.store import LaneCache

ATTEMPTS_MAX = 4


class QueryFailed(Exception):
    """A task failed too often; the job restarts the query, and its workers survive."""


class StatesDiffer(AssertionError):
    """Two attempts at one task leave different states: Spark would mix files of both."""


@dataclass(slots=True)
class Checkpoint:
    """The contents of a job's checkpoint folder; copies of it have the same ``id``."""

    id: str
    offsets: list[dict[Partition, int]] = field(default_factory=list)
    """By batch, the offsets up to which it reads."""
    commits: set[int] = field(default_factory=set)
    states: dict[tuple[int, int], PartitionState] = field(default_factory=dict)
    """By state partition and version; batch N starts from version N."""

    def copy(self) -> Checkpoint:
        """Return a copy, as a backup would be; states never change once stored."""
        return Checkpoint(self.id, list(self.offsets), set(self.commits), dict(self.states))

    @property
    def version(self) -> int:
        """The version of the state after the last committed batch."""
        return max(self.commits, default=-1) + 1

    def state_of(self, partition: int) -> PartitionState:
        """Return a partition's state after the last committed batch."""
        return self.states.get((partition, self.version), NOTHING)

    def consumed(self) -> dict[Partition, int]:
        """Return what the job has read of each partition until then."""
        return self.offsets[self.version - 1] if self.version else {}


@dataclass(frozen=True, slots=True, eq=False)
class PartitionState:
    """A version of one partition's state, and what it was made from."""

    lanes: dict[str, Attempt] = field(default_factory=dict)
    before: PartitionState | None = None
    ends: dict[Partition, int] | None = None

    def check(self, other: PartitionState) -> None:
        """Check that another attempt at the same task has led to the same state; raises `StatesDiffer`.

        Somebody may have written a marker between them.
        """
        if other.before is self.before and other.ends == self.ends:
            for lane in self.lanes.keys() | other.lanes.keys():
                one, two = self.lanes.get(lane), other.lanes.get(lane)
                if one != two and not any(map(_found_a_marker, (one, two))):
                    raise StatesDiffer("two attempts at one task leave different states")


def _found_a_marker(left: Attempt | None) -> bool:
    return left is not None and (parked := lane_parked(left.head)) is not None and parked.fault is Fault.MARKER


NOTHING = PartitionState()


@dataclass(slots=True)
class Task:
    """What the attempts at a task share."""

    number: int
    partition: int
    by_lane: dict[str, list[Item]]
    before: PartitionState
    ends: dict[Partition, int]
    rival: Strand | None = None
    """Another attempt, parallel to the first."""
    rival_state: PartitionState | None = None


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
    output: object = None
    """The key by which the job's stages find its sink."""
    busy: bool = False


class Job:
    """One driver with its workers, on a checkpoint. ``interrupt`` is called with the name of every step, and may run other jobs."""

    def __init__(
        self,
        name: str,
        of: Inputs,
        log: Log,
        checkpoint: Checkpoint,
        workers: int,
        interrupt: Callable[[str], None],
        strands: Strands,
        stages: Stages,
    ) -> None:
        self.name = name
        self.inputs = of
        self.log = log
        self.schedule: Schedule = log.schedule
        self.checkpoint = checkpoint
        self.workers = [Worker() for _ in range(workers)]
        self._interrupt = interrupt
        self._strands = strands
        self._stages = stages
        self._lanes = [sorted(of.dead)[at::2] for at in range(2)]
        """By state partition."""
        self._next: int | None = None
        """The batch to run next, or again; None if the query has not yet read its checkpoint."""
        self._task: Task | None = None

    def run_batch(self) -> bool:
        """Run the next batch, or repeat the last one; return whether there was one. Raises `QueryFailed`, `JobKilled`, `WriterFenced`."""
        try:
            return self._run_batch()
        except QueryFailed:
            self._next = None
            raise

    def _run_batch(self) -> bool:
        checkpoint = self.checkpoint
        number = self._next
        if number is None:
            last = len(checkpoint.offsets) - 1
            number = last if last >= 0 and last not in checkpoint.commits else last + 1
            planned = number == last
        else:
            planned = False
        begins = checkpoint.offsets[number - 1] if number else {}
        if planned:
            ends = checkpoint.offsets[number]
        else:
            found = self._plan(begins)
            if found is None:
                return False
            ends = found
            self._step("before the offset log", "job killed")
            if len(checkpoint.offsets) != number:
                self._refuse_another_query()
            checkpoint.offsets.append(ends)
            self._step("after the offset log", "job killed")
        for partition in range(len(self._lanes)):
            state = self._run_task(number, partition, begins, ends)
            self._step("before a state commit", "job killed")
            if (there := checkpoint.states.get((partition, number + 1))) is not None:
                there.check(state)
            checkpoint.states[partition, number + 1] = state
            self._step("after a state commit", "job killed")
        self._step("before the commit log", "job killed")
        if number in checkpoint.commits:
            self._refuse_another_query()
        checkpoint.commits.add(number)
        self._next = number + 1
        self._step("after the commit log", "job killed")
        return True

    def _refuse_another_query(self) -> None:
        """Fail as Spark does if another query has written to a log of the checkpoint."""
        self.schedule.fault("another query on the checkpoint", "another query on the checkpoint")
        raise QueryFailed

    def done(self) -> bool:
        """Return whether all inputs have been taken and committed, and no lane is parked."""
        return self.read_all() and not self.parked()

    def read_all(self) -> bool:
        """Return whether the batches have had all inputs."""
        offsets = self.checkpoint.offsets
        return len(offsets) - 1 in self.checkpoint.commits and all(
            offsets[-1][place] == len(items) for place, items in self.inputs.partitions.items()
        )

    def parked(self) -> dict[str, Parked]:
        """Return the lanes that are parked, or have not taken everything since, after the last committed batch."""
        states = [self.checkpoint.state_of(partition) for partition in range(len(self._lanes))]
        found = {lane: lane_parked(state.head) for partition in states for lane, state in partition.lanes.items()}
        return {lane: parked for lane, parked in found.items() if parked is not None}

    def held_inputs(self, lane: str, place: Partition, span: Span, bytes_max: int) -> tuple[list[Item], int]:
        """Read a lane's inputs again (`validator.lanes.parking.HeldInputs`)."""
        found: list[Item] = []
        for offset in range(span.first, span.end):
            named, item = self.inputs.partitions[place][offset]
            if bytes_max <= 0:
                return found, offset
            if named == lane:
                found.append(item)
                bytes_max -= 0 if isinstance(item, LaneOrder) else len(item.raw)
        return found, span.end

    def _plan(self, begins: dict[Partition, int]) -> dict[Partition, int] | None:
        """Return the offsets up to which the next batch reads, or None if nothing is left."""
        ends, news = {}, False
        everything = self.schedule.chance(0.1)
        for place, items in self.inputs.partitions.items():
            begin = begins.get(place, 0)
            size = len(items) if everything else self.schedule.choose((0, 1, 4, 9, 20))
            ends[place] = min(len(items), begin + size)
            news = news or ends[place] > begin
        if news:
            return ends
        left = {place: len(items) for place, items in self.inputs.partitions.items()}
        return left if any(left[place] > begins.get(place, 0) for place in left) else None

    def _run_task(
        self, number: int, partition: int, begins: dict[Partition, int], ends: dict[Partition, int]
    ) -> PartitionState:
        before = self.checkpoint.states[partition, number] if number else NOTHING
        by_lane = between(self.inputs, begins, ends, self._lanes[partition])
        self._task = task = Task(number, partition, by_lane, before, ends)
        try:
            for _ in range(ATTEMPTS_MAX):
                try:
                    state = self._attempt(task)
                except (WorkerKilled, WriteFailed, WriterFenced) as failure:
                    if task.rival is not None and self.schedule.chance(0.7):
                        self._strands.finish(task.rival)
                        if task.rival_state is not None:
                            return task.rival_state
                    if isinstance(failure, WriterFenced):
                        raise
                    if self.schedule.chance(0.3):
                        raise QueryFailed from failure
                    continue
                if task.rival_state is not None:
                    task.rival_state.check(state)
                    return self.schedule.choose((task.rival_state, state))
                return state
            raise QueryFailed
        finally:
            self._task = None
            if task.rival is not None and not self.schedule.chance(0.5):
                self._strands.drop(task.rival)  # otherwise nothing would reach it to kill it

    def _maybe_speculate(self) -> None:
        """Begin another attempt at the running task."""
        task = self._task
        if task is None or task.rival is not None or not self._strands.may_start():
            return
        if not self.schedule.chance(0.2) or self.schedule.step("speculate", "speculative attempt") is None:
            return

        def rival() -> None:
            with suppress(WorkerKilled, JobKilled, WriteFailed, WriterFenced):
                task.rival_state = self._attempt(task)

        task.rival = self._strands.start(f"{self.name}, other attempt", rival)

    def _worker(self) -> Worker:
        """Return the worker that Spark gives a task to: usually the previous one, never a busy one."""
        idle = [worker for worker in self.workers if not worker.busy]
        if not idle:
            idle = [Worker()]
            self.workers += idle
        return idle[0] if self.schedule.chance(0.7) else self.schedule.choose(idle)

    def _attempt(self, task: Task) -> PartitionState:
        """Run one attempt at a task and return the state that it would commit."""
        worker = self._worker()
        worker.busy = True
        sizes = {lane: len(items) for lane, items in task.by_lane.items()}
        what = f"{self.name}: batch {task.number} partition {task.partition}"
        self.schedule.note(f"{what}: {sizes}")
        lanes = sorted(task.by_lane)
        self.schedule.random.shuffle(lanes)
        states = {lane: self._begun(task.before.lanes.get(lane)) for lane in lanes}
        try:
            self._stages(self, worker, task.by_lane, states)
        except BaseException as end:
            self.schedule.note(f"{what}: attempt ended by {type(end).__name__}")
            if isinstance(end, WorkerKilled) and self.schedule.chance(0.6):
                worker.cache = LaneCache()  # the cache died with the worker that holds the lanes
            raise
        finally:
            worker.busy = False
        after = {lane: Attempt(state.head, state.slots, state.journal) for lane, state in states.items()}
        return PartitionState(task.before.lanes | after, task.before, task.ends)

    def open_writer(self, lane: str) -> Writer:
        return Writer(self.log, lane, self.name, self._interrupted)

    def _begun(self, before: Attempt | None) -> SteppedAttempt:
        state = SteppedAttempt()
        if before is not None:
            state = SteppedAttempt(before.head, dict(before.slots), list(before.journal))
        state.step = lambda name: self._step(name, "worker killed", "job killed")
        return state

    def between(self, name: str) -> None:
        """Pass a step of a stage."""
        self._step(name, "worker killed", "job killed", "call failed")

    def _interrupted(self, name: str) -> None:
        self._interrupt(name)
        self._maybe_speculate()
        self._strands.step()

    def _step(self, name: str, *faults: str) -> None:
        self._interrupted(name)
        raise_fault(self.schedule.step(name, *faults))


Stages: TypeAlias = Callable[[Job, Worker, dict[str, list[Item]], dict[str, SteppedAttempt]], None]
"""Runs a task's stages: its worker, its inputs by lane, the lanes' states in Spark's order."""


__all__ = ["Checkpoint", "Job", "JobKilled", "QueryFailed", "Stages", "StatesDiffer", "WriterFenced"]
