# SPDX-License-Identifier: Apache-2.0
"""Kafka as a lane's writer sees it: transactions, fencing, consumer groups, and calls with an unknown outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from streaming.markers import LastWrite
from tests.simulation.inputs import source_of_header
from tests.simulation.schedule import Schedule
from validator.codec.encode import OutputRecord
from validator.lanes.marker import Marker

NO_WRITE: Final = LastWrite(None, None)


class CallFailed(Exception):
    """A call to Kafka failed or timed out; its writer cannot be used again."""


class Fenced(Exception):
    """Another writer owns the lane."""


class WorkerKilled(Exception):
    """A Python worker has died, and its memory is lost."""


class JobKilled(Exception):
    """Driver, JVM and workers have died."""


@dataclass(slots=True)
class Transaction:
    """What a producer has sent but not committed."""

    records: list[OutputRecord] = field(default_factory=list)
    marker: Marker | None = None
    write: LastWrite = NO_WRITE


@dataclass(slots=True)
class LaneLog:
    """Kafka's data for one lane's output."""

    committed: list[OutputRecord] = field(default_factory=list)
    group: Marker | None = None
    """Offsets of the lane's consumer group; None if there are none, or no longer any."""
    last: LastWrite = NO_WRITE
    """The group's offset for the block, with its metadata."""
    recorded: Marker = field(default_factory=Marker)
    """The last record on the topic of markers."""
    epoch: int = 0
    open: Transaction | None = None
    in_doubt: Transaction | None = None
    """Its commit has reached the coordinator, which has not finished it."""

    def apply(self, transaction: Transaction, *, offsets: bool = True) -> None:
        """Commit, without the group's offsets if those stay in doubt."""
        assert transaction.marker is not None
        self.committed += transaction.records
        self.recorded = transaction.marker
        if offsets:
            self.group, self.last = transaction.marker, transaction.write

    def forget_offsets(self) -> None:
        """Forget the group's offsets, as Kafka does."""
        self.group, self.last = None, NO_WRITE


class Log:
    """The logs of all lanes.

    ``on_commit`` is called with a lane after each commit; ``fences``, ``atomic`` and ``finishes`` are off in broken worlds.
    """

    def __init__(self, schedule: Schedule, on_commit: Callable[[str], None]) -> None:
        self.schedule = schedule
        self.lanes: defaultdict[str, LaneLog] = defaultdict(LaneLog)
        self.on_commit = on_commit
        self.fences = True
        self.atomic = True
        self.finishes = True

    def lane(self, name: str) -> LaneLog:
        """Return the log of a lane."""
        return self.lanes[name]

    def apply(self, lane: str, transaction: Transaction) -> None:
        """Commit a transaction of a lane."""
        fault = self.schedule.step("commit offsets", "offsets in doubt")
        self.lane(lane).apply(transaction, offsets=fault is None)
        self.on_commit(lane)

    def settle(self, lane: str, *, now: bool = False) -> None:
        """Finish a commit that is in doubt: at some point by itself, at the latest before another writer opens."""
        own = self.lane(lane)
        if own.in_doubt is not None and (now or self.schedule.chance(0.2)):
            finished, own.in_doubt = own.in_doubt, None
            self.apply(lane, finished)


