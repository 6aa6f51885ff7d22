# SPDX-License-Identifier: Apache-2.0
"""A service whose job ends: what it says, what it starts again, and what it leaves running; without Kafka and Spark."""

from __future__ import annotations

import sys
import threading
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from validator import exit_codes, waiting
from validator.cli.job_log import describe
from validator.config import Config
from validator.errors import GivenUp, Unavailable, UserError
from validator.job import beside
from validator.job import deployment as start
from validator.job import process as job_module
from validator.job.deployment import JOB_RESTARTS_MAX, Service, _BrokerStart
from validator.kafka.broker import BrokerStatus
from validator.waiting import Pauses

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
ACCEPTS_THEN_IS_KILLED = """
import os, pathlib, signal, sys
print('{"event": "output", "line": "%s"}' % " ".join(sys.argv[2:]), file=sys.stderr, flush=True)
runs = pathlib.Path(sys.argv[1]) / "runs"
count = len(runs.read_text()) if runs.exists() else 0
runs.write_text("x" * (count + 1))
if count == 2:
    sys.exit(0)
if count == 1:
    print('{"event": "accepted", "change": "a:genesis"}', file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
WAITS_FOR_KAFKA = """
import sys
print('{"event": "waiting", "reason": "no Kafka answers at localhost:1: start one", "seconds": 1}', file=sys.stderr, flush=True)
"""
WORKS_THEN_IS_KILLED = """
import os, pathlib, signal, sys
runs = pathlib.Path(sys.argv[1]) / "runs"
runs.write_text((runs.read_text() if runs.exists() else "") + "x")
if len(runs.read_text()) > 9:
    sys.exit(0)
print('{"event": "batch", "batch": 1, "records": 2, "milliseconds": {}}', file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

ENDS_IF_IT_IS_OF_A_PLUGIN = """
import os, pathlib, signal, sys, time
if "--job" in sys.argv:
    os.kill(os.getpid(), signal.SIGKILL)
while not (pathlib.Path(sys.argv[1]) / "enough").exists():
    time.sleep(0.01)
"""


class Broker:
    """Stands in for the embedded broker."""

    moved_from = stopped_in = None
    address: str | None = None
    directory = "broker"

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self.started_here = False
        self.running = self.disk_full = False
        self.starts = 0
        self.bootstrap_servers = "localhost:1"

    def start(self) -> str:
        if not self.running:
            self.running = self.started_here = True
            self.starts += 1
        return self.bootstrap_servers

    def has_full_disk(self) -> bool:
        return self.disk_full

    def with_login(self, bootstrap_servers: str) -> dict[str, object]:
        return {"bootstrap.servers": bootstrap_servers, "sasl.username": "validator"}

    def stop(self) -> bool:
        self.running = False
        return True

    def status(self) -> BrokerStatus:
        address, pid = (self.bootstrap_servers, 77) if self.running else (None, None)
        return BrokerStatus(self.running, address, pid, self._directory, "broker.log")


@pytest.fixture
def make(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Service, Broker, list[dict[str, Any]]]]:
    monkeypatch.setattr(start, "create_topics", lambda *_, **__: {})
    monkeypatch.setattr(start, "RESTART", Pauses(0.0, 0.0))
    monkeypatch.setattr(beside, "RESTART", Pauses(0.0, 0.0))
    monkeypatch.setattr(beside, "create_job_topics", lambda *_: {})

    folder = tmp_path / "job"

    def made(program: str, *accepted: str, **tables: Any) -> tuple[Service, Broker, list[dict[str, Any]]]:
        monkeypatch.setattr(job_module, "job_command", lambda: [sys.executable, "-c", program, str(folder)])
        events: list[dict[str, Any]] = []
        broker = Broker(tmp_path)
        config = Config.model_validate({"job": {"directory": str(folder)}, **tables})
        return Service(config, broker, events.append, accepted), broker, events  # type: ignore[arg-type]

    return made


def named(events: list[dict[str, Any]], *names: str) -> list[str]:
    return [event["event"] for event in events if event["event"] in names]


def test_killed_job_ends_the_service(make: Callable[..., Any]) -> None:
    service, broker, events = make(KILLED)
    service.start()
    assert service.run() == exit_codes.STOPPED
    assert named(events, "killed", "restart", "broker ended") == ["killed"]
    service.stop()
    assert not broker.running


