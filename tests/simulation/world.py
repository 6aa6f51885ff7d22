# SPDX-License-Identifier: Apache-2.0
"""One schedule from beginning to end, and the properties that hold after every commit and at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from tests.simulation.damage import damage_a_lane
from tests.simulation.directly import run_directly
from tests.simulation.inputs import COMPARED, ORDERS, Inputs, account_of, inputs, source_of_header
from tests.simulation.log import JobKilled, LaneLog, Log
from tests.simulation.parking import LaneFaults, Operator
from tests.simulation.schedule import Schedule
from tests.simulation.spark import Checkpoint, Job, QueryFailed, Stages
from tests.simulation.strands import Strands
from validator.codec.encode import OutputRecord
from validator.kafka.transaction import WriterFenced
from validator.lanes import arrived
from validator.lanes import sink as sink_module
from validator.lanes import store as store_module
from validator.lanes.marker import Marker
from validator.lanes.parked import Fault, says_parked
from validator.lanes.store import restore_lane

RESTARTS_WITH_FAULTS = 8
"""No more faults happen after this many starts of the job."""

FAILURES_MAX = 5
"""Times that a job restarts its query without finishing a batch."""

GOES_BACK = ("checkpoint deleted", "backup restored", "commit and offsets deleted", "state damaged")

BACKUPS_MAX = 3

RATE_MAX_OF_ANOTHER_JOB = 0.03
"""If more faults happen than that, no other job runs in parallel: otherwise no batch would ever finish."""


class SimulationFailed(AssertionError):
    """The output or the state is wrong; the message has the seed."""

    def __init__(self, what: str, schedule: Schedule, *, stages: bool) -> None:
        again = f"python -m tests.simulation --seed {schedule.seed} --trace{' --stages' if stages else ''}"
        super().__init__(f"seed {schedule.seed}: {what}; {again}")
        self.seed, self.trace = schedule.seed, schedule.trace


class World:
    """The log, the job, and sometimes another job in parallel."""

    def __init__(self, seed: int, break_it: Callable[[Log], None] = lambda _: None, *, stages: bool = False) -> None:
        """``stages``: use the job's own stages, which takes several times as long."""
        self.schedule = Schedule(seed)
        self._stages = stages
        self._faults, self._operator = LaneFaults(self.schedule), Operator(self.schedule)
        of_all = inputs()
        self.inputs: Inputs = replace(of_all, partitions={**of_all.partitions, ORDERS: self._operator.orders})
        self.log = Log(self.schedule, self._check_new, self._ends)
        break_it(self.log)
        self._checked: Counter[tuple[str, str]] = Counter()
        self._seen: Counter[str] = Counter()
        self._dead: dict[str, set[bytes]] = {lane: set() for lane in self.inputs.dead}
        self._statuses: dict[str, dict[str, int]] = {}
        """By lane, its account in the last status record."""
        self._strands = Strands(self.schedule)
        self._beside = False
        """Whether another job has run since this one started."""
        self._other: Job | None = None
        self._other_runs = False
        self._others: set[str] = set()
        """Names of all other jobs."""
        self._backups: list[tuple[int, Checkpoint]] = []
        """Copies of checkpoints, with the orders to start over that had been written; no copy from before such an order is restored."""
        self._checkpoints = 0
        self._checkpoint = self._new_checkpoint()
        self._damaged: set[str] = set()
        self._forged: defaultdict[str, list[Marker]] = defaultdict(list)
        """By lane, the markers that somebody else has written."""
        self._jobs = 0

    def run(self) -> Counter[str]:
        """Play the schedule and return its faults, counted. Raises `SimulationFailed`."""
        try:
            with _bounds(self.schedule), self._faults.injected():
                if self._stages:
                    from tests.simulation.stages import run_stages, short_runs  # it imports pyspark

                    with short_runs(self.schedule):
                        self._play(run_stages)
                else:
                    self._play()
        except SimulationFailed:
            raise
        except Exception as error:
            raise SimulationFailed(f"{type(error).__name__}: {error}", self.schedule, stages=self._stages) from error
        finally:
            self._strands.drop_all()
        return self.schedule.faults

    def _play(self, stages: Stages = run_directly) -> None:
        self._run_task, starts = stages, 0
        while True:
            starts += 1
            if starts > RESTARTS_WITH_FAULTS:
                self.schedule.quiet = True
                self._strands.drop_all()
            job = self._job(self._checkpoint, self.schedule.choose((1, 1, 2, 3)))
            self.schedule.note(f"{job.name} starts")
            if self._live(job):
                break
            self._meddle()
        self._strands.drop_all()
        self._check_end(job)

    def _new_checkpoint(self) -> Checkpoint:
        self._checkpoints += 1
        return Checkpoint(f"checkpoint-{self._checkpoints}")

    def _job(self, checkpoint: Checkpoint, workers: int) -> Job:
        self._jobs += 1
        name = f"job-{self._jobs}"
        return Job(name, self.inputs, self.log, checkpoint, workers, self._interrupt, self._strands, self._run_task)

    def _live(self, job: Job) -> bool:
        """Run a job until it has finished everything or ends early; return whether it has finished."""
        failures, self._beside = 0, self._strands.any_live()
        while not job.done():
            try:
                self._operate(job)
                job.run_batch()
                failures = 0
                if self.schedule.chance(0.1) and len(self._backups) < BACKUPS_MAX:
                    self._backups.append((self._operator.starts_over, job.checkpoint.copy()))
                self._forget_offsets()
            except QueryFailed:
                failures += 1
                if failures > FAILURES_MAX:
                    return False
            except (JobKilled, WriterFenced) as end:
                self.schedule.note(f"{job.name} ends: {type(end).__name__}")
                if isinstance(end, WriterFenced) and not self._beside:
                    self._fail("the only job is fenced")
                return False
        return True

    def _operate(self, job: Job) -> None:
        parked = job.parked()
        for lane, found in parked.items():
            if found.fault is Fault.STATE and lane not in self._damaged:
                self._fail(f"{lane}: its state is damaged: {found.reason}")
            if found.fault is Fault.MARKER and not self._forged[lane]:
                self._fail(f"{lane}: its marker is called foreign: {found.reason}")
        self._operator.look(parked, job.checkpoint, idle=job.read_all())

    def _ends(self) -> dict[tuple[str, int], int]:
        return {place: len(items) for place, items in self.inputs.partitions.items()}

    def _forget_offsets(self) -> None:
        """Make Kafka forget the offsets of a group."""
        if self.schedule.step("forget offsets", "offsets expired", often=5) is not None:
            self.schedule.choose(list(self.log.lanes.values()) or [LaneLog()]).group = None

    def _forge(self) -> None:
        """Write a marker as only somebody else would: of blocks that the lane has not executed, or inputs that nobody has written."""
        if self.schedule.step("forge a marker", "marker forged", often=5) is None:
            return
        lane = self.schedule.choose(sorted(self.inputs.definitions))
        own, ends = self.log.lane(lane), self._ends()
        beyond = {place: end + 5 for place, end in ends.items()}
        after = [block for block in self.inputs.blocks[lane] if not own.recorded.has_written(block)]
        block = self.schedule.choose([*after, 45])
        forged = self.schedule.choose([
            Marker(block), Marker(block, own.recorded.consumed), Marker(block, ends), Marker(block, beyond),
            Marker(own.recorded.block, beyond),
        ])  # fmt: skip
        own.recorded = forged
        self._forged[lane].append(forged)
        self.schedule.note(f"{lane}: {forged}")

    def _meddle(self) -> None:
        """Change the checkpoint as people and disks do while no job uses it."""
        checkpoint = self._checkpoint
        last = len(checkpoint.offsets) - 1
        self._forge()
        fault = self.schedule.step(
            "meddle",
            "commit deleted",
            "commit and offsets deleted",
            "checkpoint deleted",
            "backup restored",
            "offsets expired",
            "state damaged",
            often=20,
        )
        if fault is not None and self._other is not None and self._other.checkpoint is checkpoint:
            self._strands.drop_all()
            self._other = None
        if fault == "commit deleted":
            checkpoint.commits.discard(last)
        elif fault == "commit and offsets deleted" and checkpoint.offsets:
            checkpoint.commits.discard(last)
            checkpoint.offsets.pop()
        elif fault == "checkpoint deleted":
            self._checkpoint = self._new_checkpoint()  # and the job runs with --rebuild
        elif fault == "backup restored" and (backups := self._usable_backups()):
            self._checkpoint = self.schedule.choose(backups).copy()
        elif fault == "offsets expired":
            for lane in self.log.lanes.values():
                lane.group = None
        elif fault == "state damaged" and (damaged := damage_a_lane(checkpoint, self.schedule)) is not None:
            self._damaged.add(damaged)
            self._operator.write(damaged)  # so that the job looks at the lane, although nothing else may arrive for it

    def _usable_backups(self) -> list[Checkpoint]:
        return [checkpoint for orders, checkpoint in self._backups if orders == self._operator.starts_over]

    def _interrupt(self, name: str) -> None:
        """Run another job in parallel with this one: one that was thought dead, or was started by mistake."""
        if self._other_runs or not self._strands.may_start() or self.schedule.rate > RATE_MAX_OF_ANOTHER_JOB:
            return
        fault = self.schedule.step(f"another job at {name}", "another job", "another job on the checkpoint")
        if fault is None:
            return
        self._beside = self._other_runs = True
        other = self._other
        if other is None or self.schedule.chance(0.3):
            checkpoint = self._checkpoint
            if fault == "another job":
                checkpoint = self._checkpoint.copy() if self.schedule.chance(0.5) else self._new_checkpoint()
            other = self._other = self._job(checkpoint, 1)
            self._others.add(other.name)
        self._strands.start(other.name, lambda: self._run_other(other, self.schedule.choose((1, 2, 5))))

    def _run_other(self, job: Job, batches: int) -> None:
        try:
            for _ in range(batches):
                job.run_batch()
        except QueryFailed:
            pass  # the job starts again when it is scheduled again
        except (JobKilled, WriterFenced) as end:
            self.schedule.note(f"{job.name} ends: {type(end).__name__}")
            self._other = None
        finally:
            self._other_runs = False

    # --- properties ---

    def _check_new(self, lane: str) -> None:
        """Check the output that a commit has added."""
        committed = self.log.lane(lane).committed
        expected = self.inputs.expected[lane]
        for record in committed[self._seen[lane] :]:
            topic = record.topic
            if topic in COMPARED:
                at = self._checked[lane, topic]
                self._checked[lane, topic] += 1
                if at >= len(expected[topic]) or record.value != expected[topic][at]:
                    known = record.value in expected[topic][:at]
                    self._fail(f"{lane} {topic}[{at}] is {'emitted twice' if known else 'wrong'}")
            elif topic == "lanes" and not says_parked(record):
                self._check_status(lane, record)
            elif topic == "dead-letters":
                source = source_of_header(record)
                if source in self._dead[lane]:
                    self._fail(f"{lane}: the dead letter of {source!r} is emitted twice")
                if source not in self.inputs.dead[lane]:
                    self._fail(f"{lane}: {source!r} is emitted as dead and is not")
                self._dead[lane].add(source)
        self._seen[lane] = len(committed)
        if self.log.atomic:
            self._check_marker(lane)

    def _check_marker(self, lane: str) -> None:
        """Check that the marker agrees with the output."""
        own, receipts = self.log.lane(lane), self._checked[lane, "receipts"]
        if own.recorded.block in [forged.block for forged in self._forged[lane]]:
            return  # the lane says that it is parked
        block = self.inputs.blocks[lane][receipts - 1] if receipts else None
        if own.recorded.block != block:
            self._fail(f"{lane}: the marker is at {own.recorded}, the output at block {block}")

    def _check_status(self, lane: str, record: OutputRecord) -> None:
        status = self._statuses[lane] = account_of([record])
        if status["consumed"] != sum(status[name] for name in ("accepted", "rejected", "duplicate", "dead", "waiting")):
            self._fail(f"{lane}: some consumed records have no outcome: {status}")

    def _check_end(self, job: Job) -> None:
        """Check that nothing is missing, and that the lanes have the expected final accounts."""
        states = {
            lane: state
            for partition in range(2)
            for lane, state in job.checkpoint.states[partition, len(job.checkpoint.offsets)].lanes.items()
        }
        for lane, dead in self.inputs.dead.items():
            for topic in COMPARED:
                if self._checked[lane, topic] != len(self.inputs.expected[lane][topic]):
                    self._fail(
                        f"{lane} {topic}: {self._checked[lane, topic]} of {len(self.inputs.expected[lane][topic])} emitted"
                    )
            if missing := dead - self._dead[lane]:
                self._fail(f"{lane}: dead letters are lost: {sorted(missing)[:3]}")
            consumed = dict(self.log.lane(lane).recorded.consumed)
            consumed.pop(ORDERS, None)
            ends = self.inputs.ends[lane]
            forged = self._forged[lane]
            if self.log.lane(lane).recorded in forged:
                continue  # nothing has arrived for the lane since
            # what a lane had taken before somebody else wrote its marker is forgotten, and looked up among the dead letters
            behind = all(offset <= ends.get(place, 0) for place, offset in consumed.items())
            if consumed != ends and not (forged and behind):
                self._fail(f"{lane}: the marker has not taken everything: {self.log.lane(lane).recorded.consumed}")
        for lane, definition in self.inputs.definitions.items():
            worker = restore_lane(definition, states[lane])
            assert worker is not None
            account = account_of(worker.status().records)
            if account != self.inputs.account[lane]:
                self._fail(f"{lane} is at {account}, expected {self.inputs.account[lane]}")
            if not self._goes_back() and self._statuses[lane] != self.inputs.account[lane]:
                self._fail(f"the status of {lane} is {self._statuses[lane]}, expected {self.inputs.account[lane]}")
            if worker.snapshot() != self.inputs.snapshots[lane]:
                self._fail(f"{lane}: the state differs")

    def _goes_back(self) -> bool:
        """Return whether any job has read inputs again in other batches.

        Such a job emits a lane's status while a batch has new output, and the last batch's status is not always the last one emitted.
        """
        return bool(self._others) or any(self.schedule.faults[fault] for fault in GOES_BACK)

    def _fail(self, what: str) -> None:
        raise SimulationFailed(what, self.schedule, stages=self._stages)


@contextmanager
def _bounds(schedule: Schedule) -> Iterator[None]:
    """Make journals, saves and transactions as short as only a large chain would otherwise have them, and hand on dead letters early."""
    before = store_module.JOURNAL_BYTES_MAX, store_module.UNSAVED_BYTES_MAX, sink_module.TRANSACTION_BYTES_MAX
    held_before = sink_module.HELD_BYTES_MAX
    store_module.JOURNAL_BYTES_MAX = schedule.choose((1, 1500, 4000, before[0]))
    store_module.UNSAVED_BYTES_MAX = schedule.choose((1, 300, before[1]))
    sink_module.TRANSACTION_BYTES_MAX = schedule.choose((1, 2000, before[2]))
    sink_module.HELD_BYTES_MAX = schedule.choose((0, 500, held_before))
    try:
        with patch.object(arrived, "PART_RECORDS", schedule.choose((1, 7, arrived.PART_RECORDS))):
            yield
    finally:
        store_module.JOURNAL_BYTES_MAX, store_module.UNSAVED_BYTES_MAX, sink_module.TRANSACTION_BYTES_MAX = before
        sink_module.HELD_BYTES_MAX = held_before
