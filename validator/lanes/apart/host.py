# SPDX-License-Identifier: Apache-2.0
"""The worker's side: starts the processes of lanes, does for them what needs the worker, and ends those that misbehave."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final, Protocol

from validator.codec.encode import BlockOutput
from validator.codec.inflight import Arrival
from validator.core.scale import DecodeError
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.lanes.apart import process
from validator.lanes.apart.process import (
    FORK,
    NUMBER,
    PAGE_BYTES,
    RECOVERY,
    WAIT,
    AgainRequest,
    AskedGenesis,
    BatchRequest,
    Start,
    refusal_of,
)
from validator.lanes.apart.wire import (
    Gone,
    Nonsense,
    Say,
    Wire,
    outputs_of_bytes,
    outputs_to_bytes,
    place_of_bytes,
    reading,
    text_of,
)
from validator.lanes.arrived import Chunk
from validator.lanes.auditing import fault_key, is_chosen
from validator.lanes.definition import LaneDefinition
from validator.lanes.parked import Fault, Place, Span, stored_parts
from validator.lanes.store import Head, Recovery, StateBackend
from validator.plugin.registry import PluginError
from validator.plugin.runtime import RulesOutdated
from validator.plugin.watchdog import LAST_RESORT_S, LOOK_S, CallsSeen

KEPT_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH")
"""Variables of the environment that a process of a lane gets: any other may be a secret."""

HASH_SEED: Final = "0"
"""That of Spark's workers."""
AUDIT_HASH_SEED: Final = "1"
"""Another order of sets: a result that depends on it differs."""

WORDS_S: Final = 0.2
"""Seconds for a process to write where it hangs before it is killed."""
WORDS_BYTES_MAX: Final = 64 * 1024


class LaneProcessFailed(Exception):
    """The process of a lane is gone, and what it has said of this batch does not count.

    ``fault`` is None if it died, which a person or the system may have caused; otherwise its handlers did, and another attempt would end
    in the same way.
    """

    def __init__(self, reason: str, fault: Fault | None = None) -> None:
        super().__init__(reason)
        self.fault = fault


