# SPDX-License-Identifier: Apache-2.0
"""Starts Spark's Python workers as `pyspark.daemon` does, but gives each partition of a stage a separate worker.

Spark hands a task to any idle worker of its stage. With several state partitions their lanes would move from worker to worker, and be
rebuilt from the state store each time, and what one worker has read ahead another one would be asked for. Here Spark's connections belong
to this process. A task begins with the number of its partition: this process looks at it, and passes the connection to the worker that has
executed the partition before, until the task is finished.

To Spark all is as always. It knows a connection by the worker that was started for it; a worker that dies ends the connection of its
task, with its last words; and a connection that Spark closes during a task ends the worker.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias

from pyspark import daemon
from pyspark.util import enable_faulthandler

from streaming.stages import IMPORTS, KEPT, KEPT_WORKERS_MAX, STAGE_VARIABLE

_STDIN: Final = 0
_NUMBER_BYTES: Final = 4
_DONE: Final = b"d"

OWN_WORDS: Final = "workers"
"""The folder, in Spark's own for last words, in which workers leave theirs. Spark removes what it has read under a worker's id, which may
not have been the one that died."""

_FOLDER: Final = "PYTHON_FAULTHANDLER_DIR"

DONE_S_MAX: Final = 2.0
"""Seconds between the end of a task, after which Spark may close its connection, and the worker's word that it has finished."""

Serve: TypeAlias = Callable[[socket.socket], int]
"""Executes one task over a connection; returns the exit code of the worker, 0 if it can execute another."""


@dataclass(eq=False, slots=True)
class Connection:
    """A connection of Spark, which knows it by the process ``known_as``."""

    sock: socket.socket
    known_as: int = 0


@dataclass(eq=False, slots=True)
class Worker:
    """A worker process; ``control`` passes it connections and says when it has finished a task or is gone."""

    pid: int
    control: socket.socket
    connection: Connection | None = None
    """That of the task that it executes."""
    waiting: list[Connection] = field(default_factory=list)
    """Those of its next tasks."""
    partition: int | None = None
    """The number of its partition, modulo `KEPT_WORKERS_MAX`."""


