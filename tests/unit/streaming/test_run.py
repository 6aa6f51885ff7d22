# SPDX-License-Identifier: Apache-2.0
"""How the job follows its query: what it logs, when it stops, how it reports a failure."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from streaming import run
from streaming.lane_operator import JobSettings
from streaming.reasons import DEATHS_MAX, TOO_BUSY, BatchFailed, Deaths, executed_lane, may_pass, reason_of
from streaming.run import Outages, _follow, run_queries
from streaming.taking_over import Rivals
from streaming.workers import EXECUTES
from tests.unit.streaming.queries import (
    ANOTHER_CONNECTION,
    CUT_OFF,
    EXECUTOR_GONE,
    KILLED,
    LATE,
    NO_DAEMON,
    OUTPUTS_GONE,
    TRACEBACK,
    Log,
    Query,
    Stop,
)
from validator import exit_codes
from validator.config import Config
from validator.errors import UserError
from validator.job import start_check
from validator.job.start_check import Look
from validator.lanes.configured import lane_definitions
from validator.lanes.kept_start import NOTHING, start_of
from validator.lanes.marker import Marker
from validator.lanes.parking import Suspect
from validator.topics import INPUT_TOPICS
from validator.waiting import Patience, Pauses


def follow(script: list[str], stop_after: int) -> tuple[int, Query, Log]:
    query, log = Query(script), Log()
    code = _follow(query, Stop(stop_after), log)  # type: ignore[arg-type]
    return code, query, log


def test_every_batch_is_logged_once_including_last() -> None:
    code, query, log = follow(["batch", "nothing", "batch", "busy", "batch"], stop_after=3)
    assert code == exit_codes.OK
    assert not query.isActive
    assert [(event, values.get("batch"), values.get("records")) for event, values in log.events[:-1]] == [
        ("batch", 0, 5),
        ("batch", 1, 6),
        ("batch", 2, 7),
    ]
    assert log.events[-1] == ("stopped", {"last_batch": 2})


def test_end_of_each_batch_is_passed_on_once() -> None:
    ends: list[str] = []
    query = Query(["batch", "nothing", "batch", "nothing"])
    _follow(query, Stop(3), Log(), ends.append)  # type: ignore[arg-type]
    assert ends == ["end of 0", "end of 1"]


def test_stop_waits_for_running_batch() -> None:
    _, query, _ = follow(["busy", "nothing", "nothing", "idle"], stop_after=0)
    assert query.script == []


def test_stop_does_not_wait_for_backlog() -> None:
    _, query, log = follow(["busy", "nothing", "batch", "batch", "batch"], stop_after=0)
    assert query.script == ["batch", "batch"]
    assert log.events[-1] == ("stopped", {"last_batch": 0})


def test_stop_gives_up_on_endless_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STOP_BATCH_S_MAX", 10 * run.STOP_POLL_S)
    code, query, _ = follow(["busy", *["nothing"] * 1000], stop_after=0)
    assert code == exit_codes.OK
    assert len(query.script) > 900


@pytest.mark.parametrize("script", [["fails"], ["busy", "nothing", "fails"]])
def test_failure_is_logged_whenever_it_happens(script: list[str]) -> None:
    code, _, log = follow(script, stop_after=0)
    assert code == exit_codes.STOPPED
    ((event, values),) = log.events
    assert event == "failed"
    assert "lane polkadot: more than 9 blocks; waiting for the record of the block after 0" in values["reason"]


RAISED = """\
[STREAM_FAILED] Query failed: Traceback (most recent call last):: org.apache.spark.PythonException: Traceback (most recent call last):
  File "a.py", line 1
    connect()
FileNotFoundError: [Errno 2] No such file

	at org.apache.spark.Task"""
RAISED_TWICE = """\
failed
Traceback (most recent call last):
  File
KeyError: 1

During handling of it:

Traceback (most recent call last):
  File