class Writer:
    """`validator.lanes.sink.BatchWriter` on the fake log, with the logic of `streaming.transactions.TransactionalWriter`."""

    def __init__(self, log: Log, lane: str, job: str, interrupt: Callable[[str], None]) -> None:
        self._log = log
        self._lane = lane
        self._job = job
        self._interrupt = interrupt
        self._marker: Marker | None = None
        self._found = self._seen = NO_WRITE
        self._transaction: Transaction | None = None
        self._dead_letters: set[bytes] | None = None
        self._noted = False
        self._pass("init", "worker killed", "job killed", "call failed")
        own = log.lane(lane)
        own.epoch += 1
        self._epoch = own.epoch
        self._writer = str(own.epoch)
        own.open = None  # uncommitted records are aborted
        log.settle(lane, now=log.finishes)
        self._pass("after init", "worker killed", "job killed", "call failed")

    def is_current(self) -> bool:
        """Return whether no other writer has written the lane since."""
        self._pass("read who was last", "worker killed", "job killed", "call failed")
        if self._marker is None:
            return False
        self._refuse_another_job()
        last = self._last_written()
        current = last == self._found or last.writer == self._writer
        self._log.schedule.faults["writer of another worker"] += not current
        return current

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return the lane's marker."""
        self._pass("read marker", "worker killed", "job killed", "call failed")
        if self._marker is None:
            marker = self._log.lane(self._lane).recorded
            self._pass("read who was last", "worker killed", "job killed", "call failed")
            self._marker, self._found = marker, self._last_written()
            self._seen = self._found
        return self._marker.after(None, dict.fromkeys(places, 0))

    def note_dead_letters(self) -> None:
        """Note where the committed dead letters end."""
        if self._dead_letters is None and not self._noted:
            self._pass("note dead letters", "worker killed", "job killed", "call failed")
            self._noted = True

    def written_dead_letters(self) -> set[bytes]:
        """Return the sources of committed dead letters, read once."""
        if self._dead_letters is None:
            own = () if self._transaction is None else self._transaction.records
            if not self._noted and any(each.topic == "dead-letters" for each in own):
                raise CallFailed  # no reader gets past the writer's own transaction
            self._pass("read dead letters", "worker killed", "job killed", "call failed")
            self._log.schedule.faults["dead letters asked for"] += 1
            committed = self._log.lane(self._lane).committed
            self._dead_letters = {source_of_header(each) for each in committed if each.topic == "dead-letters"}
        return self._dead_letters

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Add records to the transaction."""
        self._begin()
        assert self._transaction is not None
        for at, record in enumerate(records):
            if at == 1:
                self._pass("inside the transaction", "worker killed", "job killed", "call failed")
            self._transaction.records.append(record)
            if record.topic == "dead-letters" and self._dead_letters is not None:
                self._dead_letters.add(source_of_header(record))

    def commit(self, marker: Marker) -> None:
        """Commit records and marker."""
        self._begin()
        self._pass("before commit", "worker killed", "job killed", "call failed")
        self._check()
        own, transaction = self._log.lane(self._lane), self._transaction
        assert transaction is not None
        write = LastWrite(0 if marker.block is None else marker.block + 1, self._job, self._writer)
        transaction.marker, transaction.write = marker, write
        fault = self._log.schedule.step("commit", "answer lost", "finished late", "never reached", often=4)
        if fault == "never reached":
            raise CallFailed
        self._transaction, own.open = None, None
        if fault == "finished late":
            own.in_doubt = transaction
            raise CallFailed
        if not self._log.atomic:
            own.committed += transaction.records
            self._log.on_commit(self._lane)
            self._pass("between records and marker", "worker killed", "job killed")
            transaction = Transaction([], marker, write)
        self._log.apply(self._lane, transaction)
        if fault == "answer lost":
            raise CallFailed
        self._pass("after commit", "worker killed", "job killed")
        self._marker = marker
        self._seen = write
        if self._noted:
            self._noted, self._dead_letters = False, None

    def _begin(self) -> None:
        self._check()
        if self._transaction is None:
            self._pass("begin", "worker killed", "job killed", "call failed")
            self._transaction = self._log.lane(self._lane).open = Transaction()
        self._pass("produce", "worker killed", "job killed", "call failed")

    def _check(self) -> None:
        if self._log.fences and self._epoch != self._log.lane(self._lane).epoch:
            self._refuse_another_job()
            raise CallFailed

    def _last_written(self) -> LastWrite:
        return self._log.lane(self._lane).last

    def _refuse_another_job(self) -> None:
        last = self._last_written()
        if last.offset is not None and last.offset > (self._seen.offset or 0) and last.job != self._job:
            self._log.schedule.faults["another job found"] += 1
            raise Fenced

    def _pass(self, name: str, *faults: str) -> None:
        self._log.settle(self._lane)
        self._interrupt(name)
        raise_fault(self._log.schedule.step(name, *faults))


def raise_fault(fault: str | None) -> None:
    """Raise the exception of a fault."""
    if fault == "worker killed":
        raise WorkerKilled
    if fault == "job killed":
        raise JobKilled
    if fault == "call failed":
        raise CallFailed
