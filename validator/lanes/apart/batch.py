# SPDX-License-Identifier: Apache-2.0
"""A batch of a lane with handlers, as the worker sees it: what the lane's process does, and what it asks the worker to do."""

from __future__ import annotations

import pickle
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, Self

from validator.codec.encode import BlockOutput
from validator.codec.inflight import Arrival
from validator.core.scale import DecodeError
from validator.core.types import BlockNumber
from validator.lanes.apart.host import AUDIT_HASH_SEED, LaneProcess, LaneProcesses, LaneProcessFailed
from validator.lanes.apart.process import RECOVERY, AgainRequest, BatchRequest, Start
from validator.lanes.apart.questions import AskedGenesis, refusal_of
from validator.lanes.apart.wire import Say, outputs_to_bytes, place_of_bytes, reading, text_of
from validator.lanes.arrived import Chunk
from validator.lanes.auditing import fault_key, is_chosen
from validator.lanes.definition import LaneDefinition
from validator.lanes.parked import Fault, Place, Span, stored_parts
from validator.lanes.store import Head, Recovery, StateBackend
from validator.plugin.registry import PluginError
from validator.plugin.runtime import RulesOutdated


class Services(Protocol):
    """What a worker does for the process of a lane."""

    def held_inputs(self, place: Place, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:
        """Return inputs of the lane (`validator.lanes.parking.HeldInputs`)."""

    def confirm(self, *, corrects: bool) -> None:
        """Check the lane's marker, or correct it (`validator.lanes.sink.LaneSink`)."""

    def recovered(self, recovery: Recovery) -> None:
        """Note that the lane was brought back into memory."""


@dataclass(slots=True)
class ApartBatch:
    """One batch of one lane, executed by the lane's process. ``chunks`` are its inputs, ``request`` everything else."""

    processes: LaneProcesses
    services: Services
    backend: StateBackend
    request: BatchRequest
    chunks: Iterable[Chunk]
    memory_bytes: int
    consumed: dict[Place, int] = field(default_factory=dict)
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

    def run(self) -> Iterator[BlockOutput]:
        """Yield the batch's output.

        Raises `LaneProcessFailed`, `UserError` if the process has other plugins than the driver, and what the store or Kafka raise.
        """
        start = Start(list(sys.path), self.memory_bytes)
        process = self._process = self.processes.take(self.request.definition.name, start)
        genesis = self.request.definition.genesis
        process.ask(
            Say.BATCH, replace(self.request, definition=replace(self.request.definition, genesis=AskedGenesis()))
        )
        for chunk in self.chunks:
            process.say(Say.CHUNK, pickle.dumps(tuple(chunk)))
        process.say(Say.CHUNKS_END)
        yield from self._serve(process, genesis, start)
        process.check_left(", ".join(self.request.definition.all_handlers))
        for write in self._writes:
            write()

    def written(self, counts: dict[str, int]) -> None:
        """Say to the process that the batch is committed, and how many records went to each topic; it is kept for the next one."""
        assert self._process is not None
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
        lane = self.request.definition.name
        backend, services = self.backend, self.services
        while True:
            said, data = process.hear()
            match said:
                case Say.OUTPUT:
                    outputs = process.outputs(data, lane)
                    self._compare(outputs)
                    yield from outputs
                case Say.DONE:
                    self._done(process, data)
                    return
                case Say.SAVE_HEAD:
                    self._writes.append(partial(backend.save_head, bytes(data)))
                case Say.SAVE_SLOT:
                    number = int.from_bytes(data[:4], "little")
                    self._writes.append(partial(backend.save_slot, number, bytes(data[4:])))
                case Say.REMOVE_SLOT:
                    self._writes.append(partial(backend.remove_slot, int.from_bytes(data, "little")))
                case Say.APPEND_JOURNAL:
                    self._writes.append(partial(backend.append_journal, bytes(data)))
                case Say.CLEAR_JOURNAL:
                    self._writes.append(backend.clear_journal)
                case Say.LOAD_SLOTS:
                    process.say(Say.ANSWER, pickle.dumps(backend.load_slots()))
                case Say.LOAD_JOURNAL:
                    process.say(Say.ANSWER, pickle.dumps(list(backend.load_journal())))
                case Say.GENESIS:
                    process.say(Say.ANSWER, pickle.dumps(list(genesis)))
                case Say.HELD:
                    self._answer(process, partial(self._held, process, data))
                case Say.CONFIRM:
                    self._answer(process, partial(services.confirm, corrects=data == b"\x01"))
                case Say.AUDIT:
                    process.say(Say.ANSWER, pickle.dumps(self._audit(data, start)))
                case Say.RECOVERED:
                    try:
                        recovery = Recovery(lane, *struct.unpack(RECOVERY, data))
                    except struct.error as error:
                        process.fail(error)
                    services.recovered(recovery)
                case Say.BUG:
                    sys.stderr.write(text_of(data))
                case _:
                    process.fail(said.name)

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
        try:
            topic, partition, (first, end, bytes_max) = place_of_bytes(reading(data), 3)
        except DecodeError as error:
            process.fail(error)
        return self.services.held_inputs((topic, partition), Span(first, end), bytes_max)

    def _done(self, process: LaneProcess, data: bytearray) -> None:
        reader = reading(data)
        try:
            self.left_at = bytes(reader.bytes()).decode()
            while reader.position < len(data):
                topic, partition, (offset,) = place_of_bytes(reader, 1)
                self.consumed[topic, partition] = offset
        except (DecodeError, UnicodeDecodeError) as error:
            process.fail(error)
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
        output = b""
        try:
            process.ask(Say.AGAIN, AgainRequest(replace(self.request.definition, genesis=()), packed))
            said, found = process.hear()
            if said is Say.OUTPUT:
                output = self._repeated[number] = bytes(found)
                _, found = process.hear()
        except LaneProcessFailed as failed:
            return "" if failed.fault is Fault.HANDLER else f"a second execution: {failed}", b"", b""
        except BaseException:
            process.end()
            raise
        self.processes.put(lane, process, AUDIT_HASH_SEED)
        return ("", output, bytes(found)) if output else (text_of(found), b"", b"")

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
    with suppress(DecodeError, PluginError, RulesOutdated):  # the lane says so when it is executed
        kept = stored_parts(head)[1]
        if kept is not None and (before := Head.decode(kept)).runtime_digest != definition.runtime_digest:
            return bool(definition.under(before.rules).plan.handlers)
    return False