class Services(Protocol):
    """What a worker does for the process of a lane."""

    def held_inputs(self, place: Place, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:
        """Return inputs of the lane (`validator.lanes.parking.HeldInputs`)."""

    def confirm(self, *, corrects: bool) -> None:
        """Check the lane's marker, or correct it (`validator.lanes.sink.LaneSink`)."""

    def recovered(self, recovery: Recovery) -> None:
        """Note that the lane was brought back into memory."""


class Forker:
    """The process from which those of lanes are forked; ends with this one."""

    def __init__(self, hash_seed: str) -> None:
        ours, theirs = socket.socketpair()
        kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        kept |= {
            "PYTHONHASHSEED": hash_seed,
            "PYTHONSAFEPATH": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-c", f"from {process.__name__} import main; main({theirs.fileno()})"]
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=kept,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),  # a worker's own is a connection to Spark
            )
        self._control = ours

    def fork(self, start: Start) -> LaneProcess:
        """Fork the process of a lane."""
        ours, theirs = socket.socketpair()
        words = tempfile.TemporaryFile()  # noqa: SIM115 - the process's
        words.truncate(PAGE_BYTES)
        with theirs:
            socket.send_fds(self._control, [FORK], [theirs.fileno(), words.fileno()])
        pid = self._number()
        return LaneProcess(self, pid, ours, words, start)

    def wait(self, pid: int) -> int:
        """Return how a process ended: its exit code, or a signal's number with a minus."""
        self._control.sendall(WAIT + NUMBER.pack(pid))
        return self._number()

    def close(self) -> None:
        """End the process."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    @property
    def lives(self) -> bool:
        """Whether it can be asked for more."""
        return self._process.poll() is None

    def _number(self) -> int:
        found = self._control.recv(NUMBER.size, socket.MSG_WAITALL)
        if len(found) < NUMBER.size:
            raise LaneProcessFailed("the process that starts those of lanes is gone")
        number: int = NUMBER.unpack(found)[0]
        return number


class LaneProcess:
    """The process of one lane. ``words`` is the file with the page of its calls, and its last words."""

    def __init__(self, forker: Forker, pid: int, sock: socket.socket, words: IO[bytes], start: Start) -> None:
        self._forker = forker
        self._pid = pid
        self._words = words
        self._calls = CallsSeen(mmap.mmap(words.fileno(), PAGE_BYTES))
        self._seconds_max = float("inf")
        self._threads = 0
        self._ended: tuple[int | None, str] | None = None
        self._wire = Wire(sock, self._look, LOOK_S)
        self.say(Say.START, pickle.dumps(start))

    def ask(self, say: Say, request: BatchRequest | AgainRequest) -> None:
        """Ask for something, and limit each call of a handler from now on. Raises `LaneProcessFailed`."""
        self._seconds_max = request.definition.handler_seconds_max + LAST_RESORT_S
        self.say(say, pickle.dumps(request))

    def say(self, say: Say, *parts: bytes) -> None:
        """Say something. Raises `LaneProcessFailed`."""
        with self._failing():
            self._wire.send(say, *parts)

    def hear(self) -> tuple[Say, bytearray]:
        """Return what it says next. Raises `LaneProcessFailed`, and `UserError` if it has other plugins than the driver."""
        with self._failing():
            while True:
                said, data = self._wire.receive()
                if said is Say.LOADED:  # what plugins start when they are imported is not a call's
                    self._threads = self._count_threads()
                elif said is Say.REFUSED:
                    raise UserError(text_of(data))
                else:
                    return said, data

    def outputs(self, data: bytearray, lane: str) -> list[BlockOutput]:
        """Return what the lane emits. Raises `LaneProcessFailed`."""
        with self._failing():
            return outputs_of_bytes(data, lane)

    def check_left(self) -> None:
        """Raise `LaneProcessFailed` if its handlers have left threads or processes behind: they may do anything at any time."""
        threads = self._count_threads() - self._threads
        left = [f"{count} {what}" for count, what in ((threads, "threads"), (self._children(), "processes")) if count]
        if left and self.lives:
            self.end()
            raise LaneProcessFailed(f"handler {self._calls.name()}: it left {' and '.join(left)} behind", Fault.HANDLER)

    @property
    def lives(self) -> bool:
        """Whether nothing has ended it yet."""
        with suppress(OSError, LaneProcessFailed):
            os.kill(self._pid, 0)
            return True
        return False

    def end(self) -> tuple[int | None, str]:
        """End it with everything that it has started; return its exit code, if that is known, and where it was, from its last words."""
        if self._ended is None:
            self._ended = self._end()
        return self._ended

    def _end(self) -> tuple[int | None, str]:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self._pid, signal.SIGKILL)
        self._wire.close()
        code = None
        with suppress(LaneProcessFailed, OSError):
            code = self._forker.wait(self._pid)
        words = os.pread(self._words.fileno(), WORDS_BYTES_MAX, PAGE_BYTES).decode("utf-8", "replace")
        self._words.close()
        return code, _where(words)

    def _look(self) -> None:
        """End the process if a call of a handler does not return."""
        if self._calls.look() < self._seconds_max:
            return
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGPROF)
        time.sleep(WORDS_S)
        _, where = self.end()
        raise LaneProcessFailed(
            f"handler {self._calls.name()}: it did not return within {self._seconds_max:g} seconds, and no signal interrupted it{where}",
            Fault.HANDLER,
        )

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Make one exception of everything that shows that the process is not to be trusted any more."""
        try:
            yield
        except Gone:
            code, where = self.end()
            handler = f" in handler {self._calls.name()}" if self._calls.inside else ""
            raise LaneProcessFailed(f"its process died{handler} ({_how(code)}){where}") from None
        except Nonsense as error:
            self.end()
            raise LaneProcessFailed(f"its process sent what no lane sends: {error}", Fault.HANDLER) from None

    def _count_threads(self) -> int:
        try:
            return len(os.listdir(f"/proc/{self._pid}/task"))
        except OSError:  # not Linux, or gone
            return 0

    def _children(self) -> int:
        found = 0
        with suppress(OSError):
            for each in os.scandir(f"/proc/{self._pid}/task"):
                found += len(Path(each.path, "children").read_text(encoding="ascii").split())
        return found


def _how(code: int | None) -> str:
    if code is None:
        return "unknown how"
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _where(words: str) -> str:
    """Return the innermost place that a process was at, as text to append; empty if its last words do not say."""
    found = next((line.strip() for line in words.splitlines() if line.startswith("  File ")), "")
    return f": {found}" if found else ""


