# SPDX-License-Identifier: Apache-2.0
"""A plugin's job against the fake log: batches that are planned once and repeated, workers that keep or lose their memory, stolen keys.

`Inputs` is what happened, in the order in which it happened. A batch's plan reads the ends of the effects at one moment and those of the
causes at a later one, as Spark asks the sources of a query one after the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.log import JobKilled, Log, WorkerKilled, Writer, raise_fault
from tests.simulation.schedule import Schedule
from validator.codec.encode import OutputRecord
from validator.errors import UserError
from validator.kafka.transaction import WriteFailed, WriterFenced
from validator.lanes.keyed import KeyedCache, Recovery, StepSink, ordered, process_keyed
from validator.plugin.job_api import Job, JobItem, JobRecord

ATTEMPTS_MAX = 4
RESTARTS_WITH_FAULTS = 8
"""No more faults happen after this many starts of the job."""

Ends = dict[str, int]


@dataclass(frozen=True, slots=True)
class Inputs:
    """Topic and value of every record, in the order of writing; each topic has one partition."""

    job: Job
    history: list[tuple[str, bytes]]
    effects_per_batch: int = 5
    causes_first: bool = False
    """A broken source: it reads the ends of the causes before those of the effects."""
    _items: list[tuple[str, JobItem]] = field(default_factory=list)
    _ends: list[Ends] = field(default_factory=lambda: [{}])
    """By moment, how many records each topic has."""

    def __post_init__(self) -> None:
        """Condense every record once: nothing depends on when that happens."""
        offsets: defaultdict[str, int] = defaultdict(int)
        for topic, value in self.history:
            offset = offsets[topic]
            offsets[topic] += 1
            self._ends.append(dict(offsets))
            for key, content in self.job.condense(JobRecord(topic, 0, offset, None, value)):
                self._items.append((key, JobItem(topic, 0, offset, content)))

    def ends_at(self, moment: int, topics: tuple[str, ...]) -> Ends:
        """Return how many records of some topics there are at a moment."""
        return {topic: self._ends[moment].get(topic, 0) for topic in topics}

    def plan(self, schedule: Schedule, begins: Ends, moment: int) -> tuple[Ends, int]:
        """Return the ends of the next batch, and the moment at which it was planned."""
        first = min(len(self.history), moment + schedule.choose((0, 1, 3, 8)))
        second = min(len(self.history), first + schedule.choose((0, 0, 2, 5)))
        of_effects, of_causes = (second, first) if self.causes_first else (first, second)
        limited = {
            topic: min(end, begins.get(topic, 0) + self.effects_per_batch)
            for topic, end in self.ends_at(of_effects, self.job.effects).items()
        }
        return limited | self.ends_at(of_causes, self.job.causes), second

    def items(self, begins: Ends, ends: Ends) -> dict[str, list[JobItem]]:
        """Return the items of a batch by key."""
        found: defaultdict[str, list[JobItem]] = defaultdict(list)
        for key, item in self._items:
            if begins.get(item.topic, 0) <= item.offset < ends.get(item.topic, 0):
                found[key].append(item)
        return {key: ordered(self.job, found[key]) for key in sorted(found)}


@dataclass(slots=True)
class Pages:
    """A key's state as an attempt changes it (`validator.lanes.keyed.PageStore`)."""

    head: bytes | None = None
    pages: dict[bytes, bytes] = field(default_factory=dict)

    def load_head(self) -> bytes | None:
        return self.head

    def save_head(self, head: bytes) -> None:
        self.head = head

    def load_pages(self) -> dict[bytes, bytes]:
        return dict(self.pages)

    def save_page(self, name: bytes, page: bytes) -> None:
        self.pages[name] = page

    def remove_page(self, name: bytes) -> None:
        del self.pages[name]


@dataclass(slots=True)
class Checkpoint:
    """The offsets of every planned batch, which of them are committed, and the states before each."""

    batches: list[Ends] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)
    committed: int = 0
    states: list[dict[str, Pages]] = field(default_factory=lambda: [{}])

    def copy(self) -> Checkpoint:
        return Checkpoint(list(self.batches), list(self.moments), self.committed, list(self.states))


