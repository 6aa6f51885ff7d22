# SPDX-License-Identifier: Apache-2.0
"""The job's Spark session.

Its JVM takes seconds to start, so it starts in a thread, while the job imports what it runs and looks at topics and checkpoint.

The sockets between the JVM and its Python workers cannot be below the job's folder: the path of a socket has at most 104 bytes. And Spark
4.2 hands their path to workers in lower case, so with any other letter in it nothing is found: the folder for temporary files of macOS
always has some.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streaming.chunk_files import remove_chunks
from streaming.cluster import log_after, refusal, unreachable
from streaming.options import (
    LOOPBACK,
    checkpoint_options,
    cluster_options,
    is_local,
    is_one_jvm,
    jvm_options,
    protection_options,
    session_options,
    worker_options,
)
from streaming.reasons import OUT_OF_MEMORY, unwritable
from streaming.spark_internals import (
    OUT_OF_MEMORY_CODE,
    end_accumulators,
    end_checksums,
    forget_jvm,
    has_ended,
    has_gateway,
    jvm,
    start_jvm,
)
from streaming.stages import DECODE, LANES, start_planners, start_workers
from validator.errors import UserError
from validator.job.spark_master import SECRET_OPTION, without_secret
from validator.kafka import class_archive
from validator.kafka.java import find_java, use_lean_home
from validator.lanes.configured import job_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from validator.config import Config


SPARK_LOG = "spark.log"

SCRATCH = "tmp"
"""Folder below the job's for what Spark's JVM keeps while it runs: shuffled records, libraries, last words of workers."""

JVM_END_S_MAX = 5.0
"""Seconds within which the process of a JVM that no longer answers has to exit."""

_LOG_CONFIGURATION = """\
# Spark's log goes to a separate file, so that the job's log stays readable.
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 64MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


class JvmGone(Exception):
    """Spark's JVM is gone, or has no memory left."""

    def __init__(
        self, reason: str = "Spark's JVM was killed, crashed or ran out of memory ([job] driver_memory)"
    ) -> None:
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a session is started with.

    ``master`` is a Spark master URL, ``directory`` holds the logs. The workers of ``stages`` start with the session, and get
    ``artefacts`` of plugins.
    """

    master: str
    directory: Path
    driver_memory: str
    state_partitions: int
    jit: str = "quick"
    stages: tuple[str, ...] = ()
    artefacts: tuple[str, ...] = ()

    @classmethod
    def of(cls, config: Config, stages: tuple[str, ...] = (DECODE, LANES)) -> SessionSettings:
        job, artefacts = config.job, tuple(config.plugins.artefacts)
        directory = job_directory(config)
        return cls(job.master, directory, job.driver_memory, job.state_partitions, job.jit, stages, artefacts)


class StartFailed(Exception):
    """Spark could not start for a reason that may pass."""


class SessionStart(threading.Thread):
    """Starts a session; `wait` returns it."""

    def __init__(self, settings: SessionSettings) -> None:
        super().__init__(name="spark-start", daemon=True)
        self._settings = settings
        self._sockets = make_sockets_folder()
        self._session: SparkSession | None = None
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._session = _start(self._settings, self._sockets)
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._failure = error

    def wait(self) -> SparkSession:
        """Return the session once it has started.

        Raises `UserError` if Java or a cluster's secret are not available, or the secret is wrong, `JvmGone` if the
        JVM ends meanwhile, `StartFailed` if the job's folder cannot be written, or a standalone master does not answer.
        """
        self.join()
        failure = self._failure
        if failure is not None:
            reason = unwritable(f"OSError: {failure}" if isinstance(failure, OSError) else str(failure))
            if reason is None or isinstance(failure, UserError | StartFailed):
                raise failure
            raise StartFailed(reason) from failure
        assert self._session is not None
        return self._session

    def end(self) -> None:
        """Stop the session, or its start."""
        process = jvm()
        if self.is_alive() and process is not None:
            process.kill()
        self.join()
        if self._session is not None and not has_ended(process, 0.0):
            end_accumulators(self._session)
            try:
                self._session.stop()
            except Exception:
                if not has_ended(process, JVM_END_S_MAX):
                    raise
            if class_archive.is_writing("spark"):
                _end_jvm(process)
        remove_chunks(self._settings.directory / SCRATCH)
        shutil.rmtree(self._sockets, ignore_errors=True)
        if process is not None and process.poll() is not None:
            forget_jvm()

    def kill(self) -> None:
        """Kill a JVM that may not be able to stop by itself."""
        process = jvm()
        if process is not None:
            process.kill()
            process.wait()


@contextmanager
def starting_session(settings: SessionSettings) -> Iterator[SessionStart]:
    """Begin to start a session, and stop it on exit."""
    start = SessionStart(settings)
    start.start()
    try:
        yield start
    except (StartFailed, JvmGone):
        start.kill()  # it may not be able to stop by itself, and the next attempt begins with another JVM
        raise
    except UserError:
        raise
    except Exception as error:
        if (gone := reason_gone()) is None:
            raise
        start.kill()
        raise gone from error
    finally:
        start.end()


@contextmanager
def spark_session(settings: SessionSettings) -> Iterator[SparkSession]:
    """Start a session, and stop it on exit. Raises as `SessionStart.wait`."""
    with starting_session(settings) as start:
        yield start.wait()


def _start(settings: SessionSettings, sockets: Path) -> SparkSession:
    if (why := unreachable(settings.master)) is not None:
        raise StartFailed(why)
    os.environ["JAVA_HOME"] = str(find_java().resolve().parent.parent)
    if is_local(settings.master):
        use_lean_home()
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = workers_python(settings.master, os.environ)
    # the first of two JVMs only prints the command line of the second
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    logs = settings.directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log_configuration = logs / "log4j2.properties"
    log_configuration.write_text(_LOG_CONFIGURATION.format(log=logs / SPARK_LOG), encoding="utf-8")
    # on a cluster Spark puts sockets there, whose paths have to be short; the folder that executors have for them is their own
    scratch = scratch_folder(settings.directory) if is_local(settings.master) else sockets
    if is_local(settings.master):
        note_sockets_folder(sockets, scratch)
    archive = class_archive.java_options("spark")
    java_options = jvm_options(log_configuration, settings.jit, archive, scratch)
    options = session_options(java_options, settings.driver_memory, settings.state_partitions)
    options |= {"spark.master": settings.master, "spark.app.name": "validator"}
    options |= protection_options(settings.master, sockets if is_local(settings.master) else None)
    options |= cluster_options(settings.master, settings.jit) | worker_options(settings.master)
    options |= checkpoint_options(settings.master)
    spark = _started(options, logs / SPARK_LOG)
    if settings.stages:
        start_planners(spark, settings.stages[0])
    start_workers(spark, settings.master, settings.stages, settings.state_partitions)
    for artefact in settings.artefacts:
        spark.sparkContext.addPyFile(artefact)
    return spark


def workers_python(master: str, environment: Mapping[str, str]) -> str:
    """Return the interpreter of Spark's Python workers.

    It is this one with its packages, not whichever `python3` is on the path. The machines of a cluster may have it elsewhere, or get it as
    one of `spark.archives`: there PYSPARK_PYTHON names it. The driver runs it, too, since Spark asks a worker for the names of the state.
    Raises `UserError` if it cannot.
    """
    named = None if is_local(master) else environment.get("PYSPARK_PYTHON")
    if named and shutil.which(named) is None:
        raise UserError(
            f"PYSPARK_PYTHON: expected a program that the driver has, too, found none at {named} from {Path.cwd()}"
        )
    return named or sys.executable


def scratch_folder(directory: Path) -> Path:
    """Return the folder for the files of one session, without those that a killed JVM has left; a JVM of this process keeps its own."""
    scratch = (directory / SCRATCH).absolute()
    if not has_gateway():
        remove_noted_sockets(scratch)
        shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return scratch


def _started(options: dict[str, str], log: Path) -> SparkSession:
    """Start a session. Raises `UserError` if the cluster's secret is not known or wrong, `StartFailed`, `JvmGone`."""
    from pyspark import SparkConf

    master = options["spark.master"]
    logged = log.stat().st_size if log.exists() else 0
    if is_local(master):
        os.environ["SPARK_LOCAL_IP"] = LOOPBACK  # for executors of local-cluster
    try:
        start_jvm(SparkConf(loadDefaults=False).setAll(list(options.items())))
        from pyspark.sql import SparkSession  # slow to import, so while the JVM starts

        if master.startswith("local-cluster["):
            # not before the JVM has started, whose command line others can read
            options = options | {"spark.authenticate.secret": secrets.token_hex(32)}
        builder = SparkSession.builder
        for name, value in options.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        if is_one_jvm(master):
            end_checksums(spark)
        return spark
    except Exception as error:
        if not has_gateway() or has_ended(jvm(), JVM_END_S_MAX):
            raise JvmGone from error
        if SECRET_OPTION in str(error):
            raise without_secret(master) from error
        if (why := refusal(master, str(error), log_after(log, logged))) is not None:
            raise StartFailed(why) from error
        raise


