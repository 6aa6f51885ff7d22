# SPDX-License-Identifier: Apache-2.0
"""An in-memory stand-in for Kafka: a test supplies the job's output records and reads what the transport submits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, Thread
from typing import Any, Final, NamedTuple

from validator.codec.json_form import encode_json
from validator.config import DEFAULT_PROTOCOL
from validator.errors import LeaseLost, UserError
from validator.metrics.own import checked, exported
from validator.metrics.report import TRANSPORT
from validator.plugin.api import Measures, OutputRecord, Record, Transport
from validator.plugin.enqueued import CLOSED, Done, Enqueued, size_of
from validator.plugin.job_api import Job, JobContext, open_job
from validator.plugin.limits import ENQUEUED_RECORDS_MAX, READERS_MAX
from validator.plugin.registry import (
    Plugin,
    PluginError,
    Problem,
    canonical,
    configure,
    installed,
    register_object,
    transports_of,
)
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.plugin.submission import (
    NO_CURSORS,
    RecordForms,
    check_commit,
    check_enqueued,
    check_timeout,
    job_topics,
    start_offsets,
)
from validator.topics import OUTPUT_TOPICS

LOOK_S: Final = 0.02
"""Seconds after which a waiting reader sees a record that a test appended to the list itself."""


class EnqueuedRecord(NamedTuple):
    """A record that a transport has enqueued, as it was written."""

    topic: str
    key: bytes
    value: bytes
    headers: dict[str, bytes]


class MemoryQueue:
    """Writes enqueued records in their order, in its own thread, while `MemoryTransport.is_held` is not set."""

    def __init__(self, memory: MemoryTransport, write: Callable[[EnqueuedRecord], str | None]) -> None:
        self._memory, self._write = memory, write
        self._changed = memory.changed
        self._records: deque[tuple[int, EnqueuedRecord]] = deque()
        self.enqueued = Enqueued(memory.enqueued_records_max)
        self._closed = self._given_up = False
        self._thread = Thread(target=self._run, name="enqueued records", daemon=True)
        self._thread.start()

    def put(self, record: EnqueuedRecord, done: Done) -> bool:
        """Take a record, or return False if the queue is full."""
        with self._changed:
            number = self.enqueued.add(size_of(*record[1:]), done)
            if number is None:
                return False
            self._records.append((number, record))
            self._changed.notify_all()
            return True

    def close(self, *, gives_up: bool) -> None:
        """Write what waits, unless it is held or the queue ``gives_up``; report all, and end the thread."""
        with self._changed:
            self._closed, self._given_up = True, gives_up
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._records and not self._memory.is_held))
                if not self._records or self._given_up or self._memory.is_held:
                    break
                number, record = self._records.popleft()
            self.enqueued.settle(number, self._write(record))
        self.enqueued.settle_all(CLOSED)


class MemoryReader:
    """A reader of the outputs in memory: one partition for each topic (`validator.plugin.api.OutputReader`)."""

    def __init__(
        self, memory: MemoryTransport, topics: Sequence[str], check: Callable[[], None], stopping: Callable[[], bool]
    ) -> None:
        self._memory, self._topics, self._check, self._stopping = memory, topics, check, stopping
        self._at = 0
        """The index of the next output to look at; all before are received or before a position."""
        self._next = self._begins()
        self.is_closed = False
        """Whether `close` was called."""

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Continue from the given offsets. Raises ``ValueError``."""
        self._check_open()
        self._next, self._at = start_offsets(offsets, self._begins(), self.ends()), 0

    def receive(self, timeout_s: float) -> OutputRecord | None:
        """Return the next record, waiting for one as on Kafka. Raises ``ValueError``."""
        check_timeout(timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            self._check_open()
            left = max(0.0, deadline - time.monotonic())
            record = self._looked(min(left, LOOK_S))
            if record is not None or left <= LOOK_S or self._stopping():
                return record

    def positions(self) -> dict[tuple[str, int], int]:
        """Return each partition's next offset."""
        return dict(self._next)

    def ends(self, *, committed: bool = True) -> dict[tuple[str, int], int]:  # noqa: ARG002 - nothing here is under way
        """Return how many records each topic has had."""
        self._check_open()
        return {(topic, 0): sum(output[0] == topic for output in self._memory.outputs) for topic in self._topics}

    def close(self) -> None:
        """Close the reader."""
        self.is_closed = True

    def _looked(self, wait_s: float) -> OutputRecord | None:
        """Return the next record, if it is there or comes within the time given: who asks again and again while stopping waits here."""
        with self._memory.changed:
            record = self._found()
            if record is None and self._memory.changed.wait(wait_s):
                record = self._found()
        return record

    def _found(self) -> OutputRecord | None:
        for place, begin in self._begins().items():
            self._next[place] = max(self._next[place], begin)
        while self._at < len(self._memory.outputs):
            topic, key, value = self._memory.outputs[self._at]
            offset = self._memory.offset_of(self._at)
            self._at += 1
            if offset == self._next.get((topic, 0)):
                self._next[topic, 0] += 1
                return OutputRecord(topic, 0, offset, key, value)
        return None

    def _begins(self) -> dict[tuple[str, int], int]:
        return {(topic, 0): self._memory.begins.get(topic, 0) for topic in self._topics}

    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError("reader: expected an open one, found a closed one")
        self._check()


class MemoryTransport:
    """One transport of ``plugin``, with lists in place of Kafka.

    ``plugin`` is a module or object with hooks, or the name of an installed plugin. ``config`` is what ``[transports.<name>]`` would hold.
    ``transport`` selects one if the plugin yields several. `outputs` are the records of all output topics; the transport receives those of
    its topics. `submitted` are the records that it wrote. ``protocols`` are the protocols by lane; other lanes have the default one. The
    transport's jobs are those installed, without options, for these lanes. What is written to one of their topics is an output, too.

    Raises `PluginError` for problems of the plugin or its configuration, then `UserError` if the plugin does not yield this transport.
    """

    def __init__(
        self,
        plugin: Any,
        config: Mapping[str, Any] | None = None,
        *,
        transport: str | None = None,
        outputs: Iterable[Record] = (),
        protocols: Mapping[str, str] | None = None,
    ) -> None:
        self.plugin = _resolve(plugin)
        values = canonical(dict(config or {}))
        self.config = configure(self.plugin, values)
        self.transport = _choose(self.plugin, transports_of(self.plugin, values), transport)
        lanes = dict(protocols or {})
        codec = codec_of(map(RuntimePlan, {DEFAULT_PROTOCOL, *lanes.values()}))
        jobs = job_topics((_job(name, lanes) for name in self.transport.jobs), self.transport.own)
        self.forms = RecordForms(codec, lambda lane: lanes.get(lane, DEFAULT_PROTOCOL), jobs)
        """Converts records for the transport, and for its tests."""
        self.outputs: list[Record] = list(outputs)
        """The job's output records, in order; append to the list between two runs."""
        self.submitted: list[Record] = []
        """The records written to input topics, in order."""
        self.acknowledged = 0
        """How many of `outputs` are acknowledged and not received again."""
        self.enqueued: list[EnqueuedRecord] = []
        """Those of `submitted` that were enqueued, with their headers."""
        self.cursors: dict[str, bytes] = {}
        """The committed cursors, by name."""
        self.on_commit: Callable[[list[Record], Mapping[str, bytes]], None] = lambda _, __: None
        """Called before a commit takes effect; it may raise, or call `lose_lease`."""
        self.enqueued_records_max = ENQUEUED_RECORDS_MAX
        """How many enqueued records may wait in the next run."""
        self.refuse: Callable[[EnqueuedRecord], str | None] = lambda _: None
        """Returns the reason why Kafka refuses an enqueued record, or None; it may also call `lose_lease` or block."""
        self.is_held = False
        """Whether enqueued records wait, as while Kafka is down."""
        self.begins: dict[str, int] = {}
        """By topic, the first offset that retention has kept, for readers; 0 by default."""
        self.measures: Measures = lambda: ()
        """Returns the values of the transport's metrics; see `measured`."""
        self.changed = Condition()
        """Notified when a thread that waits should look again."""
        self._offsets: list[int] = []
        self._counts: dict[str, int] = {}
        self._context: MemoryContext | None = None

    def emit(self, topic: str, record: Mapping[str, Any]) -> None:
        """Append an output record, given in JSON form, as the job would emit it. Raises `UserError` for a wrong topic or record."""
        if topic in self.forms.jobs:
            try:
                self.append(topic, *self.forms.encode_for_job(topic, record))
            except ValueError as error:
                raise UserError(str(error)) from None
            return
        names = self.forms.codec.names(topic) if topic in OUTPUT_TOPICS else ()
        for at, name in enumerate(names):
            try:
                value = encode_json(self.forms.codec.schemas[name], dict(record))
            except UserError:
                if at + 1 == len(names):
                    raise
                continue
            self.append(topic, str(record["lane"]).encode(), value)
            return
        raise UserError(f"topic: expected one of {', '.join(self.forms.outputs)}, found {topic!r}")

    def append(self, topic: str, key: bytes, value: bytes) -> None:
        """Append an output record as Kafka holds it."""
        with self.changed:
            self.outputs.append((topic, key, value))
            self.changed.notify_all()

    def measured(self) -> dict[tuple[str, ...], float]:
        """Return the values of the transport's metrics by name and labels. Raises ``ValueError`` for what the product would leave out."""
        metrics = exported(self.transport.name, TRANSPORT, self.transport.metrics)
        declared = {metric.name: name for name, metric in metrics.items()}
        return {(declared[name], *labels): value for name, labels, value in checked(metrics, self.measures())}

    def run(self, *, receives_max: int | None = None, submits_max: int | None = None, live: bool = False) -> None:
        """Start the transport, as a restarted process does, from the first record not acknowledged, and run it until it returns.

        The context asks it to stop when nothing is left to receive, after ``receives_max`` records received, or after ``submits_max``
        submitted or enqueued. With ``live``, `TransportContext.receive` waits for records as on Kafka instead of stopping at their end;
        another thread calls `stop`. Raises whatever the transport raises.
        """
        with self.open(receives_max=receives_max, submits_max=submits_max, live=live) as context:
            self.transport.run(context)

    @contextmanager
    def open(
        self, *, receives_max: int | None = None, submits_max: int | None = None, live: bool = False
    ) -> Iterator[MemoryContext]:
        """Yield the context of a run, for tests that call it themselves; arguments as for `run`."""
        context = self._context = MemoryContext(self, receives_max, submits_max, live=live)
        done = False
        try:
            yield context
            done = True
        finally:
            context.close(gives_up=not done)

    def stop(self) -> None:
        """Ask the running transport to stop, as a signal does."""
        if self._context is not None:
            self._context.stop()

    def lose_lease(self) -> None:
        """Make the running transport lose its lease, as when Kafka has not heard from its process for too long."""
        if self._context is not None:
            self._context.lose_lease()

    def hold(self) -> None:
        """Make records that are enqueued from now on wait, as while Kafka is down."""
        self.is_held = True

    def release(self) -> None:
        """Write the records that wait, as when Kafka is there again."""
        with self.changed:
            self.is_held = False
            self.changed.notify_all()

    def offset_of(self, index: int) -> int:
        """Return the offset of one of `outputs`: its position among those of its topic."""
        with self.changed:
            for topic, _, _ in self.outputs[len(self._offsets) : index + 1]:
                self._offsets.append(self._counts.get(topic, 0))
                self._counts[topic] = self._offsets[-1] + 1
            return self._offsets[index]


class MemoryContext:
    """The context of one run (`validator.plugin.api.TransportContext`)."""

    def __init__(
        self, memory: MemoryTransport, receives_max: int | None, submits_max: int | None, *, live: bool = False
    ) -> None:
        self.config = memory.config
        self.encode, self.decode = memory.forms.encode, memory.forms.decode
        self._memory = memory
        self._position = memory.acknowledged
        self._receives_left = receives_max
        self._submits_left = submits_max
        self._live = live
        self._stopping = 0 in (receives_max, submits_max)
        self._lost = False
        self._queue: MemoryQueue | None = None
        self._readers: list[MemoryReader] = []

    @property
    def stopping(self) -> bool:
        """Whether the transport should stop."""
        return self._stopping or self._lost or (self._queue is not None and self._queue.enqueued.has_failed)

    def stop(self) -> None:
        """Ask the transport to stop."""
        with self._memory.changed:
            self._stopping = True
            self._memory.changed.notify_all()

    def lose_lease(self) -> None:
        """Make every further call raise `LeaseLost`."""
        with self._memory.changed:
            self._lost = True
            self._memory.changed.notify_all()

    def close(self, *, gives_up: bool) -> None:
        """Close what is open. Raises ``RuntimeError`` if a ``done`` has raised, unless the queue ``gives_up``."""
        for reader in self._readers:
            reader.close()
        if self._queue is not None:
            self._queue.close(gives_up=gives_up or self._lost)
            if not gives_up:
                self._queue.enqueued.check()

    def submit(self, topic: str, key: bytes, value: bytes) -> None:
        """Append a record to `MemoryTransport.submitted`. Raises ``ValueError``."""
        self._memory.forms.check_submission(topic, key, value)
        self._check()
        with self._memory.changed:
            self._append((topic, key, value))

    def enqueue(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        done: Callable[[str | None], None],
        headers: Mapping[str, bytes] = {},
    ) -> bool:
        """Append a record to `MemoryTransport.submitted` in another thread. Raises ``ValueError``."""
        self._memory.forms.check_submission(topic, key, value)
        check_enqueued(key, done, headers)
        self._check()
        with self._memory.changed:
            if self._queue is None:
                self._queue = MemoryQueue(self._memory, self._write)
        return self._queue.put(EnqueuedRecord(topic, key, value, dict(headers)), done)

    def cursor(self, name: str) -> bytes | None:
        """Return a cursor of `MemoryTransport.cursors`, or None. Raises ``ValueError``."""
        if not self._memory.transport.cursors:
            raise ValueError(NO_CURSORS)
        self._check()
        return self._memory.cursors.get(name)

    def commit(self, records: Iterable[Record], cursors: Mapping[str, bytes]) -> None:
        """Append records to `MemoryTransport.submitted` and set `MemoryTransport.cursors`. Raises ``ValueError``."""
        if not self._memory.transport.cursors:
            raise ValueError(NO_CURSORS)
        given = list(records)
        check_commit(self._memory.forms, given, cursors)
        with self._memory.changed:
            self._memory.on_commit(given, cursors)
            self._check()
            for record in given:
                self._append(record)
            self._memory.cursors |= cursors

    def reader(self, topics: Iterable[str]) -> MemoryReader:
        """Return a reader of `MemoryTransport.outputs`. Raises ``ValueError``."""
        names = self._memory.forms.output_topics(topics)
        self._check()
        self._readers = [each for each in self._readers if not each.is_closed]
        if len(self._readers) >= READERS_MAX:
            raise ValueError(f"readers: expected at most {READERS_MAX} open ones, found one more")
        self._readers.append(MemoryReader(self._memory, names, self._check, lambda: self.stopping))
        return self._readers[-1]

    def measure(self, measures: Measures) -> None:
        """Keep the function that `MemoryTransport.measured` asks."""
        self._memory.measures = measures

    def receive(self, timeout_s: float) -> Record | None:
        """Return the next record of the transport's topics, or None at once if there is none. Raises ``ValueError``."""
        check_timeout(timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            self._check()
            record = self._next()
            left = deadline - time.monotonic()
            if record is not None or not self._live or left <= 0 or self.stopping:
                self._stopping = self._stopping or (record is None and not self._live)
                return record
            with self._memory.changed:
                self._memory.changed.wait(min(left, LOOK_S))

    def acknowledge(self) -> None:
        """Mark everything received so far as delivered, so that it is not received again."""
        self._check()
        self._memory.acknowledged = self._position

    def _next(self) -> Record | None:
        outputs, topics = self._memory.outputs, self._memory.transport.topics
        while not self._stopping and self._position < len(outputs):
            record = outputs[self._position]
            self._position += 1
            if record[0] in topics:
                if self._receives_left is not None:
                    self._receives_left -= 1
                    self._stopping = self._receives_left <= 0
                return record
        return None

    def _write(self, record: EnqueuedRecord) -> str | None:
        reason = self._memory.refuse(record)
        if reason is None:
            with self._memory.changed:
                self._memory.enqueued.append(record)
                self._append(record[:3])
        return reason

    def _append(self, record: Record) -> None:
        self._memory.submitted.append(record)
        if record[0] in self._memory.forms.jobs:
            self._memory.append(*record)
        if self._submits_left is not None:
            self._submits_left -= 1
            self._stopping = self._stopping or self._submits_left <= 0

    def _check(self) -> None:
        if self._lost:
            raise LeaseLost("transport: this process is not the active one any more")
        if self._queue is not None:
            self._queue.enqueued.check()


def _resolve(plugin: Any) -> Plugin:
    group = "validator.transports"
    if isinstance(plugin, str):
        there = installed(group, [plugin])
        if len(there) > 1:
            versions = ", ".join(version for _, version in there)
            raise PluginError([Problem(plugin, f"versions {versions} are installed", "leave one of them")])
        return next(iter(there.values()))
    return register_object(group, plugin)


def _job(name: str, lanes: Mapping[str, str]) -> Job:
    chains = {lane: {"protocol": protocol, "limits": {}} for lane, protocol in lanes.items()}
    return open_job(JobContext(name, {}, chains))


def _choose(plugin: Plugin, transports: tuple[Transport, ...], name: str | None) -> Transport:
    chosen = [each for each in transports if name in (None, each.name)]
    if len(chosen) != 1:
        there = ", ".join(sorted(each.name for each in transports)) or "none"
        raise UserError(f"{plugin}: expected one transport{'' if name is None else f' {name!r}'}, found {there}")
    return chosen[0]
