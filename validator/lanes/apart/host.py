# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a worker's lanes, watches the calls of their handlers, and ends those that misbehave."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final, NoReturn

from validator.codec.encode import BlockOutput
from validator.document import printable
from validator.errors import UserError
from validator.lanes.apart.process import FORK, NUMBER, PAGE_BYTES, WAIT, AgainRequest, Start, main
from validator.lanes.apart.wire import Gone, Nonsense, Say, Wire, outputs_of_bytes, said_bytes_max, text_of
from validator.lanes.parked import Fault
from validator.lanes.parking import BatchRequest
from validator.plugin.watchdog import BLOCK_CALLS_MAX, BYTES_PER_S, LAST_RESORT_S, LOOK_S, RECOVERY_CALLS_MAX, CallsSeen

KEPT_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH")
"""Variables of the environment that a process of a lane gets: any other may be a secret."""

HASH_SEED: Final = "0"
"""That of Spark's workers."""
AUDIT_HASH_SEED: Final = "1"
"""Another order of sets: a result that depends on it differs."""

WORDS_S: Final = 0.2
"""Seconds for a process to write where it hangs before it is killed."""

ORPHANS_S_MAX: Final = 5.0
"""Seconds for ending processes that others have left behind: some start new ones meanwhile."""

BESIDES_BYTES: Final = 256 * 1024 * 1024
"""Bytes that the process of a lane may occupy beyond the limit of its data: libraries, and what it has of the process it is forked from."""


