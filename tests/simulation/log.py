# SPDX-License-Identifier: Apache-2.0
"""Kafka as a lane's writer sees it: transactions, fencing, consumer groups, and calls with an unknown outcome."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import KafkaError

from streaming.transactions import TransactionalWriter
from tests.simulation.inputs import source_of_header
from tests.simulation.schedule import Schedule
from validator.checkpoint.markers import DOUBTFUL_HEADER, JOB_HEADER, WRITER_HEADER, LaneOnKafka, Written
from validator.codec.encode import OutputRecord
from validator.codec.json_form import to_json
from validator.core.types import BlockNumber
from validator.kafka.transaction import Fenced, Sent, WriteFailed, WriterFenced
from validator.lanes.marker import Consumed, Marker


class CallFailed(WriteFailed):
    """A call to Kafka failed or timed out; its writer cannot be used again."""

    def __init__(self) -> None:
        super().__init__("the schedule says so")


class WorkerKilled(Exception):
    """A Python worker has died, and its memory is lost."""


class JobKilled(Exception):
    """Driver, JVM and workers have died."""


@dataclass(slots=True)
class Transaction:
    """What a producer has sent but not committed."""

    records: list[OutputRecord] = field(default_factory=list)
    marker: Marker | None = None
    written_by: tuple[str, str] | None = None


@dataclass(slots=True)
class LaneLog:
    """Kafka's data for one lane's output."""

    committed: list[OutputRecord] = field(default_factory=list)
    group: BlockNumber | None = None
    """The last block that the lane's consumer group knows; None if it knows none, or no longer any."""
    on_their_way: list[BlockNumber] = field(default_factory=list)
    """Commits of the group that have not reached its coordinator."""
    recorded: Marker = field(default_factory=Marker)
    """The last record on the topic of markers."""
    written_by: tuple[str, str] | None = None
    """The job and the writer that wrote it."""
    marks: int = 0
    """Records on the topic of markers, of which that is the last."""
    epoch: int = 0
    open: Transaction | None = None
    in_doubt: Transaction | None = None
    """Its commit has reached the coordinator, which has not finished it."""

    def apply(self, transaction: Transaction) -> None:
        """Commit."""
        assert transaction.marker is not None
        self.committed += transaction.records
        self.recorded, self.written_by = transaction.marker, transaction.written_by
        self.marks += 1

    def receipt(self) -> BlockNumber | None:
        """Return the block of the last committed receipt."""
        last = next((record for record in reversed(self.committed) if record.topic == "receipts"), None)
        return None if last is None else to_json("receipts", last.value)["block"]


class Log:
    """The logs of all lanes.

    ``on_commit`` is called with a lane after each commit, ``ends`` returns where the inputs end; ``fences``, ``atomic`` and ``finishes``
    are off in broken worlds.
    """

    def __init__(self, schedule: Schedule, on_commit: Callable[[str], None], ends: Callable[[], Consumed]) -> None:
        self.schedule = schedule
        self.ends = ends
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
        self.lane(lane).apply(transaction)
        self.on_commit(lane)

    def settle(self, lane: str, *, now: bool = False) -> None:
        """Finish a commit that is in doubt: at some point by itself, at the latest before another writer opens.

        Commits of the group arrive at any time and in any order, since a writer that was fenced off may still have some on their way.
        """
        own = self.lane(lane)
        if own.on_their_way and self.schedule.chance(0.3):
            own.group = own.on_their_way.pop(self.schedule.random.randrange(len(own.on_their_way)))
        if own.in_doubt is not None and (now or self.schedule.chance(0.2)):
            finished, own.in_doubt = own.in_doubt, None
            self.apply(lane, finished)


