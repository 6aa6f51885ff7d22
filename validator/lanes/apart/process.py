# SPDX-License-Identifier: Apache-2.0
"""The process of a lane, and the one that all of a worker's are forked from.

`main` runs in a process that has imported what a lane needs, and forks one for each lane that the worker asks for. It is started with an
environment that has no secrets and never unpickles a plan, so what it and its children have in memory has none either.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import mmap
import os
import pickle
import resource
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import partial
from io import BytesIO
from typing import Any, ClassVar, Final, NoReturn

from validator.codec.encode import BlockOutput, OutputRecord, values_size
from validator.codec.inflight import Arrival
from validator.codec.schemas import schemas
from validator.core.execute import Intervals
from validator.core.types import Block
from validator.errors import UserError
from validator.lanes import garbage
from validator.lanes.apart.confine import confine, forbid
from validator.lanes.apart.wire import (
    OUTPUT_BYTES,
    TEXT_BYTES_MAX,
    Gone,
    Nonsense,
    Say,
    Wire,
    outputs_of_bytes,
    outputs_to_bytes,
    place_to_bytes,
)
from validator.lanes.arrived import Chunk
from validator.lanes.auditing import (
    AuditFault,
    Before,
    Incomplete,
    Prints,
    Raised,
    execute_again,
)
from validator.lanes.definition import LaneDefinition
from validator.lanes.marker import ForeignMarker
from validator.lanes.meter import LaneMeter, meter_of
from validator.lanes.parked import Partition, Span
from validator.lanes.parking import BatchRequest, InputsGone, LaneBatch
from validator.lanes.store import LaneCache, Recovery
from validator.plugin.watchdog import show_calls

PAGE_BYTES: Final = 4096
"""Bytes of the page in which a process shows the call that it is in; its last words follow in the same file."""

KEPT_BACK_S_MAX: Final = 1.0
"""Seconds that a block's output waits for that of further blocks, about."""

FORK, WAIT = b"F", b"W"
NUMBER: Final = struct.Struct("<i")
RECOVERY: Final = "<?QQd"

_PARENT_DIES: Final = 1
"""PR_SET_PDEATHSIG of Linux."""
_TAKES_ORPHANS: Final = 36
"""PR_SET_CHILD_SUBREAPER of Linux."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a process needs to know first."""

    import_path: list[str]
    memory_bytes: int
    repeats: bool = False
    """Whether it executes blocks again for the audit, each in a copy of itself."""


@dataclass(frozen=True, slots=True)
class AgainRequest:
    """A block to execute for the audit; ``packed`` is what the process of the lane has pickled, which no other one unpickles."""

    definition: LaneDefinition
    packed: bytes


class LaneServer:
    """Executes one lane for the worker at the other end."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._cache = LaneCache(self._recovered)
        self._meter: LaneMeter | None = None

    def serve(self) -> None:
        """Execute what the worker asks for, until it is gone."""
        while True:
            say, data = self._wire.receive()
            request = pickle.loads(data)  # noqa: S301 - the worker's
            del data
            try:
                request.definition.check()
            except UserError as error:
                self._wire.send(Say.REFUSED, _text(str(error)))
                continue
            self._wire.send(Say.LOADED)
            if say is Say.AGAIN:
                _in_a_copy(partial(self._execute_again, request))
                self._wire.send(Say.REPEATED)
            else:
                self._execute(request)
            gc.collect()
            garbage.freeze_survivors()

    def _execute(self, request: BatchRequest) -> None:
        definition, wire = request.definition, self._wire
        meter = self._meter = meter_of(self._meter, definition.name, request.meter)
        batch = LaneBatch.of(
            request,
            self._chunks(),
            WorkersState(wire, request.head),
            self._cache,
            self._held_inputs,
            meter,
            partial(execute_elsewhere, wire),
            confirms=lambda corrects: asked(wire, Say.CONFIRM, bytes((corrects,))),
            on_bug=self._bug,
        )
        outputs = batch.measured()
        for run in _in_runs(outputs):
            wire.send(Say.OUTPUT, outputs_to_bytes(run))
        consumed = [place_to_bytes(*place, offset) for place, offset in sorted(batch.consumed.items())]
        wire.send(Say.DONE, *consumed)
        _, data = wire.receive()
        if meter is not None:
            meter.written(pickle.loads(data))  # noqa: S301 - the worker's

    def _chunks(self) -> Iterator[Chunk]:
        while True:
            say, data = self._wire.receive()
            if say is Say.CHUNKS_END:
                return
            yield Chunk(*pickle.loads(data))  # noqa: S301 - the worker's

    def _held_inputs(self, lane: str, place: Partition, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:  # noqa: ARG002
        found: tuple[list[Arrival], int] = asked(self._wire, Say.HELD, place_to_bytes(*place, *span, bytes_max))
        return found

    def _recovered(self, recovery: Recovery) -> None:
        if self._meter is not None:
            self._meter.recovered(recovery)
        self._wire.send(
            Say.RECOVERED,
            struct.pack(RECOVERY, recovery.rebuilt, recovery.slots_bytes, recovery.journal_entries, recovery.seconds),
        )

    def _bug(self, error: BaseException) -> None:
        text = "".join(traceback.format_exception(error))
        self._wire.send(Say.BUG, text.encode("utf-8", "replace")[-TEXT_BYTES_MAX:])

    def _execute_again(self, request: AgainRequest) -> None:
        """Execute a block for the audit. What the lane's process has packed may be anything, but brings no code along."""
        definition = request.definition
        before, block, intervals = unpacked_block(request.packed)
        try:
            records, prints = execute_again(definition, before, block, intervals)
        except Incomplete:
            self._wire.send(Say.FAILED)
        except Raised as raised:
            self._wire.send(Say.FAILED, _text(raised.fault.detail))
        else:
            self._wire.send(Say.OUTPUT, outputs_to_bytes([BlockOutput(block.record.block, records)]))
            self._wire.send(Say.DONE, prints.encode())


