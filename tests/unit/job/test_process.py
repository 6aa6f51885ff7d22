# SPDX-License-Identifier: Apache-2.0
"""The job's process, with a small program in place of Spark."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from validator import exit_codes
from validator.cli.common import terminated_as_interrupted
from validator.cli.job_log import describe
from validator.config import Config
from validator.errors import UserError
from validator.job import process as job_module
from validator.job.process import JobProcess, parse_line, running_job

if TYPE_CHECKING:
    from collections.abc import Callable

STAND_IN = """
import json, os, signal, sys, time
def log(event, **fields): os.write(2, (json.dumps({"event": event, **fields}) + "\\n").encode())  # also while a signal interrupts it
configuration = json.load(sys.stdin)
behaviour = configuration["topics"]["prefix"]
if behaviour == "wrong":
    print("validator: chains.x: no such thing", file=sys.stderr); sys.exit(2)
def stop(*_):
    log("stopped", last_batch=7); sys.exit(0)
def late(*_):
    log("ready"); time.sleep(2.5); stop()
signal.signal(signal.SIGTERM, {"deaf": signal.SIG_IGN, "young": signal.SIG_DFL, "late": late}.get(behaviour, stop))
seen = sorted(name for name in os.environ if name.startswith("VALIDATOR_"))
log("started", lanes=["x"], spark_log="here.log", configuration=configuration, seen=seen)
if behaviour == "crash":
    log("failed", reason="SinkFailed: no"); sys.exit(70)
if behaviour == "bug":
    raise RuntimeError("a bug")
if behaviour not in ("deaf", "late", "young"):
    log("ready")
if behaviour == "talks":
    for number in range(2_000):  # more than a pipe holds
        log("noise", number=number, text="x" * 100)
    log("ready")
if behaviour == "shot":
    log("batch", batch=3, records=40, milliseconds={}); os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


class Events:
    """Collects the events of a job, and waits for them."""

    def __init__(self) -> None:
        self.all: list[dict[str, Any]] = []
        self._news = threading.Condition()

    def __call__(self, event: dict[str, Any]) -> None:
        with self._news:
            self.all.append(event)
            self._news.notify_all()

    def wait_for(self, name: str) -> dict[str, Any]:
        with self._news:
            self._news.wait_for(lambda: any(event["event"] == name for event in self.all))
            return next(event for event in self.all if event["event"] == name)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[JobProcess, Events]]:
    monkeypatch.setattr(job_module, "job_command", lambda: [sys.executable, "-c", STAND_IN])

    def make_job(behaviour: str, **more: Any) -> tuple[JobProcess, Events]:
        events = Events()
        tables = {"topics": {"prefix": behaviour}, "job": {"directory": str(tmp_path / "job")}, **more}
        return JobProcess(Config.model_validate(tables), events), events

    return make_job


Make = "Callable[..., tuple[JobProcess, Events]]"


def test_job_reports_events_and_stops_on_request(make: Make) -> None:
    job, events = make("well")
    job.start()
    events.wait_for("ready")
    assert job.ready.is_set()
    assert not job.ended()
    job.stop()
    assert job.wait() == 0
    assert [event["event"] for event in events.all] == ["started", "ready", "stopped"]


MARK = "marked-5ecre7"
SECRET = {
    "kafka": {
        "bootstrap.servers": "there:1",
        **{
            name: f"{MARK}-{name}"
            for name in (
                "sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password", "ssl.key.pem", "ssl.keystore.password",
                "spark.sasl.jaas.config",
            )
        },
    },
    "schema_registry": {
        "url": "https://there", "user": "u", "password": f"{MARK}-registry",
        "certificate_file": "c.pem", "key_password": f"{MARK}-key",
    },
    "transports": {"channel": {"token": f"{MARK}-transport"}},
    "jobs": {"bodies": {"token": f"{MARK}-job"}},
}  # fmt: skip