class Lane(LaneOnKafka):
    """What the fake log has of a lane."""

    def __init__(self, log: Log, lane: str, interrupt: Callable[[str], None]) -> None:
        super().__init__({}, "", lane)
        self.log, self.interrupt = log, interrupt
        self.own = log.lane(lane)
        self.producer: Producer | None = None
        self._known: BlockNumber | None = None
        self._is_hidden = False

    def writer(self) -> Any:
        """Open a producer, which ends the transaction of the one before."""
        self.reach("init")
        self.own.epoch += 1
        self.producer = Producer(self, self.own.epoch)
        self.own.open = None  # uncommitted records are aborted
        self.log.settle(self.lane, now=self.log.finishes)
        self.reach("after init")
        return self.producer

    def written(self, progress_s: float | None = 0.0) -> Written:
        """Return the marker, or none at all where that must be noticed: Kafka says so right after a partition's leader has died."""
        if progress_s is not None:
            self.reach("read marker")
            if self._known is not None and self._hides():
                return Written(Marker())
        if self.own.written_by is None:
            return Written(self.own.recorded)
        return Written(self.own.recorded, *self.own.written_by, (0, self.own.marks))

    def _hides(self) -> bool:
        """Return whether the marker is not shown; then perhaps not the second time either."""
        again = self._is_hidden and self.log.schedule.chance(0.5)
        now = self.log.schedule.step("look for the end", "marker not shown", often=4) is not None
        self._is_hidden = again or now
        return self._is_hidden

    def group_block(self) -> BlockNumber | None:
        """Ask the group, which may not answer."""
        silent = self.log.schedule.step("ask the group", "group silent") is not None
        self._known = None if silent else self.own.group
        return self._known

    def last_receipt(self) -> BlockNumber | None:
        """Return the block of the last receipt."""
        if self._transaction() is not None:
            raise CallFailed  # no reader gets past the writer's own transaction
        self.reach("read receipts")
        return self.own.receipt()

    def input_ends(self) -> Consumed:
        """Return where the inputs end."""
        return self.log.ends()

    def dead_letter_ends(self) -> Consumed:
        """Note where the committed dead letters end."""
        self.reach("note dead letters")
        return {}

    def dead_letters(self, ends: Consumed | None = None) -> set[bytes]:
        """Return the sources of committed dead letters."""
        transaction = self._transaction()
        own = () if transaction is None else transaction.records
        if ends is None and any(each.topic == "dead-letters" for each in own):
            raise CallFailed  # no reader gets past the writer's own transaction
        self.reach("read dead letters")
        self.log.schedule.faults["dead letters asked for"] += 1
        return {source_of_header(each) for each in self.own.committed if each.topic == "dead-letters"}

    def hand_to_group(self, consumed: Consumed, block: BlockNumber | None) -> None:
        """Commit the group's offsets at some time, or never."""
        lost = self.log.schedule.step("commit the group's offsets", "group commit lost", often=5) is not None
        if not lost and block is not None:
            self.own.on_their_way.append(block)

    def reach(self, name: str) -> None:
        """Reach a step, at which the schedule may let the worker, the job or the call fail."""
        self.log.settle(self.lane)
        self.interrupt(name)
        raise_fault(self.log.schedule.step(name, "worker killed", "job killed", "call failed"))

    def _transaction(self) -> Transaction | None:
        return None if self.producer is None else self.producer.transaction


class Producer:
    """`validator.kafka.transaction.FencedWriter` on the fake log."""

    def __init__(self, lane: Lane, epoch: int) -> None:
        self._lane, self._epoch = lane, epoch
        self.transaction: Transaction | None = None

    def send(self, records: Iterable[Sent]) -> None:
        """Add records to the transaction."""
        self._begin()
        assert self.transaction is not None
        for at, (topic, key, value, headers) in enumerate(records):
            if at == 1:
                self._lane.reach("inside the transaction")
            self.transaction.records.append(OutputRecord(topic, key or b"", value, tuple(headers or ())))

    def commit(self, progress: Iterable[Sent]) -> None:
        """Commit records and marker."""
        ((_, _, value, headers),) = progress
        names = dict(headers or ())
        self._begin()
        self._lane.reach("before commit")
        self._check()
        log, own, transaction = self._lane.log, self._lane.own, self.transaction
        assert transaction is not None
        transaction.marker = replace(Marker.decode(value), doubtful=DOUBTFUL_HEADER in names)
        transaction.written_by = names[JOB_HEADER].decode(), names[WRITER_HEADER].decode()
        fault = log.schedule.step("commit", "answer lost", "finished late", "never reached", often=4)
        if fault == "never reached":
            raise CallFailed
        self.transaction, own.open = None, None
        if fault == "finished late":
            own.in_doubt = transaction
            raise CallFailed
        if not log.atomic:
            own.committed += transaction.records
            log.on_commit(self._lane.lane)
            log.settle(self._lane.lane)
            self._lane.interrupt("between records and marker")
            raise_fault(log.schedule.step("between records and marker", "worker killed", "job killed"))
            transaction = Transaction([], transaction.marker, transaction.written_by)
        log.apply(self._lane.lane, transaction)
        if fault == "answer lost":
            raise CallFailed
        log.settle(self._lane.lane)
        self._lane.interrupt("after commit")
        raise_fault(log.schedule.step("after commit", "worker killed", "job killed"))

    def _begin(self) -> None:
        self._check()
        if self.transaction is None:
            self._lane.reach("begin")
            self.transaction = self._lane.own.open = Transaction()
        self._lane.reach("produce")

    def _check(self) -> None:
        if self._lane.log.fences and self._epoch != self._lane.own.epoch:
            raise Fenced("another writer has opened", KafkaError(KafkaError._FENCED))


class Writer(TransactionalWriter):
    """The job's own writer of a lane, on the fake log."""

    def __init__(self, log: Log, lane: str, job: str, interrupt: Callable[[str], None]) -> None:
        self._faults = log.schedule.faults
        super().__init__(Lane(log, lane, interrupt), job)

    def _taken_over(self, fenced: Fenced, last: Written) -> WriteFailed | WriterFenced:
        found = super()._taken_over(fenced, last)
        self._faults["another job found"] += isinstance(found, WriterFenced)
        return found


def raise_fault(fault: str | None) -> None:
    """Raise the exception of a fault."""
    if fault == "worker killed":
        raise WorkerKilled
    if fault == "job killed":
        raise JobKilled
    if fault == "call failed":
        raise CallFailed