def _in_runs(outputs: Iterable[BlockOutput]) -> Iterator[list[BlockOutput]]:
    """Yield outputs in runs; what has taken long is not kept back, so that the worker sees that the lane gets on."""
    run: list[BlockOutput] = []
    size, sent_s = 0, time.monotonic()
    for each in outputs:
        run.append(each)
        size += values_size(each.records)
        if size >= OUTPUT_BYTES or time.monotonic() - sent_s >= KEPT_BACK_S_MAX:
            yield run
            run, size, sent_s = [], 0, time.monotonic()
    if run:
        yield run


def _text(text: str) -> bytes:
    return text.encode("utf-8", "replace")[:TEXT_BYTES_MAX]


# --- processes ---


_copies = False


def _in_a_copy(do: Callable[[], None]) -> None:
    """Do something in a copy of this process, in which no handler has been called, so that none ever is in this one."""
    global _copies
    _copies = True
    pid = os.fork()
    _copies = False
    if pid:
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):  # as it did, so does this one
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
            os.kill(os.getpid(), os.WTERMSIG(status))
        if status:
            os._exit(os.waitstatus_to_exitcode(status))
        return
    _end_with_parent()
    forbid()
    try:
        do()
    except BaseException:  # noqa: BLE001 - only this copy ends
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _end_a_copy() -> None:
    if not _copies:
        os._exit(1)


def _end_with_parent() -> None:
    _set(_PARENT_DIES, signal.SIGKILL)


