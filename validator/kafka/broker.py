# SPDX-License-Identifier: Apache-2.0
"""The embedded broker: one Apache Kafka process of our own, for a machine that has no Kafka.

Its directory holds all of it: `data/` (kept across restarts), `server.properties` (written anew at each start),
`broker.log` and `broker.json` (process, its start time, ports). It listens on the loopback address alone. It outlives
the program that started it, until `stop`; only a process that `broker.json` names, and that started when it says, is
ever stopped.
"""

from __future__ import annotations

import base64
import fcntl
import json
import secrets
import socket
import subprocess
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from validator.errors import UserError
from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java
from validator.kafka.process import start_time, stop_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from validator.kafka.jars import Progress

HOST: Final = "127.0.0.1"

# A port outside the range that systems give to outgoing connections (32768 and up): inside it, our own polling of a port
# that nobody listens on yet can connect to itself.
_PORTS: Final = range(20_000, 32_768)

START_S_MAX: Final = 90.0
"""A start takes 3 s; a machine that is busy with Spark's start has been seen to need 15."""

STOP_S_MAX: Final = 30.0

# Measured on 2 cores: 3 s to the first answer, 160 MB resident. A larger first heap only makes the process larger, and
# the optimising compiler would take the cores that Spark's start needs at the same time.
_JVM: Final = (
    *("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Djava.awt.headless=true", "-Dlog4j2.level=WARN"),
)

