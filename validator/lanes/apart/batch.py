# SPDX-License-Identifier: Apache-2.0
"""A batch of a lane with handlers, as the worker sees it: what the lane's process does, and what it asks the worker to do."""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final, Self

from validator.codec.encode import BlockOutput, OutputRecord, reason_of, source_header, source_of
from validator.codec.inflight import Arrival, has_only_inputs, unpack
from validator.codec.orders import LaneOrder
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.codec.strict import StrictReader, record_reader
from validator.core.inputs import DeadReason, Source
from validator.core.limits import PARK_REASON_CHARACTERS_MAX, RECORD_BYTES_MAX, U32_MAX
from validator.core.scale import DecodeError
from validator.core.types import BlockNumber
from validator.lanes.apart.host import AUDIT_HASH_SEED, LaneProcess, LaneProcesses, LaneProcessFailed, write_quoted
from validator.lanes.apart.process import RECOVERY, AgainRequest, AskedGenesis, Start, refusal_of
from validator.lanes.apart.wire import Nonsense, Say, outputs_to_bytes, place_of_bytes, reading, text_of
from validator.lanes.arrived import Chunk
from validator.lanes.auditing import fault_key, is_chosen
from validator.lanes.definition import LaneDefinition, named_handlers
from validator.lanes.parked import Fault, Partition, Span, held_with, point_of, stored_parts
from validator.lanes.parking import RESUMED_BYTES_MAX, BatchRequest, LaneBatch
from validator.lanes.store import Head, LaneCache, Recovery, StateBackend
from validator.metrics.report import LANE, Report
from validator.topics import DEAD_LETTERS, LANES, METRICS

WRITTEN_SHARE: Final = 2
"""What a batch writes to a lane's store is at most this part of the memory of its process, which has it next to the lane itself."""

_REPEATS: Final = (Say.OUTPUT, Say.DONE, Say.FAILED)
"""What a process that executes a block for the audit says."""
_OTHERWISE: Final = b"otherwise"
"""No output: a second execution had none."""

_WRITE_BYTES: Final = 256
"""Bytes that each write takes besides its content, about."""
_SLOT_NUMBER_BYTES: Final = 4
_SLOT_NUMBER_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Services:
    """What a worker does for the process of a lane.

    ``held_inputs`` returns inputs of the lane (`validator.lanes.parking.HeldInputs`), ``confirm`` checks or corrects its marker
    (`validator.lanes.sink.LaneSink`), ``recovered`` notes that it was brought back into memory.
    """

    held_inputs: Callable[[Partition, Span, int], tuple[list[Arrival], int]]
    confirm: Callable[[bool], None]
    recovered: Callable[[Recovery], None]


