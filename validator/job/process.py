# SPDX-License-Identifier: Apache-2.0
"""Starts, follows and stops the Spark job, which is a separate process.

The job gets its configuration through its standard input: no file and no command line ever holds a password. The job directory holds
`job.json` (process id and start time). A directory is used by one job at a time.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from validator import exit_codes
from validator.config import Config
from validator.errors import Unavailable, UserError
from validator.kafka.process import start_time, stop_process
from validator.lanes.configured import job_directory
from validator.private import UMASK, alone, make_private, write_private
from validator.waiting import Patience, wait_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Event = dict[str, Any]
    """One line of the job's log; ``event`` is its kind."""

STOP_S_MAX: Final = 90.0
"""Seconds to wait for a job to stop: it completes its batch first, and Spark takes some seconds to shut down."""

STOP_BEFORE_READY_S_MAX: Final = 3.0
"""Seconds to wait before the query runs, when the job has nothing to complete."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
"""What the system says of a full disk."""

LAST_LINE_CHARACTERS_MAX: Final = 300
"""Characters of the job's last line that are repeated when it was killed."""

OUTPUT: Final = "output"
"""The ``event`` of a printed line that is not part of the job's log; ``line`` holds the text."""


class JobProcess:
    """One job with its configuration.

    ``on_event`` is called in a separate thread with every line that the job logs, and ``accepted`` has values of `--accept-change`.
    ``failure`` is the reason for its end, ``ready`` is set once its query runs, ``batches`` counts the batches that it has logged, and
    ``has_kept_changes`` says whether it has taken the accepted changes, which must not be accepted again.
    """

    def __init__(
        self,
        config: Config,
        on_event: Callable[[Event], None],
        accepted: Sequence[str] = (),
        *,
        plugin: str | None = None,
    ) -> None:
        """``plugin`` names the job of a plugin (group `validator.jobs`); without it the process runs the lanes."""
        self.directory = job_directory(config).absolute()
        self.ready = threading.Event()
        self.failure: str | None = None
        self.batches = 0
        self.has_kept_changes = False
        self._last_line = ""
        self._unheard: Exception | None = None
        """Why the job's log is no longer passed on."""
        self._stopping = False
        self.spark_log = str(self.directory / "logs" / "spark.log")
        self._config = config
        self._on_event = on_event
        self._plugin = plugin
        self._accepted = accepted
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def check(self) -> None:
        """Raise `UserError` if pyspark is not installed, or if another job is using the directory, whose command was not killed."""
        if find_spec("pyspark") is None:
            raise UserError("the job needs Spark, which is not installed: pip install 'validator[spark]'")
        pid = running_job(self.directory)
        if pid is not None and not is_abandoned(self.directory):
            raise UserError(
                f"another job is using {self.directory} (process {pid}): stop it, or give this one a separate [job] directory"
            )

    def start(self) -> None:
        """Start the process. Its log reports its progress. Raises `UserError` as `check` does, and if the folder cannot be written.

        A full disk is waited for, as later on: an event ``waiting`` for each pause; raises `GivenUp`. After Ctrl-C, or a signal that raises
        `KeyboardInterrupt`, there is either no process or one that `stop` stops.
        """
        self.check()
        patience = Patience(self._config.job.give_up_after)
        wait_out(self._try_to_begin, patience, lambda pause: self._on_event({"event": "waiting", **pause.event()}))

    def _try_to_begin(self) -> None:
        try:
            self._begin()
        except OSError as error:
            self.stop()
            kind = Unavailable if error.errno in _FULL else UserError
            raise kind(f"[job] directory {self.directory}: the job cannot write there: {error.strerror}") from error

    def _begin(self) -> None:
        make_private(self.directory)
        with alone(self.directory / "job.lock"):  # one program at a time starts a job
            self.check()
            self._take_over()
            with _interrupts_held():  # one that came in between would leave a job that nobody stops
                self._process = subprocess.Popen(
                    [*job_command(), *self._accepted, *([] if self._plugin is None else ["--job", self._plugin])],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    encoding="utf-8",
                    errors="replace",
                    env=_environment(),
                    start_new_session=True,  # Ctrl-C goes to this process, which then stops the job
                    umask=UMASK,
                )
                record = {
                    "pid": self._process.pid,
                    "started": start_time(self._process.pid, reap=False),
                    "starter": os.getpid(),
                    "starter_started": start_time(os.getpid(), reap=False),
                }
                write_private(self.directory / "job.json", json.dumps(record) + "\n")
                self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
                self._reader.start()
            self._hand_over(self._process)

    def _hand_over(self, process: subprocess.Popen[str]) -> None:
        """Give the job its configuration. One that ends before it has read everything says why, as any job does."""
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(self._config.model_dump(mode="json")))

    def _take_over(self) -> None:
        """Stop the job of a command that was killed, which nobody else can stop in order."""
        pid = running_job(self.directory)
        if pid is None:
            return
        self._on_event({"event": "taking over", "pid": pid})
        stop_process(pid, str(start_time(pid, reap=False)), patience_s=STOP_S_MAX)

    @property
    def pid(self) -> int | None:
        """The process id; None before the start."""
        return self._process.pid if self._process else None

    def ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def await_end(self, timeout_s: float) -> None:
        """Wait for the end at most this long."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)

    def wait(self) -> int:
        """Wait for the end and return the exit code. Raises `UserError` with the job's own message if the user can fix the cause.

        A job that a signal has ended says nothing itself. Then ``failure`` and an event ``killed`` say which signal, with its last line.
        If what gets its events raises anything but `OSError`, or `BrokenPipeError`, the job is stopped, and this raises the same.
        """
        assert self._process is not None
        code = self._process.wait()
        if self._reader is not None:
            self._reader.join(10.0)
        if self._unheard is not None:
            raise self._unheard
        if code == exit_codes.USER_ERROR and self.failure:
            raise UserError(self.failure)
        if code < 0 and self._stopping and not self.ready.is_set():
            return exit_codes.OK
        if code < 0:
            name = _signal_name(-code)
            last = self._last_line[:LAST_LINE_CHARACTERS_MAX]
            self.failure = (
                f"the job was ended by {name}; its last line: {last or 'none'}; Spark's log is {self.spark_log}"
            )
            self._on_event({
                "event": "killed", "pid": self.pid, "signal": name, "exit_code": 128 - code, "last_line": last, "spark_log": self.spark_log,
            })  # fmt: skip
            return exit_codes.STOPPED
        if code not in (exit_codes.OK, exit_codes.USER_ERROR, exit_codes.STOPPED, exit_codes.INTERNAL_ERROR):
            self._on_event({"event": OUTPUT, "line": f"the job ended with exit code {code}"})
        return code if code in (exit_codes.OK, exit_codes.USER_ERROR, exit_codes.STOPPED) else exit_codes.INTERNAL_ERROR

    def stop(self) -> None:
        """Ask the job to stop after its batch and wait for its end; kill it if it does not stop.

        A job that is still starting has nothing to complete: if a signal ends it, it counts as stopped.
        """
        process = self._process
        if process is None or process.poll() is not None:
            return
        self._stopping = True  # first, since SIGTERM ends a process that does not handle it yet
        process.send_signal(signal.SIGTERM)
        if not self.ready.is_set():
            self.await_end(STOP_BEFORE_READY_S_MAX)
        if self.ready.is_set():  # it has a batch to complete, also if it became ready only now
            self.await_end(STOP_S_MAX)
        if process.poll() is None:
            # Spark's JVM and the workers end too: each watches a pipe from its parent
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(10.0)

    def kill(self) -> None:
        """Kill the job at once. Its next start repeats what was not committed."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            event = parse_line(line)
            self._last_line = line.strip() or self._last_line
            match event["event"]:
                case "started":
                    self.spark_log = event.get("spark_log", self.spark_log)
                case "ready":
                    self.ready.set()
                case "batch":
                    self.batches += 1
                case "accepted":
                    self.has_kept_changes = True
                case "failed":
                    event = {**event, "spark_log": self.spark_log}
                    self.failure = f"{event.get('reason')}; Spark's log is {self.spark_log}"
                case "output" if event["line"].startswith("validator: "):
                    self.failure = event["line"].removeprefix("validator: ")
                    continue  # `wait` raises it
            self._pass_on(event, process)

    def _pass_on(self, event: Event, process: subprocess.Popen[str]) -> None:
        """Pass on what the job logs. Whatever becomes of that, its log is read on: otherwise the job would wait for a reader."""
        if self._unheard is not None:
            return
        try:
            self._on_event(event)
        except BrokenPipeError as error:  # nobody reads the log any more, as with `| head`
            self._unheard = error
            process.send_signal(signal.SIGTERM)
        except OSError:  # as a full disk: the job continues without this line in the log
            pass
        except Exception as error:  # noqa: BLE001 - `wait` raises it
            self._unheard = error
            process.send_signal(signal.SIGTERM)


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:  # a real-time signal
        return f"signal {number}"