class LaneProcesses:
    """The processes of a worker's lanes."""

    def __init__(self) -> None:
        self._forkers: dict[str, Forker] = {}
        self._idle: dict[str, LaneProcess] = {}

    def take(self, lane: str, start: Start) -> LaneProcess:
        """Return the lane's process, which has executed its last batch here, or a new one."""
        process = self._idle.pop(lane, None)
        if process is not None and process.lives:
            return process
        return self.fresh(HASH_SEED, start)

    def put(self, lane: str, process: LaneProcess) -> None:
        """Keep a process for the lane's next batch."""
        self._idle[lane] = process

    def fresh(self, hash_seed: str, start: Start) -> LaneProcess:
        """Return a process in which nothing has been executed."""
        forker = self._forkers.get(hash_seed)
        if forker is None or not forker.lives:
            forker = self._forkers[hash_seed] = Forker(hash_seed)
        return forker.fork(start)

    def close(self) -> None:
        """End all of them."""
        for process in self._idle.values():
            process.end()
        self._idle.clear()
        for forker in self._forkers.values():
            forker.close()
        self._forkers.clear()


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
    _repeated: dict[BlockNumber, bytes] = field(default_factory=dict)
    """By block that the audit executed, what it emits there."""
    _differing: list[BlockNumber] = field(default_factory=list)
    """Blocks whose output is another one, without a word of the lane."""

    def run(self) -> Iterator[BlockOutput]:
        """Yield the batch's output.

        Raises `LaneProcessFailed`, `UserError` if the process has other plugins than the driver, and what the store or Kafka raise. After
        an exception the process is ended.
        """
        start = Start(list(sys.path), self.memory_bytes)
        process = self.processes.take(self.request.definition.name, start)
        try:
            genesis = self.request.definition.genesis
            definition = replace(self.request.definition, genesis=AskedGenesis())
            process.ask(Say.BATCH, replace(self.request, definition=definition))
            for chunk in self.chunks:
                process.say(Say.CHUNK, pickle.dumps(tuple(chunk)))
            process.say(Say.CHUNKS_END)
            yield from self._serve(process, genesis, start)
            process.check_left()
        except BaseException:
            process.end()
            raise
        self._process = process

    def written(self, counts: dict[str, int]) -> None:
        """Tell the process that the batch is committed, and how many records went to each topic; it is kept for the next one."""
        assert self._process is not None
        with suppress(LaneProcessFailed):
            self._process.say(Say.WRITTEN, pickle.dumps(counts))
            self.processes.put(self.request.definition.name, self._process)

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
                    backend.save_head(bytes(data))
                case Say.SAVE_SLOT:
                    backend.save_slot(int.from_bytes(data[:4], "little"), bytes(data[4:]))
                case Say.REMOVE_SLOT:
                    backend.remove_slot(int.from_bytes(data[:4], "little"))
                case Say.APPEND_JOURNAL:
                    backend.append_journal(bytes(data))
                case Say.CLEAR_JOURNAL:
                    backend.clear_journal()
                case Say.LOAD_SLOTS:
                    process.say(Say.ANSWER, pickle.dumps(backend.load_slots()))
                case Say.LOAD_JOURNAL:
                    process.say(Say.ANSWER, pickle.dumps(list(backend.load_journal())))
                case Say.GENESIS:
                    process.say(Say.ANSWER, pickle.dumps(list(genesis)))
                case Say.HELD:
                    self._answer(process, lambda data=data: self._held(process, data))
                case Say.CONFIRM:
                    self._answer(process, lambda data=data: services.confirm(corrects=data == b"\x01"))
                case Say.AUDIT:
                    process.say(Say.ANSWER, pickle.dumps(self._audit(data, start)))
                case Say.RECOVERED:
                    services.recovered(_recovery(lane, data))
                case Say.BUG:
                    sys.stderr.write(text_of(data))
                case _:
                    process.end()
                    raise LaneProcessFailed(f"its process sent what no lane sends: {said.name}", Fault.HANDLER)

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
            process.end()
            raise LaneProcessFailed(f"its process sent what no lane sends: {error}", Fault.HANDLER) from None
        return self.services.held_inputs((topic, partition), Span(first, end), bytes_max)

    def _done(self, process: LaneProcess, data: bytearray) -> None:
        reader = reading(data)
        try:
            self.left_at = bytes(reader.bytes()).decode()
            while reader.position < len(data):
                topic, partition, (offset,) = place_of_bytes(reader, 1)
                self.consumed[topic, partition] = offset
        except (DecodeError, UnicodeDecodeError) as error:
            process.end()
            raise LaneProcessFailed(f"its process sent what no lane sends: {error}", Fault.HANDLER) from None
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
        process = self.processes.fresh(AUDIT_HASH_SEED, start)
        output, raised = b"", ""
        try:
            process.ask(Say.AGAIN, AgainRequest(replace(self.request.definition, genesis=()), packed))
            while True:
                said, found = process.hear()
                if said is Say.OUTPUT:
                    output = bytes(found)
                elif said is Say.DONE:
                    self._repeated[number] = output
                    return "", output, bytes(found)
                else:
                    return text_of(found), b"", b""
        except LaneProcessFailed as failed:
            raised = "" if failed.fault is Fault.HANDLER else f"a second execution: {failed}"
            return raised, b"", b""
        finally:
            process.end()

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


def _recovery(lane: str, data: bytearray) -> Recovery:
    try:
        return Recovery(lane, *struct.unpack(RECOVERY, data))
    except struct.error as error:
        raise LaneProcessFailed(f"its process sent what no lane sends: {error}", Fault.HANDLER) from None


def has_handlers(definition: LaneDefinition, head: bytes | None) -> bool:
    """Return whether handlers execute in a lane, by its definition or by what is in its journal."""
    if definition.plan.handlers:
        return True
    with suppress(DecodeError, PluginError, RulesOutdated):  # the lane says so when it is executed
        kept = stored_parts(head)[1]
        if kept is not None and (before := Head.decode(kept)).runtime_digest != definition.runtime_digest:
            return bool(definition.under(before.rules).plan.handlers)
    return False