def _set(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _become_lane(connection: int, page: int) -> NoReturn:
    """Execute a lane in this process, which is a copy of the one that imports."""
    code = 1
    try:
        _end_with_parent()
        os.setsid()
        os.register_at_fork(after_in_child=_end_a_copy)  # that of a handler may not speak for this process
        os.lseek(page, PAGE_BYTES, os.SEEK_SET)
        faulthandler.enable(page)
        faulthandler.register(signal.SIGPROF, page)
        faulthandler.register(signal.SIGSYS, page, chain=True)  # then it ends
        show_calls(mmap.mmap(page, PAGE_BYTES))
        wire = Wire(socket.socket(fileno=connection))
        _, data = wire.receive()
        start: Start = pickle.loads(data)  # noqa: S301 - the worker's
        sys.path[:] = start.import_path
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        most = start.memory_bytes if hard == resource.RLIM_INFINITY else min(start.memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
        for reason in confine(start.import_path, forks=start.repeats):
            sys.stderr.write(json.dumps({"event": "not confined", "reason": reason}) + "\n")
        AskedGenesis.wire = wire
        garbage.tune()
        with suppress(Gone):
            LaneServer(wire).serve()
        code = 0
    except BaseException:  # noqa: BLE001 - nothing of the process that forks may run here
        traceback.print_exc()
    finally:
        os._exit(code)


def main(control_number: int) -> None:
    """Fork processes for the worker at the other end of a socket until it is gone. What they leave behind becomes its child."""
    _end_with_parent()
    _set(_TAKES_ORPHANS, 1)
    schemas()
    with socket.socket(fileno=control_number) as control:
        while True:
            what, passed, _, _ = socket.recv_fds(control, 1 + NUMBER.size, 2)
            if not what:
                return
            if what[:1] == WAIT:
                code = 0
                with suppress(ChildProcessError):  # one that a process of a lane left to this one may be gone
                    _, status = os.waitpid(NUMBER.unpack(what[1:])[0], 0)
                    code = os.waitstatus_to_exitcode(status)
                control.sendall(NUMBER.pack(code))
                continue
            pid = os.fork()
            if not pid:
                control.close()
                _become_lane(*passed)
            for each in passed:
                os.close(each)
            control.sendall(NUMBER.pack(pid))


_PARTS: Final = 3


class _Unpickler(pickle._Unpickler):  # the one in Python, whose steps can be replaced
    """Makes only records: named tuples, data classes and enumerations of the program and its protocols."""

    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        found = getattr(sys.modules.get(module), name, None)
        is_record = isinstance(found, type) and (
            is_dataclass(found) or issubclass(found, Enum) or (issubclass(found, tuple) and hasattr(found, "_fields"))
        )
        if not is_record:
            raise Nonsense(f"a block with {module}.{name}")
        return found

    def load_build(self) -> None:
        if isinstance(self.stack[-2], type):  # the state of a class would be code for all of its records
            raise Nonsense(f"a block that changes {self.stack[-2].__name__}")
        super().load_build()  # type: ignore[misc]

    dispatch[pickle.BUILD[0]] = load_build


def unpacked_block(data: bytes) -> tuple[list[bytes], Block, Intervals]:
    """Return the state before a block in pages, the block, and the intervals. Raises `Nonsense`, and whatever unpickling raises."""
    found = _Unpickler(BytesIO(data)).load()
    if type(found) is not tuple or len(found) != _PARTS:
        raise Nonsense("no block")
    before, block, intervals = found
    if type(before) is not list or type(block) is not Block or type(intervals) is not Intervals:
        raise Nonsense("no block")
    return before, block, intervals


class AskedGenesis:
    """A genesis that the worker is asked for when the lane is new."""

    wire: Wire | None = None

    def __iter__(self) -> Iterator[bytes]:
        assert self.wire is not None
        return iter(asked(self.wire, Say.GENESIS))


def asked(wire: Wire, say: Say, *parts: bytes) -> Any:
    """Ask the worker. Raises `InputsGone`, `MemoryError`, `ForeignMarker` as it says."""
    wire.send(say, *parts)
    answer, data = wire.receive()
    if answer is Say.REFUSAL:
        raise _REFUSALS[data[0]](data[1:].decode())
    return pickle.loads(data)  # noqa: S301 - the worker's


_REFUSALS: Final[tuple[type[Exception], ...]] = (InputsGone, MemoryError, ForeignMarker)


def refusal_of(error: Exception) -> bytes | None:
    """Return what to answer instead, None if the error is not the lane's."""
    for number, kind in enumerate(_REFUSALS):
        if isinstance(error, kind):
            return bytes((number,)) + str(error).encode("utf-8", "replace")
    return None


class WorkersState:
    """A lane's state, which the worker has (`validator.lanes.store.StateBackend`)."""

    def __init__(self, wire: Wire, head: bytes | None) -> None:
        self._wire = wire
        self._head = head

    def load_head(self) -> bytes | None:
        return self._head

    def save_head(self, head: bytes) -> None:
        self._head = head
        self._wire.send(Say.SAVE_HEAD, head)

    def load_slots(self) -> dict[int, bytes]:
        slots: dict[int, bytes] = asked(self._wire, Say.LOAD_SLOTS)
        return slots

    def save_slot(self, number: int, data: bytes) -> None:
        self._wire.send(Say.SAVE_SLOT, number.to_bytes(4, "little"), data)

    def remove_slot(self, number: int) -> None:
        self._wire.send(Say.REMOVE_SLOT, number.to_bytes(4, "little"))

    def load_journal(self) -> Iterator[bytes]:
        entries: list[bytes] = asked(self._wire, Say.LOAD_JOURNAL)
        return iter(entries)

    def append_journal(self, entry: bytes) -> None:
        self._wire.send(Say.APPEND_JOURNAL, entry)

    def clear_journal(self) -> None:
        self._wire.send(Say.CLEAR_JOURNAL)


def execute_elsewhere(
    wire: Wire, definition: LaneDefinition, before: Before, block: Block, intervals: Intervals
) -> tuple[list[OutputRecord], Prints]:
    """Have the worker let a fresh process execute a block a second time (`auditing.execute_again`)."""
    number = block.record.block
    told = isinstance(before, list)
    packed = pickle.dumps((before, block, intervals)) if told else b""
    answer: tuple[str, bytes, bytes] = asked(wire, Say.AUDIT, number.to_bytes(8, "little"), packed)
    if not isinstance(before, list):
        raise before
    raised, output, prints = answer
    if not output:
        raise Raised(AuditFault(number, "execution", raised)) if raised else Incomplete
    (repeated,) = outputs_of_bytes(bytearray(output), definition.name)
    return repeated.records, Prints.decode(prints)