_PROPERTIES: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    # One broker holds every copy there is.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Created at first use: 50 partitions each, the default, would cost the first transaction seconds and 100 folders.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # A consumer group here is one process: there are no others to wait for.
    "group.initial.rebalance.delay.ms": "0",
    # A misspelt topic name is an error, not a new topic; `validator topics create` makes ours.
    "auto.create.topics.enable": "false",
    # 128 MB by default, half of this heap; 4 MB still compacts 150,000 keys in one pass.
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    # After a kill the next start waits until the session of the killed one has run out (default: 9 s).
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    # Offsets of a group that is idle outlive a long week-end of a developer (default: 7 days).
    "offsets.retention.minutes": str(60 * 24 * 30),
}


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What `validator broker status` tells; `pid` and `bootstrap_servers` are None where nothing runs."""

    running: bool
    bootstrap_servers: str | None
    pid: int | None
    directory: str
    log: str


@dataclass(frozen=True, slots=True)
class _Record:
    """`broker.json`: the process that was started last, and its ports, which a restart takes again if it can."""

    pid: int
    started: str
    port: int
    controller_port: int


class EmbeddedBroker:
    """The broker of one directory; as a context manager it stops on leaving what it started on entering.

    Several programs may use one directory: the first starts the process, the others find it running.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "broker.log"
        self.started_here = False
        """Whether `start` of this object started the process, rather than found it running."""
        self._process: subprocess.Popen[bytes] | None = None
        self._log_before = 0  # bytes that earlier starts wrote

    @property
    def bootstrap_servers(self) -> str:
        """Return what clients connect to; `UserError` if nothing runs."""
        record = self._running()
        if record is None:
            raise UserError(f"no broker runs in {self.directory}: start it with `validator broker start`")
        return f"{HOST}:{record.port}"

    def start(self, *, progress: Progress | None = None) -> str:
        """Start the process unless it runs; return its bootstrap servers once it answers.

        Errors, in order: no Java, jars not to be had, the process ends or does not answer (its log file is named).
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        with self._lock():
            if self._running() is None:
                self._spawn(find_java(), ensure_jars("broker", progress=progress))
                self.started_here = True
            return self.bootstrap_servers

    def stop(self) -> bool:
        """Stop the process in order; return whether one ran. The data stays."""
        if not self.directory.is_dir():
            return False
        with self._lock():
            record = self._read_record()
            stopped = record is not None and stop_process(record.pid, record.started, patience_s=STOP_S_MAX)
            if self._process is not None:
                self._process.wait()
            self._process, self.started_here = None, False
            return stopped

    def status(self) -> BrokerStatus:
        """Return what runs, without asking the broker itself."""
        record = self._running()
        return BrokerStatus(
            running=record is not None,
            bootstrap_servers=f"{HOST}:{record.port}" if record else None,
            pid=record.pid if record else None,
            directory=str(self.directory),
            log=str(self.log),
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.started_here:
            self.stop()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one program at a time start or stop."""
        with (self.directory / "broker.lock").open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def _read_record(self) -> _Record | None:
        try:
            return _Record(**json.loads((self.directory / "broker.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise UserError(f"{self.directory / 'broker.json'} is damaged ({error}): remove it") from error

    def _running(self) -> _Record | None:
        record = self._read_record()
        return record if record and start_time(record.pid) == record.started else None

    def _spawn(self, java: Path, jars: list[Path]) -> None:
        previous = self._read_record()
        wanted = (previous.port, previous.controller_port) if previous else (None, None)
        port, controller_port = _free_ports(*wanted)
        properties = self.directory / "server.properties"
        properties.write_text(self._properties(port, controller_port), encoding="utf-8")
        command = [str(java), *_JVM, "-cp", ":".join(map(str, jars))]
        with self.log.open("ab") as log:
            self._log_before = log.tell()
            self._format(command, properties, log.fileno())
            process = subprocess.Popen(
                [*command, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C is for its starter, which stops it in order
            )
        started = start_time(process.pid)
        if started is not None:
            # Written before it answers: a starter that is killed now leaves a broker that can be found and stopped.
            record = _Record(process.pid, started, port, controller_port)
            temporary = self.directory / "broker.json.new"
            temporary.write_text(json.dumps(asdict(record)) + "\n", encoding="utf-8")
            temporary.replace(self.directory / "broker.json")
        self._process = process
        self._wait_until_it_answers(process, port)

    def _properties(self, port: int, controller_port: int) -> str:
        properties = _PROPERTIES | {
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            # Named here rather than kept in the data, so that a restart may move to another port.
            "controller.quorum.voters": f"1@{HOST}:{controller_port}",
            "log.dirs": str(self.directory / "data"),
        }
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def _format(self, command: list[str], properties: Path, log: int) -> None:
        """Prepare the data folder, once in its life."""
        if (self.directory / "data" / "meta.properties").is_file():
            return
        # A leading dash would be read as an option: the first bit is cleared.
        identity = uuid.UUID(int=uuid.uuid4().int & ((1 << 127) - 1))
        cluster = base64.urlsafe_b64encode(identity.bytes).rstrip(b"=").decode()
        done = subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config", str(properties)],
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode != 0:
            raise UserError(f"the data folder of the broker could not be prepared: {self._last_words()}")

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes], port: int) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise UserError(f"the broker ended with code {process.returncode}: {self._last_words()}")
            try:
                # It opens the port when all the rest is up.
                socket.create_connection((HOST, port), timeout=1.0).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        stop_process(process.pid, start_time(process.pid) or "", patience_s=STOP_S_MAX)
        raise UserError(f"the broker did not answer within {START_S_MAX:.0f} s: {self._last_words()}")

    def _last_words(self) -> str:
        """Quote the last complaint of the log and name the file."""
        lines = self.log.read_bytes()[self._log_before :].decode(errors="replace").splitlines()
        complaints = [line.strip() for line in lines if "Exception" in line or "ERROR" in line or "Error:" in line]
        newer = "UnsupportedVersionException" in "".join(complaints)
        hint = (
            f"; a newer Kafka has written {self.directory / 'data'}: remove it to begin without data" if newer else ""
        )
        return f"{complaints[-1] if complaints else 'it said nothing'}{hint}; its log is {self.log}"


def _free_ports(*wanted: int | None) -> list[int]:
    """Return as many free ports as are wanted, the very ones where possible."""
    with ExitStack() as held:  # all are held until each is found: no port is chosen twice
        return [_bind(held, port) for port in wanted]


def _bind(held: ExitStack, wanted: int | None) -> int:
    for attempt in range(200):
        port = wanted if wanted and attempt == 0 else _PORTS[secrets.randbelow(len(_PORTS))]
        probe = held.enter_context(socket.socket())
        # As the broker does: a port whose last connections still linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            continue
        return port
    raise UserError(f"no free port on {HOST} between {_PORTS.start} and {_PORTS.stop - 1} in 200 attempts")