class Manager:
    """Starts workers, and passes tasks to them. ``last_words`` is Spark's folder for those of workers."""

    def __init__(self, listener: socket.socket, serve: Serve, last_words: Path | None = None) -> None:
        self._listener = listener
        self._serve = serve
        self._last_words = last_words
        self._connections: list[Connection] = []
        self._workers: list[Worker] = []

    def run(self) -> None:
        """Serve Spark until it closes standard input."""
        while self._step():
            pass

    def _step(self) -> bool:
        """Wait for something to happen and react to it; false once Spark is gone."""
        events = self._events()
        if _STDIN in events and not os.read(_STDIN, _NUMBER_BYTES):
            return False  # what it reads otherwise is the id of a worker to kill: its connection is closed as well
        for worker in [each for each in self._workers if each.control.fileno() in events]:
            self._hear(worker)
        for connection, found in [(each, events.get(each.sock.fileno(), 0)) for each in self._connections]:
            if found and connection in self._connections:
                self._look_at(connection, found)
        if self._listener.fileno() in events:
            self._accept()
        return True

    def _events(self) -> dict[int, int]:
        poller = select.poll()
        poller.register(_STDIN, select.POLLIN)
        poller.register(self._listener, select.POLLIN)
        for worker in self._workers:
            poller.register(worker.control, select.POLLIN)
        busy = {id(each) for worker in self._workers for each in (worker.connection, *worker.waiting)}
        for connection in self._connections:
            poller.register(connection.sock, select.POLLRDHUP if id(connection) in busy else select.POLLIN)
        return dict(poller.poll())

    # --- connections ---

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        connection = Connection(sock)
        self._connections.append(connection)
        try:
            connection.known_as = self._start().pid
        except OSError:  # Spark sees that its connection is closed
            self._close(connection)
            return
        with suppress(OSError):
            sock.sendall(connection.known_as.to_bytes(_NUMBER_BYTES))

    def _look_at(self, connection: Connection, events: int) -> None:
        """Pass on a task that has arrived, or notice that Spark has closed the connection."""
        worker = next((each for each in self._workers if connection in (each.connection, *each.waiting)), None)
        if worker is None and events & select.POLLIN:
            head = connection.sock.recv(_NUMBER_BYTES, socket.MSG_PEEK | socket.MSG_WAITALL)
            if len(head) == _NUMBER_BYTES:
                self._pass_on(connection, int.from_bytes(head) % KEPT_WORKERS_MAX)
                return
        if worker is not None and worker.connection is connection:
            if not select.select([worker.control], [], [], DONE_S_MAX)[0]:
                os.kill(worker.pid, signal.SIGKILL)  # Spark has given the task up
            self._hear(worker)
        if connection in self._connections:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        self._connections.remove(connection)
        connection.sock.close()
        for worker in self._workers:
            if connection in worker.waiting:
                worker.waiting.remove(connection)
        for worker in list(self._workers):
            is_spare = worker.partition is None and worker.connection is None and worker.pid == connection.known_as
            if is_spare or not self._connections:
                self._end(worker)

    # --- workers ---

    def _start(self) -> Worker:
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            others = [self._listener, ours]
            others += [each.sock for each in self._connections] + [each.control for each in self._workers]
            _work(theirs, self._serve, others)
        theirs.close()
        worker = Worker(pid, ours)
        self._workers.append(worker)
        return worker

    def _pass_on(self, connection: Connection, partition: int) -> None:
        """Pass a connection to the worker that has a partition, if there is none to one that has no partition yet."""
        worker = next((each for each in self._workers if each.partition == partition), None)
        if worker is None:
            worker = next((each for each in self._workers if each.partition is None), None) or self._start()
            worker.partition = partition
        worker.waiting.append(connection)
        self._continue(worker)

    def _continue(self, worker: Worker) -> None:
        while worker.connection is None and worker.waiting:
            if _is_closed(worker.waiting[0]):
                self._close(worker.waiting[0])
                continue
            worker.connection = worker.waiting.pop(0)
            with suppress(OSError):  # it is gone: `_hear` will find out
                socket.send_fds(worker.control, [_DONE], [worker.connection.sock.fileno()])

    def _hear(self, worker: Worker) -> None:
        """Notice that a worker has finished its task, or is gone."""
        try:
            heard = worker.control.recv(1)
        except OSError:
            heard = b""
        if heard:
            worker.connection = None
            self._continue(worker)
        else:
            self._bury(worker)

    def _bury(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.control.close()
        os.waitpid(worker.pid, 0)
        connection, waiting = worker.connection, worker.waiting
        if connection is not None:
            self._report(worker, connection)
            self._close(connection)
        for each in waiting:
            assert worker.partition is not None
            self._pass_on(each, worker.partition)

    def _report(self, worker: Worker, connection: Connection) -> None:
        """Put a worker's last words where Spark looks for those of the connection's process."""
        if self._last_words is not None:
            with suppress(OSError):
                (self._last_words / OWN_WORDS / str(worker.pid)).replace(self._last_words / str(connection.known_as))

    def _end(self, worker: Worker) -> None:
        """Let a worker end that executes nothing; one that does ends with its task's connection."""
        if worker.connection is None:
            self._workers.remove(worker)
            worker.control.close()
            os.waitpid(worker.pid, 0)


def _is_closed(connection: Connection) -> bool:
    poller = select.poll()
    poller.register(connection.sock, select.POLLRDHUP)
    return bool(poller.poll(0))


def _work(control: socket.socket, serve: Serve, others: Iterable[socket.socket]) -> None:
    """Execute tasks in a worker's process, until the manager is gone or a task fails."""
    try:
        for each in others:  # a connection ends when its last copy is closed
            each.close()
        with open(os.devnull) as nothing:  # noqa: PTH123
            os.dup2(nothing.fileno(), _STDIN)
        with enable_faulthandler():
            while True:
                _, passed, _, _ = socket.recv_fds(control, 1, 1)
                if not passed:
                    break
                with socket.socket(fileno=passed[0]) as connection:
                    if serve(connection):
                        with suppress(OSError):  # Spark reads what the task has to say, then closes the connection
                            while connection.recv(1024):
                                pass
                        break
                control.send(_DONE)
                gc.collect()
    except BaseException:  # noqa: BLE001 - nothing of the manager may run in this process
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _serve(connection: socket.socket) -> int:
    return daemon.worker(connection, authenticated=True)


def _import(modules: Iterable[str]) -> None:
    """Import what the workers need, so that they begin with it; the next one, too, after one has died."""
    # of forking next to threads: those that run here belong to libraries that expect it
    warnings.simplefilter("ignore", DeprecationWarning)
    with suppress(Exception):  # the worker says so
        for module in modules:
            import_module(module)
    gc.freeze()  # pages that no collection touches stay shared


def main() -> None:
    """Serve Spark as its daemon of one stage."""
    is_kept = os.environ.get(STAGE_VARIABLE) in KEPT
    local_sockets = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "").lower() == "true"
    if not is_kept or not local_sockets or not hasattr(select, "POLLRDHUP"):
        daemon.manager()
        return
    _import(IMPORTS[os.environ[STAGE_VARIABLE]])
    os.setpgid(0, 0)
    path = Path(os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"]) / f".{uuid.uuid4()}.sock"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(socket.SOMAXCONN)
    name = str(path).encode()
    sys.stdout.buffer.write(len(name).to_bytes(_NUMBER_BYTES) + name)
    sys.stdout.buffer.flush()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    words = Path(os.environ[_FOLDER]) if _FOLDER in os.environ else None
    if words is not None:
        own = words / OWN_WORDS
        own.mkdir(exist_ok=True)
        os.environ[_FOLDER] = str(own)
    try:
        Manager(listener, _serve, words).run()
    finally:
        path.unlink(missing_ok=True)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(0, signal.SIGHUP)  # to the workers


if __name__ == "__main__":
    main()