ValueError: 2
more"""


@pytest.mark.parametrize(
    ("text", "foreseen", "reason"),
    [
        (
            TRACEBACK,
            True,
            "validator.core.lane.WaitingOverflow: lane polkadot: more than 9 blocks; waiting for the record of the block after 0",
        ),
        ("first\nvalidator.errors.UserError: lane a: no\nsecond", True, "validator.errors.UserError: lane a: no"),
        ("\n  something of Spark's  \nmore", False, "something of Spark's"),
        (
            "Lost task 0.0: java.lang.OutOfMemoryError: Java heap space\n\tat java.nio.HeapByteBuffer",
            True,
            "Spark's JVM ran out of memory: raise [job] driver_memory",
        ),
        ("[CONCURRENT_STREAM_LOG_UPDATE] another\nmore", True, "[CONCURRENT_STREAM_LOG_UPDATE] another"),
        (RAISED, False, "[STREAM_FAILED] Query failed: FileNotFoundError: [Errno 2] No such file"),
        (RAISED_TWICE, False, "failed: ValueError: 2"),
        (LATE, False, TOO_BUSY),
        (f"{LATE}{TRACEBACK}", True, reason_of(StreamingQueryException(TRACEBACK))[0]),
        ("", False, "StreamingQueryException"),
    ],
)  # fmt: skip
def test_failure_reason_is_one_line(text: str, reason: str, foreseen: bool) -> None:
    assert reason_of(StreamingQueryException(text)) == (reason, foreseen)


@pytest.mark.parametrize("progressed", [False, True])
def test_handler_fault_stops_job_at_once(progressed: bool) -> None:
    code, _, log = follow([*["batch"] * progressed, "faults"], stop_after=9)
    assert code == exit_codes.STOPPED
    assert [event for event, _ in log.events] == [*["batch"] * progressed, "failed"]
    assert "handler tally@1.0.0 (tally)" in log.events[-1][1]["reason"]


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ("is killed", "Lost task"),
        ("loses its executor", r"^an executor was lost \(127\.0\.0\.1, exit code 137\)$"),
        ("not taken", "Kafka did not accept"),
    ],
)
@pytest.mark.parametrize("progressed", [False, True])
def test_transient_failure_does_not_stop_job(failure: str, message: str, progressed: bool) -> None:
    with pytest.raises(BatchFailed, match=message) as failed:
        follow([*["batch"] * progressed, failure], stop_after=9)
    assert failed.value.progressed == progressed


def test_worker_that_raised_before_dying_stops_job() -> None:
    assert follow(["raises, then is killed"], stop_after=9)[0] == exit_codes.STOPPED


@pytest.mark.parametrize(
    ("runs", "code", "restarts"),
    [
        ([["is killed"]] * 6, exit_codes.STOPPED, [1, 2, 3, 4, 5]),
        ([["is cut off"], ["nothing"]], exit_codes.OK, [1]),
        ([["batch", "is killed"]] * 9 + [["nothing"]], exit_codes.OK, [1] * 9),
        ([["not taken"], ["is killed"], ["batch", "not taken"], ["nothing"]], exit_codes.OK, [1, 2, 1]),
    ],
)  # fmt: skip
def test_only_consecutive_failures_are_counted(
    runs: list[list[str]], code: int, restarts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = iter(runs)
    ended = SimpleNamespace(requested=False)

    class NextQuery(Query):
        id = runId = "query"  # noqa: N815 - as Spark names it

        def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
            ended.requested = self.script == ["nothing"]
            return super().awaitTermination(timeout)

    monkeypatch.setattr(run, "RESTART", Pauses(0.0, 0.0))
    log = Log()
    outages = Outages(Patience(0.0), ended, log)  # type: ignore[arg-type]
    assert run_queries(lambda: NextQuery(list(next(scripts))), outages, lambda _: None) == code  # type: ignore[arg-type, return-value]
    assert [values["attempt"] for event, values in log.events if event == "restarting"] == restarts


def test_lane_whose_worker_dies_too_often_at_a_point_is_suspected(monkeypatch: pytest.MonkeyPatch) -> None:
    suspected: list[dict[str, Suspect]] = []
    ended = SimpleNamespace(requested=False)

    class Dying(Query):
        id = runId = "query"  # noqa: N815 - as Spark names it

        def awaitTermination(self, _: float) -> bool:  # noqa: N802
            if len(suspected) <= 2 * DEATHS_MAX:
                last_words = f'{EXECUTES} ["alpha", "point {(len(suspected) - 1) // DEATHS_MAX}"]'
                raise StreamingQueryException(KILLED.replace("(crashed)", f"(crashed): {last_words}\n"))
            ended.requested = True
            return False

    deaths = Deaths()

    def start() -> Query:
        suspected.append(deaths.suspects())
        return Dying([])

    monkeypatch.setattr(run, "RESTART", Pauses(0.0, 0.0))
    log = Log()
    outages = Outages(Patience(0.0), ended, log)  # type: ignore[arg-type]
    code = run_queries(start, outages, lambda _: None, deaths=deaths)  # type: ignore[arg-type, return-value]
    assert code == exit_codes.OK
    points = [None if not each else each["alpha"].point for each in suspected]
    assert points == [None] * DEATHS_MAX + ["point 0"] * DEATHS_MAX + ["point 1"]
    assert [values["lane"] for event, values in log.events if event == "parking"] == ["alpha", "alpha"]
    assert suspected[-1]["alpha"].reason.startswith(
        f"lane alpha: its worker died {DEATHS_MAX} times at the same point: "
    )


@pytest.mark.parametrize(
    ("error", "lane"),
    [
        (f'x\n{EXECUTES} ["a b", "c"]\ny', ("a b", "c")),
        (f"{EXECUTES} [1, 2", None),
        (f'{EXECUTES} ["a"]', None),
        (f"{EXECUTES} [1, 2]", None),
        ("", None),
    ],
)
def test_last_words_name_a_lane_and_its_point(error: str, lane: tuple[str, str] | None) -> None:
    assert executed_lane(error) == lane


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (KILLED, True),
        (LATE, True),
        (CUT_OFF, True),
        (CUT_OFF.replace("IOException: Broken pipe", "IOException: Connection reset by peer"), True),
        (CUT_OFF.replace("java.io.IOException: Broken pipe", "java.net.SocketException: Connection reset"), True),
        (CUT_OFF.replace("java.io.IOException: Broken pipe", "java.io.EOFException"), True),
        (NO_DAEMON, True),
        (EXECUTOR_GONE, True),
        (OUTPUTS_GONE, True),
        (f"{EXECUTOR_GONE}{TRACEBACK}", False),
        (CUT_OFF.replace("Broken pipe", "No space left on device"), False),
        (CUT_OFF.replace("java.io.IOException: Broken pipe", "java.lang.NullPointerException"), False),
        (ANOTHER_CONNECTION, False),
        (f"{CUT_OFF}{TRACEBACK}", False),
    ],
)
def test_batch_of_lost_worker_is_retried(error: str, passes: bool) -> None:
    assert may_pass(error, error.splitlines()[0]) is passes


# --- lanes that share a state partition ---


@pytest.mark.parametrize(
    ("master", "begun", "said"),
    [
        ("spark://there:7077", False, True),
        ("local-cluster[2,1,512]", False, True),
        ("spark://there:7077", True, False),
        ("local[2]", False, True),
    ],
)
def test_uneven_lanes_are_logged_before_the_first_batch(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    master: str,
    begun: bool,
    said: bool,
) -> None:
    def start(*_: object, **__: object) -> int:
        raise RuntimeError("Spark starts")

    monkeypatch.setattr(run, "starting_session", start)
    if begun:
        (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
        (tmp_path / "checkpoint" / "offsets" / "0").write_text("v1\n{}\n{}")
    job = {"directory": str(tmp_path), "master": master, "state_partitions": 2}
    chains: dict[str, object] = {lane: {} for lane in ("polkadot", "kusama")}
    with pytest.raises(RuntimeError, match="Spark starts"):
        run.run_job(Config.model_validate({"job": job, "chains": chains}))
    assert ('"event": "uneven"' in capfd.readouterr().err) is said


# --- rules by height ---


def test_change_of_executed_blocks_is_refused_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def start(*_: object, **__: object) -> int:
        raise RuntimeError("Spark starts")

    rebuild = False

    def config(from_block: int) -> Config:
        rules = [{"from_block": from_block, "profile": "router/2021-09"}]
        job = {"directory": str(tmp_path), "rebuild": rebuild}
        return Config.model_validate({"job": job, "chains": {"a": {"rules": rules}}})

    def refused(from_block: int) -> None:
        with pytest.raises(
            UserError, match="lane a: its rules differ from block 30 on, but block 30 is already executed"
        ):
            run.run_job(config(from_block))

    def starts(from_block: int) -> None:
        with pytest.raises(RuntimeError, match="Spark starts"):
            run.run_job(config(from_block))

    monkeypatch.setattr(run, "starting_session", nullcontext)
    monkeypatch.setattr(run, "_run_in_session", start)
    starts(31)  # without a request to Kafka, since there is nothing to compare
    definitions = lane_definitions(config(31))
    beginnings = {lane: start_of(config(31), definition) for lane, definition in definitions.items()}
    Look(tmp_path / "lanes", beginnings, {}, NOTHING).keep()
    starts(31)

    monkeypatch.setattr(run, "wait_for_topics", lambda *_, **__: None)
    monkeypatch.setattr(start_check, "read_markers", lambda *_, **__: {"a": Marker(30)})
    monkeypatch.setattr(start_check, "other_topics", lambda *_: None)
    monkeypatch.setattr(start_check, "checked_ids", lambda *_: {})
    for folder in ("offsets", "commits"):
        (tmp_path / "checkpoint" / folder).mkdir(parents=True)
        (tmp_path / "checkpoint" / folder / "0").write_text("v1\n{}\n{}")
    refused(30)
    starts(32)
    starts(31)  # nothing is kept of a start that Spark did not see
    (tmp_path / "checkpoint" / "offsets" / "0").unlink()  # as for --rebuild
    rebuild = True
    refused(30)


def test_query_that_restarts_on_topics_created_again_ends_the_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def other(kafka: object, prefix: str, topics: object, checkpoint: Path, second: object) -> None:
        assert (prefix, set(INPUT_TOPICS), checkpoint) == ("p.", {*topics}, tmp_path / "checkpoint")  # type: ignore[misc]
        raise UserError("p.blocks has id 2")

    monkeypatch.setattr(run, "checked_ids", other)
    monkeypatch.setattr(run, "JobOffsets", lambda *_: SimpleNamespace(commit=None, close=lambda: None))
    monkeypatch.setattr(run, "ParkedLog", lambda *_: nullcontext())
    monkeypatch.setattr(run, "known_of_lanes", lambda *_: {})
    ended = SimpleNamespace(requested=False)
    outages = Outages(Patience(0.0), ended, Log())  # type: ignore[arg-type]
    settings = JobSettings({}, {}, "p.", tmp_path / "checkpoint", 1, 0)
    found = Look(tmp_path / "lanes", {}, {}, NOTHING)
    session: Any = SimpleNamespace(wait=lambda: None)
    metrics: Any = SimpleNamespace(begin=lambda _: None, following=nullcontext)
    config = Config.model_validate({"job": {"directory": str(tmp_path)}, "chains": {"a": {}}})
    with pytest.raises(UserError, match=r"^p\.blocks has id 2$"):
        run._run_in_session(config, settings, session, lambda: found, outages, metrics, Rivals())