@pytest.mark.parametrize("restarts_max", [0, 2])
def test_job_of_a_plugin_that_ends_does_not_end_the_lanes(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts_max: int
) -> None:
    monkeypatch.setattr(start, "POLL_S", 0.02)
    tables = {"chains": {"polkadot": {"protocol": "xcmp-network"}}, "jobs": {"journeys": {}, "xcmp-bodies": {}}}
    service, _, events = make(ENDS_IF_IT_IS_OF_A_PLUGIN, **tables)
    record = service._beside._on_event

    def note(event: dict[str, Any]) -> None:
        record(event)
        if event["event"] == "job ended":
            (tmp_path / "job" / "enough").touch()

    service._beside._on_event = note
    service.start()
    assert service.run(restarts_max) == exit_codes.OK
    own = [event for event in events if event["event"] in {"killed", "restart", "job ended"}]
    assert [event["event"] for event in own] == [*["killed", "restart"] * restarts_max, "killed", "job ended"]
    assert {event["job"] for event in own} == {"journeys"}, "the other job has a separate command"
    assert own[-1]["exit_code"] == exit_codes.STOPPED
    assert "SIGKILL" in describe(own[-1])
    service.stop()


def test_table_of_a_job_that_its_plugin_refuses_starts_nothing(make: Callable[..., Any]) -> None:
    service, broker, _ = make(KILLED, jobs={"journeys": {"other": 1}})
    with pytest.raises(UserError, match=r"\[jobs.journeys\] other: no such key"):
        service.start()
    assert broker.starts == 0


def test_waiting_job_says_that_its_own_broker_is_starting(make: Callable[..., Any]) -> None:
    service, broker, events = make(WAITS_FOR_KAFKA)
    begun, answers = broker.start, threading.Event()

    def start_slowly() -> str:
        answers.wait(60)
        return str(begun())

    broker.start = start_slowly
    broker.address = broker.bootstrap_servers
    record = events.append

    def note(event: dict[str, Any]) -> None:
        record(event)
        if event["event"] == "waiting":
            answers.set()

    service._on_event = note
    service.start()
    service.run()
    assert named(events, "starting", "waiting", "broker") == ["starting", "waiting", "broker"]
    (waiting,) = (event for event in events if event["event"] == "waiting")
    assert waiting["reason"] == f"the broker at {broker.bootstrap_servers} is still starting"
    service.stop()


def test_broker_is_kept_if_asked(make: Callable[..., Any]) -> None:
    service, broker, _ = make(KILLED)
    service.start()
    service.run()
    service.stop(keep_broker=True)
    assert broker.running


def test_killed_job_is_restarted_a_bounded_number_of_times(make: Callable[..., Any]) -> None:
    service, broker, events = make(KILLED)
    service.start()
    assert service.run(JOB_RESTARTS_MAX) == exit_codes.STOPPED
    assert named(events, "killed", "restart") == [*["killed", "restart"] * JOB_RESTARTS_MAX, "killed"]
    assert [event["attempt"] for event in events if event["event"] == "restart"] == list(range(1, JOB_RESTARTS_MAX + 1))
    assert broker.starts == 1
    service.stop()


def test_completed_batch_begins_the_count_again(make: Callable[..., Any]) -> None:
    service, _, events = make(WORKS_THEN_IS_KILLED)
    service.start()
    assert service.run(1) == exit_codes.OK
    assert named(events, "restart") == ["restart"] * 9
    service.stop()


def test_accepted_change_is_passed_until_the_job_has_kept_it(make: Callable[..., Any]) -> None:
    service, _, events = make(ACCEPTS_THEN_IS_KILLED, "a:genesis")
    service.start()
    assert service.run(JOB_RESTARTS_MAX) == exit_codes.OK
    assert [event["line"] for event in events if event["event"] == "output"] == ["a:genesis", "a:genesis", ""]


