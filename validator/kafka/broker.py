# SPDX-License-Identifier: Apache-2.0
"""The embedded broker: our own Apache Kafka process, for a machine that has no Kafka.

Its directory holds everything: `data/` (kept across restarts), `server.properties` (rewritten at each start), `secret` (the clients'
password), `broker.log`, `broker.log.1` (an earlier log) and `broker.json` (process id, start time, ports, folder). It listens on the
loopback address only, and admits only who can read the secret (`kept_secret`). It outlives the program that started it, until
`stop`. Only the process that `broker.json` names is ever stopped, and only if its start time matches and the folder is not a copy.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import time
import uuid
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from validator.errors import UserError
from validator.kafka.class_archive import WRITE_S_MAX, is_writing, java_options
from validator.kafka.jars import ensure_jars
from validator.kafka.java import find_java
from validator.kafka.process import start_time, stop_process
from validator.private import UMASK, alone, make_private, open_private, write_private

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

    from validator.kafka.jars import Progress


HOST: Final = "127.0.0.1"

# Ports outside the range that systems use for outgoing connections (32768 and up): inside it, polling a port without a
# listener can connect to itself.
_PORTS: Final = range(20_000, 32_768)

START_S_MAX: Final = 90.0
"""A start takes 3 s; on a machine busy with Spark's start it has taken 15."""

STOP_S_MAX: Final = 30.0

LOG_BYTES_MAX: Final = 16 << 20
"""Bytes of a log to which a start still appends: it keeps a larger one as `broker.log.1`, in place of the one before."""

LOG_END_BYTES: Final = 256 << 10
"""Bytes at the end of the log in which a failed start looks for its error."""

FREE_BYTES_MIN: Final = 64 << 10
"""Bytes on its disk without which the broker is said to have ended for want of them."""

FREE_SPACE: Final = "free space on its disk, then start it again (docs/failures.md, The embedded broker's disk is full)"

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)

# Measured on 2 cores: 3 s to the first answer, 160 MB resident. A larger initial heap only makes the process larger, and
# the optimising compiler would compete with Spark's start for the cores.
_JVM: Final = (
    *("-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Djava.awt.headless=true", "-Dlog4j2.level=WARN"),
)

_PROPERTIES: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "BROKER",
    # A single broker holds every replica.
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Created at first use: with 50 partitions each, the default, the first transaction would cost seconds and 100 folders.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # A consumer group here is one process: there are no others to wait for.
    "group.initial.rebalance.delay.ms": "0",
    # A standby may take over within seconds (default: 6 s).
    "group.min.session.timeout.ms": "1000",
    # A misspelt topic name is an error, not a new topic; `validator topics create` creates ours.
    "auto.create.topics.enable": "false",
    # 128 MB by default, half of this heap; 4 MB still compacts 150,000 keys in one pass.
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    # After a kill, the next start waits until the killed broker's session has expired (default: 9 s).
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    # By the records that a controller writes while nothing happens, others notice that it hangs (default: 0.5 s). Here they only cost.
    "metadata.max.idle.interval.ms": "10000",
    # The offsets of an idle group survive a developer's holiday (default: 7 days).
    "offsets.retention.minutes": str(60 * 24 * 30),
}


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """What `validator broker status` reports; `pid` and `bootstrap_servers` are None if nothing runs."""

    running: bool
    bootstrap_servers: str | None
    pid: int | None
    directory: str
    log: str