class LaneProcessFailed(Exception):
    """The process of a lane is gone, and what it has said of this batch does not count.

    ``fault`` is None if it died, which a person or the system may have caused; otherwise another attempt would end in the same way.
    ``place`` is the block and the para of the message that was being processed, if one was. ``code`` is how it died, if that is known: its
    exit code, or the number of a signal with a minus.
    """

    def __init__(
        self,
        reason: str,
        fault: Fault | None = None,
        place: tuple[int, int | None] | None = None,
        code: int | None = None,
    ) -> None:
        super().__init__(printable(reason))
        self.code = code
        self.fault = fault
        self.place = place


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
        command = [sys.executable, "-c", f"from {main.__module__} import main; main({theirs.fileno()})"]
        said = quoting_pipe()
        with theirs:
            self._process = subprocess.Popen(
                command,
                env=kept,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        os.close(said)
        self._control = ours
        self._forked: set[int] = set()
        """Processes of lanes that are not waited for yet."""

    def fork(self, start: Start) -> LaneProcess:
        ours, theirs = socket.socketpair()
        words = words_file()
        with theirs:
            socket.send_fds(self._control, [FORK], [theirs.fileno(), words.fileno()])
        pid = self._number()
        self._forked.add(pid)
        return LaneProcess(self, pid, ours, words, start)

    def wait(self, pid: int) -> int:
        """Return how a process ended: its exit code, or a signal's number with a minus."""
        self._control.sendall(WAIT + NUMBER.pack(pid))
        self._forked.discard(pid)
        return self._number()

    def orphans(self) -> list[int]:
        """Return the processes that those of lanes have left to this one."""
        return [each for each in children_of(self._process.pid) if each not in self._forked]

    def end_orphans(self) -> int:
        """End the processes that those of lanes have left to this one, and return how many there were.

        Each leaves its own children to this one when it ends, so this is repeated until none is left.
        """
        ended, until_s = 0, time.monotonic() + ORPHANS_S_MAX
        while (orphans := self.orphans()) and time.monotonic() < until_s:
            for each in orphans:
                with suppress(OSError):
                    os.kill(each, signal.SIGKILL)
            for each in orphans:
                with suppress(LaneProcessFailed, OSError):
                    self.wait(each)
            ended += len(orphans)
        return ended

    def close(self) -> None:
        """End the process, and what those of lanes have left to it."""
        self.end_orphans()
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
        self._call_s_max = float("inf")
        self._threads = 0
        self._occupied_max = start.memory_bytes + BESIDES_BYTES
        self._ended: tuple[int | None, str] | None = None
        self._wire = Wire(sock, self._look, LOOK_S, said_bytes_max)
        self._lane = self._handlers = ""
        self.is_new = True
        """Whether it has not executed anything yet."""
        self._loads = False
        """Whether it has been asked for something, and has not said yet that it has the plugins."""
        self.pace = Pace(self._wire)
        self.say(Say.START, pickle.dumps(start))

    def ask(self, say: Say, request: BatchRequest | AgainRequest, *, may_recover: bool = False) -> None:
        """Ask for something, and limit each call of a handler from now on, and all else. Raises `LaneProcessFailed`.

        With ``may_recover`` the lane may not be in its memory.
        """
        self._lane, self._handlers = request.definition.name, ", ".join(request.definition.all_handlers)
        self._call_s_max = request.definition.handler_seconds_max
        self._loads = True
        self.pace.begin(self._call_s_max, LAST_RESORT_S, imports=self.is_new, may_recover=may_recover)
        self.say(say, pickle.dumps(request))

    def say(self, say: Say, *parts: bytes) -> None:
        """Say something. Raises `LaneProcessFailed`."""
        self.pace.said(sum(map(len, parts)))
        with self.taking_apart():
            self._wire.send(say, *parts)

    def hear(self) -> tuple[Say, bytearray]:
        """Return what it says next. Raises `LaneProcessFailed`, and `UserError` if it has other plugins than the driver."""
        refused = ""
        with self.taking_apart():
            said, data = self._wire.receive()
            if self._loads:
                self._loads = False
                if said is Say.LOADED:  # what plugins start when they are imported is not a call's
                    self._threads = self._count_threads()
                    self.is_new = False
                    self.pace.heard(said, 0)
                    said, data = self._wire.receive()
                elif said is Say.REFUSED and self.is_new:  # no handler has been called in it
                    refused = printable(text_of(data))
                else:
                    raise Nonsense(said.name)
        if refused:
            own = f"lane {self._lane}: "
            raise UserError(refused if refused.startswith(own) else own + refused)
        self.pace.heard(said, len(data))
        return said, data

    def outputs(self, data: bytearray) -> list[BlockOutput]:
        """Return what the lane emits. Raises `LaneProcessFailed`."""
        with self.taking_apart():
            return outputs_of_bytes(data, self._lane)

    def check_left(self) -> None:
        """Raise `LaneProcessFailed` if its handlers have left threads or processes behind: they may do anything at any time."""
        self._check_memory()
        threads, children = self._count_threads() - self._threads, len(below(self._pid)) + self._forker.end_orphans()
        left = [f"{threads} thread{'s' * (threads > 1)}"] * (threads > 0)
        left += [f"{children} process{'es' * (children > 1)}"] * (children > 0)
        if left and self.lives:
            self.end()
            block = f", in block {place[0]} at the latest" if (place := self._calls.place()) else ""
            what = f"one of its handlers ({self._handlers}) left {' and '.join(left)} behind{block}"
            raise LaneProcessFailed(what, Fault.HANDLER)

    def fail(self, what: object) -> NoReturn:
        """End the process because of what it has sent, unless that came from what its handlers have left in it."""
        self.check_left()
        self.end()
        raise LaneProcessFailed(f"its process sent what no lane sends: {what}", Fault.HANDLER)

    def stand_still(self) -> None:
        """Let it do nothing until it is to `go_on`: while another lane executes, whatever happens is that lane's."""
        with suppress(OSError):
            os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it continue, whoever has stopped it."""
        with suppress(OSError):
            os.kill(self._pid, signal.SIGCONT)

    def end_left(self) -> None:
        """End what it has left behind: it has executed for another process, and is not at fault by that alone."""
        for each in below(self._pid):
            with suppress(OSError):
                os.kill(each, signal.SIGKILL)
        self._forker.end_orphans()

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
            self._forker.end_orphans()  # which are no other lane's
        words = os.pread(self._words.fileno(), WORDS_BYTES_MAX, PAGE_BYTES).rstrip(b"\0").decode("utf-8", "replace")
        self._words.close()
        return code, where(words)

    def _look(self) -> None:
        """End the process if it occupies too much, if a call of a handler does not return, or if it does not get on otherwise."""
        self._check_memory()
        call_s_max = self._call_s_max + LAST_RESORT_S
        if self._calls.look() >= call_s_max:
            what = f"it did not return within {call_s_max:g} seconds, and no signal interrupted it"
            self._end_hanging(f"handler {self._calls.name()}: {what}")
        if overdue := self.pace.overdue():
            self._end_hanging(overdue + (f", in handler {self._calls.name()}" if self._calls.inside else ""))

    def _end_hanging(self, what: str) -> NoReturn:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGPROF)
        time.sleep(WORDS_S)
        place = self._calls.place()
        _, at = self.end()
        raise LaneProcessFailed(f"{what}{at}", Fault.HANDLER, place)

    def _check_memory(self) -> None:
        """End the process if it and its children occupy too much: memory that is shared is not in the limit of its data."""
        orphans = self._forker.orphans()  # of no other lane: those stand still
        found = sum(map(occupied, [self._pid, *below(self._pid), *orphans, *below(*orphans)]))
        if found <= self._occupied_max:
            return
        place = self._calls.place()
        self.end()
        mib, most = found // 2**20, self._occupied_max // 2**20
        raise LaneProcessFailed(f"its process occupies {mib} MiB, expected at most {most} MiB", Fault.HANDLER, place)

    @contextmanager
    def taking_apart(self) -> Iterator[None]:
        """Make one exception, the lane's, of everything that goes wrong with what the process says, or with hearing it."""
        try:
            yield
        except LaneProcessFailed:
            raise
        except Gone:
            code, at = self.end()
            place = self._calls.place() if self._calls.inside else None
            handler = f" in handler {self._calls.name()}" if place else ""
            if code == -signal.SIGSYS:
                what = f"its process made a system call that no handler may make{handler}{at}"
                raise LaneProcessFailed(what, Fault.HANDLER, place) from None
            raise LaneProcessFailed(f"its process died{handler} ({how(code)}){at}", place=place, code=code) from None
        except MemoryError:
            self._fail_without_memory()
        except Exception as error:  # noqa: BLE001 - whatever it has sent, it is not the job's
            self.fail(error)

    @contextmanager
    def within_memory(self) -> Iterator[None]:
        """Make it the lane's failure if the worker runs out of memory while it does something for the lane."""
        try:
            yield
        except MemoryError:
            self._fail_without_memory()

    def _fail_without_memory(self) -> NoReturn:
        self.end()
        raise LaneProcessFailed(
            "its worker ran out of memory for what its process sends or needs", Fault.MEMORY
        ) from None

    def _count_threads(self) -> int:
        try:
            return len(list(Path(f"/proc/{self._pid}/task").iterdir()))
        except OSError:  # not Linux, or gone
            return 0


class LaneProcesses:
    """The processes of a worker's lanes."""

    def __init__(self) -> None:
        self._forkers: dict[str, Forker] = {}
        self._idle: dict[tuple[str, str], LaneProcess] = {}
        self._last = ""
        """The lane that has executed last."""
        self.left: dict[str, tuple[str, int]] = {}
        """By lane, the point at which its last batch left it (`parked.point_of`), and the last block that it has emitted there."""

    def take(self, lane: str, start: Start, hash_seed: str = HASH_SEED) -> LaneProcess:
        """Return the lane's process with this hash seed, which has executed its last batch here, or a new one.

        Before a lane executes, all other lanes' processes are made to stand still, and what they have left behind is ended.
        """
        if hash_seed == HASH_SEED:
            self._clear(lane)
        process = self._idle.pop((lane, hash_seed), None)
        if process is not None and process.lives:
            process.go_on()
            return process
        forker = self._forkers.get(hash_seed)
        if forker is None or not forker.lives:
            forker = self._forkers[hash_seed] = Forker(hash_seed)
        return forker.fork(start)

    def _clear(self, lane: str) -> None:
        for (other, _), process in self._idle.items():
            if other != lane:
                process.stand_still()
        ended = sum(each.end_orphans() for each in self._forkers.values())
        if ended:
            say = {"event": "processes ended", "count": ended, "left_by": self._last, "before": lane}
            sys.stderr.write(json.dumps(say) + "\n")
            sys.stderr.flush()
        self._last = lane

    def put(self, lane: str, process: LaneProcess, hash_seed: str = HASH_SEED) -> None:
        """Keep a process for the next time."""
        self._idle[lane, hash_seed] = process

    def close(self) -> None:
        for each in self._idle.values():
            each.end()
        self._idle.clear()
        for forker in self._forkers.values():
            forker.close()
        self._forkers.clear()


WORDS_BYTES_MAX: Final = 64 * 1024
"""Bytes of the last words of a process."""
WORDS_FILE_BYTES: Final = PAGE_BYTES + WORDS_BYTES_MAX

PROCESSES_MAX: Final = 10_000
"""Processes that are looked at, of those that a lane's has started: they may be new ones all the time."""


def below(*pids: int) -> list[int]:
    """Return the children of processes, and theirs."""
    found: list[int] = []
    left = list(pids)
    while left and len(found) < PROCESSES_MAX:
        children = children_of(left.pop())
        found += children
        left += children
    return found


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for each in os.scandir(f"/proc/{pid}/task"):
            found += map(int, Path(each.path, "children").read_text(encoding="ascii").split())
    return found


def occupied(pid: int) -> int:
    """Return the bytes that a process has in memory, those included that it shares; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError):
        return 0


def how(code: int | None) -> str:
    """Return in words how a process has ended."""
    if code is None:
        return "unknown how"
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:  # one that has no name
        return f"signal {-code}"


def where(words: str) -> str:
    """Return the innermost place that a process was at, as text to append; empty if its last words do not say."""
    found = next((line.strip() for line in words.splitlines() if line.startswith("  File ")), "")
    return f": {found}" if found else ""


def words_file() -> IO[bytes]:
    """Return a file with the page of a process's calls and room for its last words, whose size nothing changes."""
    if not hasattr(os, "memfd_create"):
        words = tempfile.TemporaryFile()  # noqa: SIM115 - the process's
        words.truncate(WORDS_FILE_BYTES)
        return words
    number = os.memfd_create("words", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(number, WORDS_FILE_BYTES)
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return os.fdopen(number, "r+b", buffering=0)


_RECOVERS: Final = (Say.LOAD_SLOTS, Say.LOAD_JOURNAL)
"""What a process asks for to bring its lane back into memory."""


class Pace:
    """What a process has completed in time, in one batch after the other."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._call_s = float("inf")
        self._last_resort_s = 0.0
        self._what = ""
        """What takes the time of a recovery, empty if nothing does."""
        self._may_recover = False
        """Whether it can begin to bring its lane back: once in a batch."""
        self._bytes = 0
        """Bytes that were said and heard in this batch."""
        self._looks = 0
        """How often it was looked at since it got on."""
        self._frame, self._frame_looks = 0, 0
        """A frame that had begun when it was looked at, and how often that was so."""

    def begin(self, call_s: float, last_resort_s: float, *, imports: bool, may_recover: bool) -> None:
        """Begin a batch, in which a call may take some seconds."""
        self._call_s, self._last_resort_s = call_s, last_resort_s
        self._what, self._may_recover = "the import of its plugins" if imports else "", may_recover
        self._bytes = self._looks = 0

    def said(self, size: int) -> None:
        self._bytes += size

    def heard(self, say: Say, size: int) -> None:
        self._bytes += size
        if say in _RECOVERS and self._may_recover:
            self.got_on()
            self._what, self._may_recover = "its recovery", False
        elif say is Say.LOADED or (say is Say.RECOVERED and self._what):
            self.got_on()

    def got_on(self) -> None:
        """Note that it has completed something: from now on it has the time of a block."""
        self._what, self._looks = "", 0

    def overdue(self) -> str:
        """Return in words what it has not completed in time, empty if there is nothing. Called about every `LOOK_S` seconds of waiting."""
        self._looks += 1
        most = (RECOVERY_CALLS_MAX if self._what else BLOCK_CALLS_MAX) * self._call_s + self._last_resort_s
        most += self._bytes / BYTES_PER_S
        if self._looks * LOOK_S >= most:
            return f"its process did not complete {self._what or 'a block or its batch'} within {most:.0f} seconds"
        begun = self._wire.begun if self._wire.begun != self._wire.arrived else 0
        self._frame_looks = self._frame_looks + 1 if begun and begun == self._frame else 0
        self._frame = begun
        if self._frame_looks * LOOK_S >= self._call_s + self._last_resort_s:
            return "its process did not end what it began to send"
        return ""


LINE_CHARACTERS_MAX: Final = 4096
"""Characters of a line; a longer one becomes several."""

OF_A_LANE: Final = "a lane's process: "


def write_quoted(text: str, before: str = OF_A_LANE) -> None:
    """Write a text to standard error, each line with something before it."""
    for line in text.splitlines():
        sys.stderr.write(f"{before}{printable(line)}\n")
    sys.stderr.flush()


def quoting_pipe() -> int:
    """Return the writing end of a pipe whose lines are written to standard error."""
    read, write = os.pipe()
    threading.Thread(target=_copy, args=(read,), daemon=True).start()
    return write


def _copy(pipe: int) -> None:
    with os.fdopen(pipe, encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in iter(lambda: lines.readline(LINE_CHARACTERS_MAX), ""):
            write_quoted(line)
