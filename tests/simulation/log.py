# SPDX-License-Identifier: Apache-2.0
"""Kafka as a lane's writer sees it: transactions, fencing, consumer groups, and calls of which nobody knows whether they took effect."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.simulation.inputs import source_of_header
from tests.simulation.schedule import Schedule
from validator.codec.encode import OutputRecord
from validator.lanes.marker import Marker


class CallFailed(Exception):
    """A call to Kafka failed or timed out; its writer is of no more use."""


class Fenced(Exception):
    """Another writer has the lane."""


class WorkerKilled(Exception):
    """A Python worker is gone, with all that it held."""


class JobKilled(Exception):
    """Driver, JVM and workers are gone."""


@dataclass(slots=True)
class Transaction:
    """What a producer has sent and not committed."""

    records: list[OutputRecord] = field(default_factory=list)
    marker: Marker | None = None
    job: str | None = None


@dataclass(slots=True)
class LaneLog:
    """What Kafka holds of one lane's output."""

    committed: list[OutputRecord] = field(default_factory=list)
    group: Marker | None = None
    """Offsets of the lane's consumer group; None where there are none, or no more."""
    recorded: Marker = field(default_factory=Marker)
    """The last record on the topic of markers."""
    job: str | None = None
    """That has committed last."""
    epoch: int = 0
    open: Transaction | None = None
    in_doubt: Transaction | None = None
    """Its commit has reached the coordinator, which has not finished it."""

    def apply(self, transaction: Transaction) -> None:
        """Commit."""
        assert transaction.marker is not None
        self.committed += transaction.records
        self.group = self.recorded = transaction.marker
        self.job = transaction.job


class Log:
    """All lanes' logs. ``on_commit`` is called with a lane after each commit; ``fences`` and ``atomic`` are off in broken worlds."""

    def __init__(self, schedule: Schedule, on_commit: Callable[[str], None]) -> None:
        self.schedule = schedule
        self.lanes: dict[str, LaneLog] = {}
        self.on_commit = on_commit
        self.fences = True
        self.atomic = True

    def lane(self, name: str) -> LaneLog:
        """Return the log of a lane."""
        return self.lanes.setdefault(name, LaneLog())

    def apply(self, lane: str, transaction: Transaction) -> None:
        """Commit a transaction of a lane."""
        self.lane(lane).apply(transaction)
        self.on_commit(lane)


class Writer:
    """`validator.lanes.sink.BatchWriter` on the fake log, with the logic of `streaming.transactions.LaneWriter`."""

    def __init__(self, log: Log, lane: str, job: str, interrupt: Callable[[str], None]) -> None:
        self._log = log
        self._lane = lane
        self._job = job
        self._interrupt = interrupt
        self._marker: Marker | None = None
        self._seen: tuple[int | None, str | None] = (None, None)
        self._transaction: Transaction | None = None
        self._pass("init", "worker killed", "job killed", "call failed")
        own = log.lane(lane)
        own.epoch += 1
        self._epoch = own.epoch
        own.open = None  # what nobody committed is aborted
        if own.in_doubt is not None:
            finished, own.in_doubt = own.in_doubt, None
            log.apply(lane, finished)
        self._pass("after init", "worker killed", "job killed", "call failed")

    def is_current(self) -> bool:
        """Say whether nobody has written the lane since."""
        self._pass("read who was last", "worker killed", "job killed", "call failed")
        if self._marker is not None and self._told() == self._seen:
            return True
        self._refuse_another_job()
        self._log.schedule.faults["writer of another worker"] += 1
        return False

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return what the lane has told."""
        self._pass("read marker", "worker killed", "job killed", "call failed")
        own = self._log.lane(self._lane)
        unknown = [place for place in places if self._marker is None or place not in self._marker.consumed]
        group = own.group or Marker()
        if self._marker is None:
            self._marker = own.recorded.after(group.block, {})
            self._seen = self._told()
        known = {place: group.consumed.get(place, 0) for place in unknown}
        self._marker = self._marker.after(None, known)
        return self._marker

    def told_dead_letters(self) -> set[bytes]:
        """Return the sources of committed dead letters."""
        self._pass("read dead letters", "worker killed", "job killed", "call failed")
        self._log.schedule.faults["dead letters asked for"] += 1
        return {source_of_header(each) for each in self._log.lane(self._lane).committed if each.topic == "dead-letters"}

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Add records to the transaction."""
        self._begin()
        assert self._transaction is not None
        for at, record in enumerate(records):
            if at == 1:
                self._pass("inside the transaction", "worker killed", "job killed", "call failed")
            self._transaction.records.append(record)

    def commit(self, marker: Marker) -> None:
        """Commit records and marker."""
        self._begin()
        self._pass("before commit", "worker killed", "job killed", "call failed")
        self._check()
        own, transaction = self._log.lane(self._lane), self._transaction
        assert transaction is not None
        transaction.marker, transaction.job = marker, self._job
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
            transaction = Transaction([], marker, self._job)
        self._log.apply(self._lane, transaction)
        if fault == "answer lost":
            raise CallFailed
        self._pass("after commit", "worker killed", "job killed")
        self._marker = marker
        self._seen = (marker.block, self._job)

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

    def _told(self) -> tuple[int | None, str | None]:
        own = self._log.lane(self._lane)
        return (None, None) if own.group is None else (own.group.block, own.job)

    def _refuse_another_job(self) -> None:
        told = self._told()
        if told != self._seen and told[1] not in (self._job, None):
            self._log.schedule.faults["another job found"] += 1
            raise Fenced

    def _pass(self, name: str, *faults: str) -> None:
        self._interrupt(name)
        raise_fault(self._log.schedule.step(name, *faults))


def raise_fault(fault: str | None) -> None:
    """Make a fault happen."""
    if fault == "worker killed":
        raise WorkerKilled
    if fault == "job killed":
        raise JobKilled
    if fault == "call failed":
        raise CallFailed