class World:
    """One schedule of a job with its log; `run` returns the committed records by key."""

    def __init__(
        self, seed: int, inputs: Inputs, break_it: Callable[[Log], None] = lambda _: None, *, goes_back: bool = False
    ) -> None:
        """``goes_back``: at some point an earlier checkpoint takes the place of the last one."""
        self.schedule = Schedule(seed)
        self.inputs = inputs
        self.log = Log(self.schedule, lambda _key: None, dict)
        break_it(self.log)
        self.checkpoint = Checkpoint()
        self._backup: Checkpoint | None = None
        self._goes_back = goes_back
        self.refused = False
        """Whether the last job has refused its checkpoint."""
        self.rebuilds = False
        """Whether a job that has lost its checkpoint starts to rebuild."""
        self.lost = False
        """Whether it has."""
        self._recoveries: dict[str, Recovery] = {}
        self.other: Checkpoint | None = None
        """The earlier checkpoint, once a job has refused it."""
        self._jobs = 0
        self._moment = 0
        """When the newest batch was planned."""

    def run(self) -> dict[str, list[OutputRecord]]:
        last: Checkpoint | None = None
        while not self._live():
            if self._jobs > RESTARTS_WITH_FAULTS:
                self.schedule.quiet = True
            if self.rebuilds and not self.lost and self.schedule.chance(0.5):
                self._lose_the_checkpoint()
                continue
            if self.refused and last is None:
                break  # each has emitted steps that the other has not, for different keys
            if self.refused and last is not None:
                self.other, self.checkpoint, last = self.checkpoint, last, None  # the right one is put back
                self.refused = False
            elif self._goes_back and self._backup is not None:
                last, self.checkpoint, self._goes_back = self.checkpoint, self._backup, False
        for key in self.inputs.job.keys:
            self.log.settle(key, now=True)
        return {key: self.log.lane(key).committed for key in self.inputs.job.keys}

    def _lose_the_checkpoint(self) -> None:
        self.lost, self.checkpoint = True, Checkpoint()
        for key in self.inputs.job.keys:
            self.log.settle(key, now=True)  # as taking over a key does
            own = self.log.lane(key)
            if own.recorded.block is not None:
                own.open = None
                records = self._remembered(key)
                pages = self.inputs.job.recover(key, records, own.recorded.consumed)
                self._recoveries[key] = Recovery(own.recorded.block + 1, own.recorded.consumed, pages)

    def _remembered(self, key: str) -> list[JobRecord]:
        inputs = [
            JobRecord(topic, 0, at, None, value)
            for at, (topic, value) in enumerate(self.inputs.history[: self._moment])
            if topic in self.inputs.job.remembered
        ]
        outputs = [
            JobRecord(record.topic, 0, at, record.key, record.value)
            for at, record in enumerate(self.log.lane(key).committed)
            if record.topic in self.inputs.job.remembered
        ]
        return inputs + outputs

    def _live(self) -> bool:
        """Run one process of the job; return whether it has taken everything."""
        self._jobs += 1
        name = f"job-{self._jobs}"
        cache, sink = KeyedCache(), StepSink(self._opener(name))
        attempts = 0
        while not self._done():
            try:
                self._batch(cache, sink)
                attempts = 0
                if self._backup is None and self.schedule.chance(0.2):
                    self._backup = self.checkpoint.copy()
            except (WorkerKilled, WriteFailed) as failure:
                attempts += 1
                if attempts >= ATTEMPTS_MAX:
                    return False
                sink = StepSink(self._opener(name))  # a failed sink is not used again
                if isinstance(failure, WorkerKilled) and self.schedule.chance(0.6):
                    cache = KeyedCache()
            except (JobKilled, WriterFenced):
                return False
            except UserError:
                self.refused = True
                return False
        return True

    def _opener(self, name: str) -> Callable[[str], Writer]:
        return lambda key: Writer(self.log, key, name, lambda _: None)

    def _done(self) -> bool:
        checkpoint = self.checkpoint
        everything = self.inputs.ends_at(len(self.inputs.history), (*self.inputs.job.causes, *self.inputs.job.effects))
        return checkpoint.committed == len(checkpoint.batches) > 0 and checkpoint.batches[-1] == everything

    def _batch(self, cache: KeyedCache, sink: StepSink) -> None:
        checkpoint, number = self.checkpoint, self.checkpoint.committed
        begins = checkpoint.batches[number - 1] if number else {}
        if len(checkpoint.batches) == number:
            ends, moment = self.inputs.plan(self.schedule, begins, checkpoint.moments[-1] if number else self._moment)
            self._moment = moment
            self._step("before the offset log", "job killed")
            checkpoint.batches.append(ends)
            checkpoint.moments.append(moment)
        ends = checkpoint.batches[number]
        states = dict(checkpoint.states[number])
        for key, items in self.inputs.items(begins, ends).items():
            before = states.get(key, Pages())
            pages = Pages(before.head, dict(before.pages))
            recovery = self._recoveries.get(key)
            output, consumed, found, left = process_keyed(self.inputs.job, key, pages, cache, items, "", recovery)
            self._step("between state and sink", "worker killed", "job killed")
            sink.begin(key, found)
            sink.write(key, [output])
            sink.commit(key, consumed)
            sink.leave(key, left)
            self._step("after the sink", "worker killed", "job killed", "call failed")
            states[key] = pages
        self._step("before the commit log", "job killed")
        del checkpoint.states[number + 1 :]
        checkpoint.states.append(states)
        checkpoint.committed = number + 1

    def _step(self, name: str, *faults: str) -> None:
        raise_fault(self.schedule.step(name, *faults))


def undisturbed(inputs: Inputs, checkpoint: Checkpoint) -> dict[str, list[OutputRecord]]:
    """Return what the batches of a checkpoint give in one process that never fails."""
    states = {key: inputs.job.restore(key, {}) for key in inputs.job.keys}
    found: dict[str, list[OutputRecord]] = {key: [] for key in inputs.job.keys}
    begins: Ends = {}
    for ends in checkpoint.batches:
        for key, items in inputs.items(begins, ends).items():
            found[key] += states[key].process(items)
        begins = ends
    return found