@dataclass(slots=True)
class ApartBatch:
    """One batch of one lane, executed by the lane's process. ``chunks`` are its inputs, ``request`` everything else."""

    processes: LaneProcesses
    services: Services
    backend: StateBackend
    request: BatchRequest
    chunks: Iterable[Chunk]
    memory_bytes: int
    consumed: dict[Partition, int] = field(default_factory=dict)
    """By topic and partition, the offset after the last input taken; complete when the output is exhausted."""
    left_at: str = ""
    """The point at which the batch leaves the lane; known when the output is exhausted."""
    _process: LaneProcess | None = None
    _writes: list[Callable[[], None]] = field(default_factory=list)
    """What is to be written to the store, which nothing takes back: once it is known that the process can be trusted."""
    _repeated: dict[BlockNumber, bytes] = field(default_factory=dict)
    """By block that the audit executed, what it emits there."""
    _differing: list[BlockNumber] = field(default_factory=list)
    """Blocks whose output is another one, without a word of the lane."""
    _given: Given = field(init=False)
    _emitted: Emitted = field(init=False)
    _head: bytes | None = None
    """The head to be written, after everything else."""
    _written_bytes: int = 0
    """Bytes of ``_writes``, about."""
    _saved: set[int] = field(default_factory=set)
    """Slots that the batch writes."""
    _slots: set[int] | None = None
    """Slots that the store has once everything is written, if that was asked for."""

    def __post_init__(self) -> None:
        """Begin with what the lane's head says."""
        self._given = Given(self.request.head)
        self._emitted = Emitted(self.request.definition.name, self._last_block())

    def _last_block(self) -> BlockNumber | None:
        """Return the block after which the lane continues, if that is known here."""
        definition, head = self.request.definition, self.request.head
        if head is None:
            return definition.first_block - 1
        point, block = self.processes.left.get(definition.name, ("", None))
        return block if point == point_of(head) else None

    def run(self) -> Iterator[BlockOutput]:
        """Yield the batch's output.

        Raises `LaneProcessFailed`, `UserError` if the process has other plugins than the driver, and what the store or Kafka raise.
        """
        if self._is_to_be_parked():
            yield from self._park()
            return
        start = Start(list(sys.path), self.memory_bytes)
        process = self._process = self.processes.take(self.request.definition.name, start)
        genesis = self.request.definition.genesis
        process.ask(
            Say.BATCH,
            replace(self.request, definition=replace(self.request.definition, genesis=AskedGenesis())),
            may_recover=self.request.head is not None and (process.is_new or self._emitted.last is None),
        )
        for chunk in self.chunks:
            self._given.add(chunk)
            process.say(Say.CHUNK, pickle.dumps(tuple(chunk)))
        process.say(Say.CHUNKS_END)
        yield from self._serve(process, genesis, start)
        process.check_left()
        for write in self._writes:
            write()
        if self._head is not None:
            self.backend.save_head(self._head)
        self.left_at = point_of(self.request.head if self._head is None else self._head)

    def _is_to_be_parked(self) -> bool:
        suspect = self.request.suspects.get(self.request.definition.name)
        return suspect is not None and suspect.point == point_of(self.request.head)

    def _park(self) -> Iterator[BlockOutput]:
        """Park the lane here: that executes nothing, so it needs no handlers, and nothing that a process of the lane could spoil."""
        request = self.request

        def held_inputs(lane: str, place: Partition, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:  # noqa: ARG001
            return self.services.held_inputs(place, span, bytes_max)

        batch = LaneBatch.of(request, self.chunks, self.backend, LaneCache(), held_inputs)
        yield from batch.run()
        self.consumed, self.left_at = batch.consumed, batch.left_at

    def written(self, counts: dict[str, int]) -> None:
        """Say to the process that the batch is committed, and how many records went to each topic; it is kept for the next one."""
        if self._process is None:
            return
        lane = self.request.definition.name
        self.processes.left.pop(lane, None)
        head = self.request.head if self._head is None else self._head
        if self._emitted.last is not None and stored_parts(head)[0] is None:  # a parked lane executes blocks again
            self.processes.left[lane] = self.left_at, self._emitted.last
        with suppress(LaneProcessFailed):
            self._process.say(Say.WRITTEN, pickle.dumps(counts))
            self.processes.put(self.request.definition.name, self._process)
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the process unless the batch is written: what it has executed then is not what the store has."""
        if self._process is not None:
            self._process.end()

    def _serve(self, process: LaneProcess, genesis: Iterable[bytes], start: Start) -> Iterator[BlockOutput]:
        """Do what the process asks for until the batch is done, and yield what the lane emits."""
        backend, services = self.backend, self.services
        while True:
            said, data = process.hear()
            match said:
                case Say.OUTPUT:
                    outputs = process.outputs(data)
                    with process.taking_apart():
                        before = self._emitted.last
                        self._emitted.check(outputs)
                        if self._emitted.last != before:
                            process.pace.got_on()
                    self._compare(outputs)
                    yield from outputs
                case Say.DONE:
                    self._done(process, data)
                    return
                case Say.SAVE_HEAD:
                    with process.taking_apart():
                        self._given.check_head(self.request.definition.name, head := bytes(data))
                    self._head = head
                case Say.SAVE_SLOT | Say.REMOVE_SLOT | Say.APPEND_JOURNAL | Say.CLEAR_JOURNAL:
                    self._note_write(process, said, data)
                case Say.LOAD_SLOTS:
                    with process.within_memory():
                        process.say(Say.ANSWER, pickle.dumps(backend.load_slots()))
                case Say.LOAD_JOURNAL:
                    with process.within_memory():
                        process.say(Say.ANSWER, pickle.dumps(list(backend.load_journal())))
                case Say.GENESIS:
                    with process.within_memory():
                        process.say(Say.ANSWER, pickle.dumps(list(genesis)))
                case Say.HELD:
                    self._answer(process, partial(self._held, process, data))
                case Say.CONFIRM:
                    self._answer(process, partial(services.confirm, data == b"\x01"))
                case Say.AUDIT:
                    process.say(Say.ANSWER, pickle.dumps(self._audit(data, start)))
                case Say.RECOVERED:
                    with process.taking_apart():
                        recovery = self._recovery(data)
                    services.recovered(recovery)
                case Say.BUG:
                    write_quoted(text_of(data), f"lane {self.request.definition.name}: ")
                case _:
                    process.fail(said.name)

    def _note_write(self, process: LaneProcess, said: Say, data: bytearray) -> None:
        """Note what is to be written to the store, which may not raise because of it, and has a bound."""
        backend = self.backend
        if said is Say.REMOVE_SLOT and self._slots is None:
            with process.within_memory():
                self._slots = set(backend.load_slots()) | self._saved
        with process.taking_apart():
            self._written_bytes += len(data) + _WRITE_BYTES
            if self._written_bytes > self.memory_bytes // WRITTEN_SHARE:
                raise Nonsense(f"more than {self.memory_bytes // WRITTEN_SHARE} bytes for its state in one batch")
            match said:
                case Say.SAVE_SLOT:
                    number = self._slot_number(data)
                    self._saved.add(number)
                    if self._slots is not None:
                        self._slots.add(number)
                    self._writes.append(partial(backend.save_slot, number, bytes(data[4:])))
                case Say.REMOVE_SLOT:
                    number = self._slot_number(data)
                    if len(data) != _SLOT_NUMBER_BYTES or self._slots is None or number not in self._slots:
                        raise Nonsense(f"slot {number} to be removed, which it does not have")
                    self._slots.discard(number)
                    self._saved.discard(number)
                    self._writes.append(partial(backend.remove_slot, number))
                case Say.APPEND_JOURNAL:
                    self._writes.append(partial(backend.append_journal, bytes(data)))
                case _:
                    self._writes.append(backend.clear_journal)

    @staticmethod
    def _slot_number(data: bytearray) -> int:
        number = int.from_bytes(data[:_SLOT_NUMBER_BYTES], "little")
        if len(data) < _SLOT_NUMBER_BYTES or number > _SLOT_NUMBER_MAX:
            raise Nonsense(f"slot {number}")
        return number

    def _recovery(self, data: bytearray) -> Recovery:
        recovery = Recovery(self.request.definition.name, *struct.unpack(RECOVERY, data))
        if not 0 <= recovery.seconds < float("inf"):
            raise Nonsense(f"a recovery of {recovery.seconds} seconds")
        return recovery

    def _answer(self, process: LaneProcess, find: Callable[[], object]) -> None:
        """Answer a question, or refuse it with an exception that is the lane's. Raises any other."""
        try:
            found = pickle.dumps(find())
        except Exception as error:
            if (refusal := refusal_of(error)) is None:
                raise
            process.say(Say.REFUSAL, refusal)
            return
        process.say(Say.ANSWER, found)

    def _held(self, process: LaneProcess, data: bytearray) -> object:
        with process.taking_apart():
            topic, partition, (first, end, bytes_max) = place_of_bytes(reading(data), 3)
            self._given.check((topic, partition), Span(first, end))
            bytes_max = min(bytes_max, RESUMED_BYTES_MAX)
        found = self.services.held_inputs((topic, partition), Span(first, end), bytes_max)
        self._given.add_read(found[0])
        return found

    def _done(self, process: LaneProcess, data: bytearray) -> None:
        with process.taking_apart():
            reader = reading(data)
            while reader.position < len(data):
                topic, partition, (offset,) = place_of_bytes(reader, 1)
                self._given.check_taken((topic, partition), offset)
                self.consumed[topic, partition] = offset
        if self._differing:
            process.end()
            fault = "its process emits something else than a process that executes the same block alone"
            raise LaneProcessFailed(f"audit of block {self._differing[0]}: {fault}", Fault.AUDIT)

    # --- audit ---

    def _audit(self, data: bytearray, start: Start) -> tuple[str, bytes, bytes]:
        """Have a process that no handler has touched execute a block again; return what it raised, emitted, and the prints of its state."""
        number, packed = int.from_bytes(data[:8], "little"), bytes(data[8:])
        self._repeated[number] = b""
        if not packed:
            return "", b"", b""
        lane = self.request.definition.name
        process = self.processes.take(lane, replace(start, repeats=True), AUDIT_HASH_SEED)
        heard: dict[Say, bytes] = {}
        try:
            process.ask(Say.AGAIN, AgainRequest(replace(self.request.definition, genesis=()), packed))
            said, found = process.hear()
            while said is not Say.REPEATED:
                if said not in _REPEATS or said in heard:
                    process.fail(said.name)
                heard[said] = bytes(found)
                said, found = process.hear()
        except LaneProcessFailed as failed:
            if failed.fault is Fault.MEMORY or (failed.fault is None and (failed.code is None or failed.code < 0)):
                return "", b"", b""  # the system or a person may have done that
            return self._differs(number, f"a second execution: {failed}")
        except BaseException:
            process.end()
            raise
        process.end_left()
        self.processes.put(lane, process, AUDIT_HASH_SEED)
        if Say.OUTPUT in heard and Say.DONE in heard:
            self._repeated[number] = heard[Say.OUTPUT]
            return "", heard[Say.OUTPUT], heard[Say.DONE]
        if heard.get(Say.FAILED) == b"":
            return "", b"", b""
        return self._differs(
            number, text_of(bytearray(heard.get(Say.FAILED, b"a second execution ended without a result")))
        )

    def _differs(self, number: BlockNumber, how: str) -> tuple[str, bytes, bytes]:
        """Return that a second execution ended otherwise, and note it: the lane has to say so, too."""
        self._repeated[number] = _OTHERWISE
        return how + named_handlers(self.request.definition, number), b"", b""

    def _compare(self, outputs: list[BlockOutput]) -> None:
        """Note blocks that the lane's process emits otherwise than the audit's, unless it has said so itself."""
        audit = self.request.audit
        if audit is None:
            return
        lane = self.request.definition.name
        for each in outputs:
            if each.block is None:
                if any(record.key == fault_key(lane) for record in each.records):
                    self._differing.clear()
            elif is_chosen(lane, each.block, audit.share):
                repeated = self._repeated.pop(each.block, None)
                if repeated is None or (repeated and repeated != outputs_to_bytes([each])):
                    self._differing.append(each.block)


def has_handlers(definition: LaneDefinition, head: bytes | None) -> bool:
    """Return whether handlers execute in a lane, by its definition or by what is in its journal."""
    if definition.plan.handlers:
        return True
    with suppress(Exception):  # the lane says so when it is executed; a process of the lane may have written its head
        kept = stored_parts(head)[1]
        if kept is not None and (before := Head.decode(kept)).runtime_digest != definition.runtime_digest:
            return bool(definition.under(before.rules).plan.handlers)
    return False


OF_NO_BLOCK: Final = frozenset({DEAD_LETTERS, LANES, METRICS})
"""Topics of records that belong to no block; each block has records of all others."""
RECEIPTS: Final = "receipts"

VALUE_BYTES_MAX: Final = 2 * RECORD_BYTES_MAX
"""Bytes of a record's value; a dead letter is larger than the record in it."""
KEY_BYTES_MAX: Final = 1024
"""Bytes of a record's key, and of the name and the value of a header."""


class Given:
    """The inputs that a lane's process may take, hold or ask for: those of its batch, those that its orders name, and those it holds."""

    def __init__(self, head: bytes | None) -> None:
        try:
            parked = stored_parts(head)[0]
        except DecodeError:  # the lane says so
            parked = None
        self._spans = {} if parked is None else dict(parked.held)

    def add(self, chunk: Chunk) -> None:
        """Add inputs of the batch, and what the orders among them name."""
        self._add((chunk.topic, chunk.partition), Span(chunk.first_offset, chunk.end_offset))
        if not has_only_inputs(chunk.packed):
            for order in unpack(chunk.packed):
                for topic, partition, first, end in order.inputs if isinstance(order, LaneOrder) else ():
                    self._add((topic, partition), Span(first, end))

    def add_read(self, items: Iterable[Arrival]) -> None:
        """Add inputs that were read again."""
        for place, span in held_with({}, items).items():
            self._add(place, span)

    def check(self, place: Partition, span: Span) -> None:
        """Raise `Nonsense` if some of a span has not been given."""
        known = self._spans.get(place)
        if known is None or not known.first <= span.first <= span.end <= known.end:
            raise Nonsense(f"inputs {span.first} to {span.end} of {place[0]}[{place[1]}], which it does not have")

    def check_taken(self, place: Partition, offset: int) -> None:
        """Raise `Nonsense` if the inputs of a place do not go as far."""
        known = self._spans.get(place)
        if known is None or not known.first <= offset <= known.end:
            raise Nonsense(f"{place[0]}[{place[1]}] taken up to {offset}, which it does not have")

    def check_head(self, lane: str, data: bytes) -> None:
        """Raise `Nonsense` or an error of decoding if a head is not one that this lane has."""
        parked, head = stored_parts(data)
        if parked is None:
            Head.decode(head or b"")
            return
        for place, span in parked.held.items():
            self.check(place, span)
        if len(parked.reason) > PARK_REASON_CHARACTERS_MAX or not parked.reason.isprintable():
            raise Nonsense("a reason of more than a line")
        parked.record(lane)

    def _add(self, place: Partition, span: Span) -> None:
        known = self._spans.get(place, span)
        self._spans[place] = Span(min(known.first, span.first), max(known.end, span.end))


class Emitted:
    """What a lane emits in a batch: each block's records once, in the order of blocks. ``last`` is the block before, if it is known."""

    def __init__(self, lane: str, last: BlockNumber | None) -> None:
        self._lane = lane
        self.last = last

    def check(self, outputs: Iterable[BlockOutput]) -> None:
        """Raise `Nonsense` for what no lane emits here."""
        for block, records in outputs:
            for each in records:
                _check(each, self._lane, block)
            topics = [each.topic for each in records]
            if block is None:
                if not OF_NO_BLOCK.issuperset(topics):
                    raise Nonsense(f"records of no block on {', '.join(sorted({*topics} - OF_NO_BLOCK))}")
                continue
            if block > U32_MAX or (self.last is not None and block != self.last + 1):
                raise Nonsense(f"block {block} after block {self.last}")
            self.last = block
            if not OF_NO_BLOCK.isdisjoint(topics):
                raise Nonsense(f"records of block {block} on {', '.join(sorted(OF_NO_BLOCK.intersection(topics)))}")
            if topics[-1:] != [RECEIPTS] or topics.count(RECEIPTS) != 1:
                raise Nonsense(f"block {block} without its one receipt at the end")


def _check(record: OutputRecord, lane: str, block: BlockNumber | None) -> None:
    """Raise `Nonsense` for a record that a reader of its topic fails at, or that says something of another lane or block."""
    topic, key, value, headers = record
    if len(value) > VALUE_BYTES_MAX or len(key) > KEY_BYTES_MAX:
        raise Nonsense(f"a record on {topic} of {len(key)} and {len(value)} bytes")
    if headers and topic != DEAD_LETTERS:
        raise Nonsense(f"a record on {topic} with headers")
    if topic == METRICS:
        report = Report.decode(value)
        if (report.of, report.reporter) != (LANE, lane) or report.own:
            raise Nonsense(f"a report of the {report.of} {report.reporter}")
        return
    read = _readers().get((topic, value[:HEADER_SIZE]))
    if read is None:
        raise Nonsense(f"a record on {topic} of a schema that it does not have")
    datum = read(value, HEADER_SIZE)
    if block is not None:
        if datum["block"] != block:
            raise Nonsense(f"a record on {topic} of block {datum['block']} among those of block {block}")
    elif topic == DEAD_LETTERS:
        _check_dead_letter(record, datum)
    elif not all(each.isprintable() for each in datum.values() if isinstance(each, str)):
        raise Nonsense(f"a record on {topic} of more than a line")


def _check_dead_letter(record: OutputRecord, datum: dict[str, Any]) -> None:
    source = Source(datum["topic"], datum["partition"], datum["offset"])
    if record.headers != (("reason", datum["reason"].encode()), ("source", source_header(source))):
        raise Nonsense("a dead letter without its headers")
    if datum["reason"] not in DeadReason.__members__ or (reason_of(record), source_of(record)) != (
        DeadReason[datum["reason"]],
        source,
    ):
        raise Nonsense(f"a dead letter of {source} because of {datum['reason']}")


@cache
def _readers() -> dict[tuple[str, bytes], StrictReader]:
    """Return what reads records of each topic, by the header of the current schema."""
    current = schemas().current.values()
    return {(each.topic, each.header): record_reader(each, each) for each in current if each.topic is not None}