def test_configuration_reaches_the_job_and_no_file_or_command_line(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    job, events = make("well", **SECRET)
    job.start()
    assert events.wait_for("started")["configuration"] == job._config.model_dump(mode="json")
    events.wait_for("ready")
    assert MARK.encode() not in Path(f"/proc/{job.pid}/cmdline").read_bytes()
    assert MARK.encode() not in Path(f"/proc/{job.pid}/environ").read_bytes()
    job.stop()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert folder / "job.json" in files
    assert [path for path in files if MARK.encode() in path.read_bytes()] == []


def test_configuration_may_be_larger_than_a_pipe(make: Make) -> None:
    job, events = make("well", transports={"channel": {"text": "x" * 1_000_000}})
    job.start()
    assert events.wait_for("started")["configuration"]["transports"] == {"channel": {"text": "x" * 1_000_000}}
    job.stop()


def test_job_that_ends_before_it_reads_its_configuration_says_why(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        job_module, "job_command", lambda: [sys.executable, "-c", "import sys; sys.exit('validator: no')"]
    )
    job, _ = make("well", transports={"channel": {"text": "x" * 1_000_000}})
    job.start()
    assert job.wait() != 0
    assert job.failure == "no"


def test_environment_is_applied_once(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolved configuration includes it; the job must not apply it again over later decisions of a command."""
    monkeypatch.setenv("VALIDATOR_KAFKA__BOOTSTRAP__SERVERS", "elsewhere:1")
    monkeypatch.setenv("VALIDATOR_CHAINS", "{}")
    monkeypatch.setenv("VALIDATOR_HOME", os.environ.get("VALIDATOR_HOME", "home"))
    job, events = make("well")
    job.start()
    assert events.wait_for("started")["seen"] == ["VALIDATOR_HOME"]
    job.kill()


def test_job_of_a_killed_command_is_stopped_first(make: Make, tmp_path: Path) -> None:
    first, events = make("well")
    first.start()
    events.wait_for("ready")
    record = tmp_path / "job" / "job.json"
    gone = {**json.loads(record.read_text()), "starter": 2**22 + 1, "starter_started": "1"}  # beyond any process id
    record.write_text(json.dumps(gone))
    second, events = make("well")
    second.check()
    second.start()
    assert first.wait() == 0
    assert [event["event"] for event in events.all][:1] == ["taking over"]
    assert events.all[0]["pid"] == first.pid
    events.wait_for("ready")
    assert running_job(tmp_path / "job") == second.pid
    assert "is stopped first" in describe(events.all[0])
    second.stop()


def test_folder_that_cannot_be_written_is_named_and_leaves_no_job(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job, _ = make("well")
    write = job_module.write_private

    def read_only(path: Path, text: str) -> None:
        if path.name == "job.json":
            raise OSError(errno.EROFS, "Read-only file system")
        write(path, text)

    monkeypatch.setattr(job_module, "write_private", read_only)
    with pytest.raises(
        UserError, match=r"^\[job\] directory .*/job: the job cannot write there: Read-only file system$"
    ):
        job.start()
    assert job.ended()
    assert running_job(tmp_path / "job") is None


def test_second_job_on_same_directory_is_refused(make: Make, tmp_path: Path) -> None:
    first, events = make("well")
    first.start()
    events.wait_for("ready")
    second, _ = make("well")
    with pytest.raises(UserError, match=f"another job is using .* \\(process {first.pid}\\)"):
        second.start()
    assert running_job(tmp_path / "job") == first.pid
    first.stop()
    assert running_job(tmp_path / "job") is None
    third, events = make("well")
    third.start()
    events.wait_for("ready")
    third.stop()


def test_mistake_of_user_is_user_error(make: Make) -> None:
    job, _ = make("wrong")
    job.start()
    with pytest.raises(UserError, match=r"^chains\.x: no such thing$"):
        job.wait()


def test_failure_names_reason_and_spark_log(make: Make) -> None:
    job, events = make("crash")
    job.start()
    assert job.wait() == 70
    assert job.failure == "SinkFailed: no; Spark's log is here.log"
    assert events.all[-1]["event"] == "failed"


def test_killed_job_names_the_signal_and_its_last_line(make: Make) -> None:
    job, events = make("shot")
    job.start()
    assert job.wait() == 3
    last = '{"event": "batch", "batch": 3, "records": 40, "milliseconds": {}}'
    assert events.all[-1] == {
        "event": "killed", "pid": job.pid, "signal": "signal 9 (SIGKILL)", "exit_code": 137, "last_line": last, "spark_log": "here.log",
    }  # fmt: skip
    assert job.failure == f"the job was ended by signal 9 (SIGKILL); its last line: {last}; Spark's log is here.log"
    assert describe(events.all[-1]) == (
        "by signal 9 (SIGKILL), exit code 137; its last line: batch 3: 40 records in 0.0 s; Spark's log is here.log"
    )
    assert job.batches == 1


def test_unexpected_exception_is_internal_error_with_its_output(make: Make) -> None:
    job, events = make("bug")
    job.start()
    assert job.wait() == 70
    assert {"event": "output", "line": "RuntimeError: a bug"} in events.all


def test_job_continues_if_its_log_cannot_be_written(make: Make) -> None:
    job, events = make("talks")
    kept: list[str] = []

    def full(event: dict[str, Any]) -> None:
        if event["event"] == "noise":
            raise OSError(errno.ENOSPC, "No space left on device")
        kept.append(event["event"])
        events(event)

    job._on_event = full
    job.start()
    events.wait_for("ready")
    job.stop()
    assert job.wait() == exit_codes.OK
    assert kept == ["started", "ready", "stopped"]


@pytest.mark.parametrize("error", [BrokenPipeError(errno.EPIPE, "Broken pipe"), KeyError("a bug")])
def test_job_whose_log_nobody_takes_is_stopped_in_order(make: Make, error: Exception) -> None:
    job, _ = make("talks")
    asked: list[str] = []

    def fail(event: dict[str, Any]) -> None:
        asked.append(event["event"])
        raise error

    job._on_event = fail
    job.start()
    with pytest.raises(type(error)):
        job.wait()
    assert asked == ["started"]
    assert job._process is not None
    assert job._process.returncode == exit_codes.OK, "it has stopped by itself"


def test_job_that_is_stopped_before_it_handles_signals_counts_as_stopped(make: Make) -> None:
    job, events = make("young")
    job.start()
    events.wait_for("started")
    job.stop()
    assert job.wait() == exit_codes.OK
    assert job.failure is None
    assert "killed" not in [each["event"] for each in events.all]


def test_starting_job_that_ignores_stop_is_killed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "STOP_BEFORE_READY_S_MAX", 0.1)
    job, events = make("deaf")
    job.start()
    events.wait_for("started")
    job.stop()
    assert job.ended()
    assert job.wait() == exit_codes.OK
    assert job.failure is None
    assert "killed" not in [each["event"] for each in events.all]


def test_job_that_becomes_ready_while_it_is_asked_to_stop_completes_its_batch(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "STOP_BEFORE_READY_S_MAX", 2.0)
    job, events = make("late")
    job.start()
    events.wait_for("started")
    job.stop()
    assert job.wait() == exit_codes.OK
    assert [event["event"] for event in events.all] == ["started", "ready", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_during_the_start_leaves_a_job_that_can_be_stopped(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: signal.Signals
) -> None:
    job, _ = make("well")
    started = job_module.start_time

    def interrupt(pid: int, *, reap: bool) -> int | None:
        signal.raise_signal(number)
        return started(pid, reap=reap)

    monkeypatch.setattr(job_module, "start_time", interrupt)
    with terminated_as_interrupted(), pytest.raises(KeyboardInterrupt):
        job.start()
    monkeypatch.undo()
    assert running_job(tmp_path / "job") == job.pid
    job.stop()
    assert job.ended()


def test_stop_before_start_does_nothing(make: Make) -> None:
    job, _ = make("well")
    job.stop()
    assert job.ended()
    assert job.pid is None


@pytest.mark.parametrize("line", ["Traceback (most recent call last):\n", "[1, 2]\n", '{"no": "event"}\n'])
def test_line_that_is_not_event_is_output(line: str) -> None:
    assert parse_line(line) == {"event": "output", "line": line.rstrip()}


def test_damaged_job_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text("{}")
    with pytest.raises(UserError, match=r"job\.json is damaged"):
        running_job(tmp_path)


def test_job_directory_that_is_a_file_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        UserError, match=r"^\[job\] directory .*/file: job\.json cannot be read there: Not a directory$"
    ):
        running_job(tmp_path / "file")