def test_service_waits_for_kafka_and_says_so(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    service, _, events = make("")
    monkeypatch.setattr(waiting, "OUTAGE", waiting.Pauses(0.001, 60.0))
    answers = [Unavailable("no Kafka answers at there:1")] * 2

    def create(*_: object, **__: object) -> dict[str, bool]:
        if answers:
            raise answers.pop()
        return {"validator.blocks": True}

    monkeypatch.setattr(start, "create_topics", create)
    service.start()
    assert named(events, "waiting", "topics") == ["waiting", "waiting", "topics"]
    text = describe(next(event for event in events if event["event"] == "waiting"))
    assert text == "no Kafka answers at there:1; tries again in 0 s, gives up after 3600 s"
    service.stop()


def test_service_without_kafka_gives_up(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    service, _, _ = make("")
    service.config = service.config.model_copy(
        update={"job": service.config.job.model_copy(update={"give_up_after": 0})}
    )

    def create(*_: object, **__: object) -> dict[str, bool]:
        raise Unavailable("no Kafka answers at there:1")

    monkeypatch.setattr(start, "create_topics", create)
    with pytest.raises(GivenUp, match=r"there:1; gave up after 0 s, \[job\] give_up_after is 0"):
        service.start()
    service.stop()


def test_job_that_refuses_or_has_a_bug_is_not_restarted(make: Callable[..., Any]) -> None:
    service, _, events = make("import sys; sys.exit(70)")
    service.start()
    assert service.run(JOB_RESTARTS_MAX) == exit_codes.INTERNAL_ERROR
    assert named(events, "restart") == []


def test_broker_that_ended_is_named_and_started_again(make: Callable[..., Any]) -> None:
    service, broker, events = make("import sys; sys.exit(3)")
    service.start()
    broker.running = False
    assert service.run(1) == exit_codes.STOPPED
    assert {"event": "broker ended", "pid": 77, "log": "broker.log", "disk_full": False} in events
    assert broker.starts == 2
    service.stop()


WAITS = "import pathlib, sys, time\nwhile not pathlib.Path(sys.argv[1], 'end').exists(): time.sleep(0.01)"


def test_broker_that_ended_is_started_again_while_the_job_waits_for_it(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "POLL_S", 0.01)
    service, broker, events = make(WAITS)
    service.start()
    broker.running = False
    start_broker = broker.start

    def starts() -> str:
        (tmp_path / "job" / "end").touch()
        return start_broker()

    broker.start = starts
    assert service.run(1) == exit_codes.OK
    assert named(events, "broker", "broker ended") == ["broker", "broker ended", "broker"]
    assert broker.starts == 2


def test_broker_that_ended_on_a_full_disk_is_left_to_who_frees_space(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "POLL_S", 0.01)
    service, broker, events = make(WAITS)
    service.start()
    broker.running, broker.disk_full = False, True
    append = events.append

    def heard(event: dict[str, Any]) -> None:
        append(event)
        if event["event"] == "broker ended":
            (tmp_path / "job" / "end").touch()

    service._on_event = heard
    assert service.run(restarts_max=1) == exit_codes.OK
    assert {"event": "broker ended", "pid": 77, "log": "broker.log", "disk_full": True} in events
    assert broker.starts == 1


def test_broker_that_ended_is_reported_at_once(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "POLL_S", 0.01)
    service, broker, events = make(WAITS)
    service.start()
    broker.running = False
    append = events.append

    def heard(event: dict[str, Any]) -> None:
        append(event)
        (tmp_path / "job" / "end").touch()

    service._on_event = heard
    assert service.run() == exit_codes.OK
    assert named(events, "broker ended") == ["broker ended"]
    assert broker.starts == 1


def test_broker_that_somebody_started_again_is_watched_again(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "POLL_S", 0.01)
    service, broker, events = make(WAITS)
    service.start()
    broker.running = False
    append, status, polls = events.append, broker.status, count()

    def polled() -> Any:
        if named(events, "broker ended"):
            broker.running = next(polls) < 2  # it runs again for a while
        return status()

    def heard(event: dict[str, Any]) -> None:
        append(event)
        if len(named(events, "broker ended")) == 2:
            (tmp_path / "job" / "end").touch()

    broker.status, service._on_event = polled, heard
    assert service.run() == exit_codes.OK
    assert named(events, "broker ended") == ["broker ended", "broker ended"]
    assert broker.starts == 1


class Broken:
    """A broker that does not start."""

    address = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    def start(self) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UserError("its port is busy"), UserError),
        (PermissionError(13, "Permission denied", "broker"), PermissionError),
        (ValueError("a bug"), RuntimeError),
    ],
)
def test_failure_of_the_broker_is_raised_as_it_is_unless_it_is_a_bug(error: Exception, kind: type[Exception]) -> None:
    broker: Any = Broken(error)
    starting = _BrokerStart(broker)
    starting.start()
    with pytest.raises(kind):
        starting.wait()