def _end_jvm(process: Any) -> None:
    """End a JVM, and wait until it has written its archive."""
    process.stdin.close()
    has_ended(process, class_archive.WRITE_S_MAX)


def reason_gone() -> JvmGone | None:
    """Return why a session's JVM has ended, or ends within `JVM_END_S_MAX`; None if it runs, as does one that was started elsewhere."""
    process = jvm()
    if not has_ended(process, JVM_END_S_MAX):
        return None
    return JvmGone(OUT_OF_MEMORY) if process.returncode == OUT_OF_MEMORY_CODE else JvmGone()


_PREFIX: Final = "validator-"
_NOTED: Final = "sockets"
"""The file, below the job's folder for one session, that names the folder of its sockets."""

PARENT_BYTES_MAX: Final = 40
"""Bytes of the path of its parent: the rest is for its own name and those of the sockets."""

PARENTS: Final = ("/tmp", "/var/tmp")  # noqa: S108 - the folder itself is private
"""Where it is made if the folder for temporary files does not suit."""


def make_sockets_folder() -> Path:
    """Make a folder. Raises `UserError` if there is no place for it."""
    temporary = tempfile.gettempdir()
    for parent in (temporary, *PARENTS):
        if parent == parent.lower() and len(parent.encode(errors="surrogateescape")) <= PARENT_BYTES_MAX:
            with suppress(OSError):
                return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    raise UserError(
        f"TMPDIR: expected a folder that can be written, with at most {PARENT_BYTES_MAX} bytes in its path and no capital letters, for "
        f"Spark's sockets, found {temporary}, and {' and '.join(PARENTS)} cannot be written"
    )


def note_sockets_folder(sockets: Path, scratch: Path) -> None:
    """Note in the job's folder for one session which sockets belong to it."""
    (scratch / _NOTED).write_text(str(sockets), encoding="utf-8", errors="surrogateescape")


def remove_noted_sockets(scratch: Path) -> None:
    """Remove the sockets of a session that was killed."""
    with suppress(OSError):
        noted = Path((scratch / _NOTED).read_text(encoding="utf-8", errors="surrogateescape"))
        if noted.is_absolute() and noted.name.startswith(_PREFIX) and not noted.is_symlink():
            shutil.rmtree(noted, ignore_errors=True)