def job_command() -> list[str]:
    """Return the job's command line. The program is never imported here, since it imports Spark."""
    return [sys.executable, "-m", "streaming"]


def parse_line(line: str) -> Event:
    """Return the event of a line of the job's standard error."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    return event if isinstance(event, dict) and "event" in event else {"event": OUTPUT, "line": line.rstrip()}


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let signals that interrupt the main thread wait until the end; other threads are not interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    handlers = {
        each: signal.signal(each, lambda number, _: came.append(number)) for each in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    if came:
        signal.raise_signal(came[0])


def running_job(directory: Path) -> int | None:
    """Return the process id of the job that is using a directory, or None. Raises `UserError` if `job.json` is damaged or unreadable."""
    return _alive(_record(directory), "pid", "started")


def is_abandoned(directory: Path) -> bool:
    """Return whether the command that started the last job on a directory is gone."""
    return _alive(_record(directory), "starter", "starter_started") is None


def _record(directory: Path) -> dict[str, Any]:
    path = directory / "job.json"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        int(record["pid"]), record["started"], int(record["starter"]), record["starter_started"]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise UserError(f"[job] directory {directory}: job.json cannot be read there: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}): remove it") from error
    return dict(record)


def _alive(record: dict[str, Any], pid: str, started: str) -> int | None:
    """Return a process id of a record, if that process still is the one with its start time."""
    number, began = record.get(pid), record.get(started)
    if number is None or began is None:
        return None
    return int(number) if start_time(int(number), reap=False) == began else None


def configured_by_environment(name: str) -> bool:
    """Return whether an environment variable sets a key of the configuration."""
    if not name.upper().startswith("VALIDATOR_"):
        return False
    rest = name[len("VALIDATOR_") :].lower()
    return "__" in rest or rest in Config.model_fields


def _environment() -> dict[str, str]:
    """Return the environment without configuration variables: the job gets the complete resolved configuration."""
    return {name: value for name, value in os.environ.items() if not configured_by_environment(name)}