class EmbeddedBroker:
    """The broker of one directory; as a context manager it stops on exit what it started on entry.

    Several programs may share one directory: the first starts the process, the others find it running. ``port`` is where clients expect
    it; later starts without one use it again. Without any, a start takes the port of the one before if it is free.
    """

    def __init__(self, directory: Path, port: int | None = None) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "broker.log"
        self.moved_from: int | None = None
        """The port of the start before, if this object's `start` found it taken and chose another one."""
        self.stopped_in: str | None = None
        """The earlier path of this folder, if this object's `start` stopped a broker that was started there before the folder was moved."""
        self.address: str | None = None
        """Where this object's `start` will let the broker answer, known before it formats its folder and starts the process."""
        self._port = port
        self._jvm = _JVM
        self._process: subprocess.Popen[bytes] | None = None
        self._started: tuple[int, str] | None = None
        """Process and start time of what this object's `start` started last."""
        self._log_before = 0  # bytes written by earlier starts

    @property
    def started_here(self) -> bool:
        """Whether this object's `start` started the folder's last process; one that somebody else has started since is not its own."""
        record = None if self._started is None else read_record(self.directory)
        return record is not None and (record.pid, record.started) == self._started

    @property
    def kafka(self) -> dict[str, object]:
        """Return the `[kafka]` table of its clients: address and login. Raises `UserError` if nothing runs."""
        return self.with_login(self.bootstrap_servers)

    def with_login(self, bootstrap_servers: str) -> dict[str, object]:
        """Return the table of its clients for an address at which it will answer. Raises `UserError` if its secret cannot be read."""
        return {"bootstrap.servers": bootstrap_servers, **client_login(read_secret(self.directory))}

    @property
    def bootstrap_servers(self) -> str:
        """Return the address that clients connect to; `UserError` if nothing runs."""
        record = self._running()
        if record is None:
            raise UserError(
                f"no broker runs in {self.directory}: start broker and job with `validator up`, or the broker alone with `validator broker "
                "start`; a broker of another folder is found from there, or with VALIDATOR_HOME=FOLDER/.validator"
            )
        return f"{HOST}:{record.port}"

    def start(self, *, progress: Progress | None = None) -> str:
        """Start the process unless it runs; return its bootstrap servers once it answers.

        Errors, in order: it runs on another port than the configured one, no Java, jars unavailable, the configured port is taken, the
        disk is full, the process exits or does not answer (the message names its log file).
        """
        try:
            return self._start(progress)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise UserError(f"the broker's folder {self.directory}: {error.strerror}: {FREE_SPACE}") from error

    def _start(self, progress: Progress | None) -> str:
        make_private(self.directory)
        with alone(self.directory / "broker.lock"):
            running = self._running()
            if running is not None and self._port not in (None, running.port):
                raise UserError(
                    f"--port: the broker in {self.directory} runs on port {running.port}, expected {self._port}: stop it with "
                    "`validator broker stop`"
                )
            if running is None:
                self._stop_moved()
                running = self._spawn(find_java(), ensure_jars(progress=progress))
                self._started = running.pid, running.started
            if not running.admits:
                self._wait_until_it_answers(running)
                admit_clients(f"{HOST}:{running.port}", running.own, kept_secret(self.directory))
                keep_record(self.directory, replace(running, admits=True))
            return self.bootstrap_servers

    def stop(self) -> bool:
        """Shut the process down cleanly; return whether one ran. The data is kept."""
        if not self.directory.is_dir():
            return False
        with alone(self.directory / "broker.lock"):
            record = read_record(self.directory)
            ours = record is not None and (record.was_started_in(self.directory) or record.has_moved_to(self.directory))
            stopped = record is not None and ours and self._stop_recorded(record)
            if self._process is not None:
                self._process.wait()
            self._process = self._started = None
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

    def _running(self) -> BrokerRecord | None:
        """Return the process of this folder, if it runs: one that was started in another folder is none."""
        record = read_record(self.directory)
        return record if record and record.runs() and record.was_started_in(self.directory) else None

    def _stop_moved(self) -> None:
        """Stop a broker whose folder was moved here: it would end as soon as it opens a file by its old path."""
        record = read_record(self.directory)
        if record is not None and record.has_moved_to(self.directory) and self._stop_recorded(record):
            self.stopped_in = record.directory

    def _stop_recorded(self, record: BrokerRecord) -> bool:
        return stop_process(record.pid, record.started, patience_s=WRITE_S_MAX if is_writing("broker") else STOP_S_MAX)

    def _spawn(self, java: Path, jars: list[Path]) -> BrokerRecord:
        previous = read_record(self.directory)
        configured = self._port or (previous.port if previous and previous.configured else None)
        if configured is not None:
            _refuse_taken(configured, self.log)
        wanted = configured or (previous.port if previous else None)
        port, controller_port = _free_ports(wanted, previous.controller_port if previous else None)
        self.moved_from = wanted if wanted not in (None, port) else None
        properties = self.directory / "server.properties"
        own = self._own_password()
        write_private(properties, self._properties(port, controller_port, own))
        kept_secret(self.directory)
        self.address = f"{HOST}:{port}"  # who sees it reads the secret, before the broker answers
        classpath, archive = ("-cp", ":".join(map(str, jars))), java_options("broker", jars)
        self._keep_long_log()
        with open_private(self.log) as log:
            self._log_before = log.tell()
            self._format(
                [str(java), *self._jvm, *(() if is_writing("broker") else archive), *classpath],
                properties,
                log.fileno(),
            )
            process = subprocess.Popen(
                [str(java), *self._jvm, *archive, *classpath, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,  # Ctrl-C goes to its starter, which stops it cleanly
                umask=UMASK,
            )
        self._process = process
        # Written before the broker answers: if its starter is killed now, the broker can still be found and stopped.
        started = start_time(process.pid, reap=False) or ""  # the exit code is for `_wait_until_it_answers`
        record = BrokerRecord(
            process.pid, started, port, controller_port, str(self.directory), configured is not None, own
        )
        keep_record(self.directory, record)
        return record

    def _keep_long_log(self) -> None:
        with suppress(FileNotFoundError):
            if self.log.stat().st_size > LOG_BYTES_MAX:
                self.log.replace(self.log.with_name("broker.log.1"))

    def _properties(self, port: int, controller_port: int, own: str) -> str:
        properties = (
            _PROPERTIES
            | server_login(own)
            | {
                "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
                "advertised.listeners": f"BROKER://{HOST}:{port}",
                # Set here rather than stored in the data, so that a restart may move to another port.
                "controller.quorum.voters": f"1@{HOST}:{controller_port}",
                "log.dirs": str(self.directory / "data"),
            }
        )
        return "".join(f"{key}={value}\n" for key, value in properties.items())

    def _format(self, command: list[str], properties: Path, log: int) -> None:
        """Format the data folder, once in its lifetime."""
        if (self.directory / "data" / "meta.properties").is_file():
            return
        done = subprocess.run(
            [
                *command,
                "kafka.tools.StorageTool",
                "format",
                "--cluster-id",
                self._cluster_id(),
                "--config",
                str(properties),
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
            umask=UMASK,
        )
        if done.returncode != 0:
            raise UserError(f"the broker's data folder could not be formatted: {self._last_error()}")

    def _own_password(self) -> str:
        """Return the password by which the broker knows itself in this start."""
        return secrets.token_hex(32)

    def _cluster_id(self) -> str:
        return new_cluster_id()

    def _wait_until_it_answers(self, record: BrokerRecord) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            if self._process is not None and self._process.poll() is not None:
                raise UserError(f"the broker ended with code {self._process.returncode}: {self._last_error()}")
            if self._process is None and start_time(record.pid) != record.started:
                raise UserError(f"the broker ended: {self._last_error()}")
            try:
                # The broker opens its port once everything else is up.
                socket.create_connection((HOST, record.port), timeout=1.0).close()
            except OSError:
                time.sleep(0.05)
            else:
                return
        stop_process(record.pid, record.started, patience_s=STOP_S_MAX)
        raise UserError(f"the broker did not answer within {START_S_MAX:.0f} s: {self._last_error()}")

    def has_full_disk(self) -> bool:
        """Return whether the disk is full, or the log of what was started here says that it was: Kafka ends when it cannot write.

        The log itself may lack the room for that line.
        """
        try:
            lines = self._log_end() if self.started_here else []
            return any(os.strerror(code) in line for code in _FULL for line in lines) or not has_room(self.directory)
        except OSError:
            return False

    def _log_end(self) -> list[str]:
        with self.log.open("rb") as log:
            log.seek(max(self._log_before, self.log.stat().st_size - LOG_END_BYTES))
            return log.read(LOG_END_BYTES).decode(errors="replace").splitlines()

    def _last_error(self) -> str:
        """Quote the last error in the end of the log, and name the file."""
        lines = self._log_end()
        errors = [line.strip() for line in lines if "Exception" in line or "ERROR" in line or "Error:" in line]
        newer = "UnsupportedVersionException" in "".join(errors)
        hint = (
            f"; a newer Kafka has written {self.directory / 'data'}: continue with the version of validator that did, or restore the "
            "backup from before the upgrade (docs/upgrade.md)"
            if newer
            else ""
        )
        if self.has_full_disk():
            hint = f"; {FREE_SPACE}"
        return f"{errors[-1] if errors else 'it logged nothing'}{hint}; its log is {self.log}"


def has_room(folder: Path) -> bool:
    return shutil.disk_usage(folder).free >= FREE_BYTES_MIN


def new_cluster_id() -> str:
    """Return a random id for Kafka's metadata."""
    # A leading dash would be read as an option, so the first bit is cleared.
    identity = uuid.UUID(int=uuid.uuid4().int & ((1 << 127) - 1))
    return base64.urlsafe_b64encode(identity.bytes).rstrip(b"=").decode()


def _refuse_taken(port: int, log: Path) -> None:
    """Raise `UserError` if a port that a person chose is taken: clients expect the broker there and nowhere else."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # lingering old connections do not count
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UserError(
                f"--port: {HOST}:{port} cannot be used by the broker ({error.strerror}): stop what uses it, or choose another --port; the "
                f"broker's log is {log}"
            ) from None


def _free_ports(*wanted: int | None) -> list[int]:
    """Return as many free ports as are wanted, the wanted ones if possible."""
    with ExitStack() as held:  # all are held until each is found, so that no port is chosen twice
        return [_bind(held, port) for port in wanted]


def _bind(held: ExitStack, wanted: int | None) -> int:
    for attempt in range(200):
        port = wanted if wanted and attempt == 0 else _PORTS[secrets.randbelow(len(_PORTS))]
        probe = held.enter_context(socket.socket())
        # As for the broker, a port with lingering old connections counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            continue
        return port
    raise UserError(f"no free port on {HOST} between {_PORTS.start} and {_PORTS.stop - 1} in 200 attempts")


_NAME = "broker.json"

_VERSION = 1


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """The process that was started last and its ports, which a restart reuses if it can."""

    pid: int
    started: str
    port: int
    controller_port: int
    directory: str
    """The folder in which it was started, as an absolute path."""
    configured: bool = False
    """Whether a person chose the port; otherwise another one will do if it is taken."""
    own: str = ""
    """The password by which the broker knows itself in this start."""
    admits: bool = False
    """Whether the broker has answered and admits its clients; not so if its starter was killed before."""

    def runs(self) -> bool:
        return start_time(self.pid) == self.started

    def was_started_in(self, directory: Path) -> bool:
        """Return whether the broker was started in this folder, under whatever name."""
        try:
            return Path(self.directory).samefile(directory)
        except OSError:  # there is no such folder any more
            return False

    def has_moved_to(self, directory: Path) -> bool:
        """Return whether the folder was moved here: what it was started in is gone, or has another broker. A copy leaves it in place."""
        if self.was_started_in(directory):
            return False
        there = read_record(Path(self.directory))
        return there is None or (there.pid, there.started) != (self.pid, self.started)


def read_record(directory: Path) -> BrokerRecord | None:
    """Return the record in a broker's folder, or None if there is none. Raises `UserError` if it is damaged or newer."""
    path = directory / _NAME
    try:
        values = dict(json.loads(path.read_text(encoding="utf-8")))
        version = values.pop("version")
        unknown = sorted(values.keys() - {each.name for each in fields(BrokerRecord)})
        if version != _VERSION or unknown:
            raise UserError(
                f"{path}: a newer version of validator has written it ({', '.join([f'version {version}', *unknown])}): use that "
                "one, or stop its broker with that one and remove the file, which only names the process and its ports"
            )
        return BrokerRecord(**values)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it") from error


def keep_record(directory: Path, record: BrokerRecord) -> None:
    """Write the record of a broker's folder; only its owner can read it."""
    write_private(directory / _NAME, json.dumps({"version": _VERSION, **asdict(record)}) + "\n")


# --- logins: no other user of the machine can read or write ---
#
# Clients prove with SCRAM that they know the secret of the broker's folder, and so does the broker to them: a process that takes its port
# while it is down learns nothing, and is not believed. Kafka keeps what verifies the secret in its own log, where it is set after each
# start, through the login of the broker itself. That one is for a single start and for connections within the process, so that PLAIN is
# enough.

USER: Final = "validator"
"""User of every client."""

FILE: Final = "secret"
"""File of the clients' password in the broker's folder."""

_BYTES: Final = 32
_FORM: Final = re.compile(rb"[0-9a-f]{64}\n?")
"""A file that was cut short would be a password that anybody may guess."""

_OWN_USER: Final = "broker"

_ITERATIONS: Final = 4096
"""Kafka's minimum: the secret has 256 random bits, so that guessing is hopeless at any cost per guess."""

_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def server_login(own: str) -> dict[str, str]:
    """Return the broker's properties that admit its clients, and itself with the password ``own``."""
    itself = f'{_PLAIN} required username="{_OWN_USER}" password="{own}" user_{_OWN_USER}="{own}";'
    return {
        "listener.security.protocol.map": "BROKER:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.broker.plain.sasl.jaas.config": itself,
        "listener.name.broker.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": itself,
    }


def client_login(secret: str) -> dict[str, str]:
    """Return the keys of a `[kafka]` table with which a client is admitted."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": secret,
    }


def kept_secret(directory: Path) -> str:
    """Return the secret of a broker's folder; make one if there is none, or none that only we can know."""
    path = directory / FILE
    try:
        found = path.lstat()
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & UMASK
        if own and _FORM.fullmatch(path.read_bytes()):
            return read_secret(directory)
    except OSError:
        pass
    write_private(path, secrets.token_hex(_BYTES) + "\n")
    return read_secret(directory)


def read_secret(directory: Path) -> str:
    """Return the secret of a broker's folder. Raises `UserError`."""
    path = directory / FILE
    try:
        found = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, f"cannot be read ({error.strerror})") from error
    if not _FORM.fullmatch(found):
        raise _unreadable(path, "is damaged")
    return found.decode().strip()


def _unreadable(path: Path, why: str) -> UserError:
    return UserError(
        f"{path}: the embedded broker's secret {why}: stop the broker with `validator broker stop` and start it again"
    )


def admit_clients(bootstrap_servers: str, own: str, secret: str) -> None:
    """Make a broker that has just started admit clients with this secret. Raises `UserError`."""
    from confluent_kafka import KafkaException  # a command without a broker does not wait for librdkafka
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    from validator.kafka.retry import answer
    from validator.kafka.settings import admin_config

    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": _OWN_USER,
        "sasl.password": own,
    }
    admin = AdminClient(admin_config({"bootstrap.servers": bootstrap_servers, **login}))
    kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, _ITERATIONS)
    wanted = UserScramCredentialUpsertion(USER, kind, secret.encode())

    def set_it(left_s: float) -> None:
        for future in admin.alter_user_scram_credentials([wanted], request_timeout=left_s).values():
            future.result()

    try:
        answer(set_it)
    except KafkaException as error:
        raise UserError(
            f"the broker at {bootstrap_servers} does not take its clients' secret: {error.args[0].str()}"
        ) from error


def java_properties(kafka: Mapping[str, object]) -> dict[str, str]:
    """Return the broker's `[kafka]` table in the names of Kafka's Java client."""
    found = {key: str(value) for key, value in kafka.items()}
    user, password = found.pop("sasl.username"), found.pop("sasl.password")
    return found | {"sasl.jaas.config": f'{_SCRAM} required username="{user}" password="{password}";'}
