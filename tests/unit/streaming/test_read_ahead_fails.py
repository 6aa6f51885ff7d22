# SPDX-License-Identifier: Apache-2.0
"""If batches fail while workers read Kafka, Spark reads; and what progress says of batches of either source."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row

from streaming import run
from streaming.deaths import Deaths
from streaming.outside import Outages
from streaming.pace import (
    AHEAD,
    AHEAD_FAILURES_MAX,
    QUICK,
    STEADY,
    OutOfMemory,
    Pace,
    ReadAheadFails,
    run_at_paces,
)
from streaming.progress import log_batches, records_in
from streaming.range_source import OBSERVED, RECORDS
from streaming.run import run_queries
from streaming.workers import EXECUTES
from tests.unit.streaming.queries import KILLED, NOT_TAKEN, Log, Query
from validator import exit_codes
from validator.waiting import Patience, Pauses

READ_FAILED = NOT_TAKEN.replace("validator.kafka.transaction.WriteFailed", "streaming.held_inputs.ReadFailed")
IN_LANE = KILLED.replace("(crashed)", f'(crashed): {EXECUTES} ["alpha", "point"]\n')
TEXTS = {"is killed": KILLED, "cannot read": READ_FAILED, "lane is killed": IN_LANE, "not taken": NOT_TAKEN}


def played(
    monkeypatch: pytest.MonkeyPatch, scripts: list[list[str]], *, ahead: bool, deaths: Deaths | None = None
) -> tuple[Callable[[], int], Log]:
    """Return what runs queries with some scripts, and its log; the last query is stopped."""
    left = [list(script) for script in scripts]
    ended = SimpleNamespace(requested=False)

    class NextQuery(Query):
        id = runId = "query"  # noqa: N815 - as Spark names it

        def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
            ended.requested = self.script == ["nothing"]
            if self.script[0] in TEXTS:
                raise StreamingQueryException(TEXTS[self.script.pop(0)])
            return super().awaitTermination(timeout)

    monkeypatch.setattr(run, "RESTART", Pauses(0.0, 0.0))
    log = Log()
    outages: Any = Outages(Patience(0.0), ended, log)  # type: ignore[arg-type]
    watch: Any = lambda _: None  # noqa: E731
    start: Any = lambda: NextQuery(left.pop(0))  # noqa: E731
    return lambda: run_queries(start, outages, watch, deaths=deaths, ahead=ahead), log


def attempts(log: Log) -> list[int]:
    return [values["attempt"] for event, values in log.events if event == "restarting"]


@pytest.mark.parametrize(
    ("scripts", "restarts"),
    [
        ([["is killed"]] * 3, [1, 2]),
        ([["cannot read"], ["is killed"], ["cannot read"]], [1, 2]),
        ([["batch", "cannot read"], ["cannot read"], ["cannot read"]], [1, 2]),
        ([["batch", "is killed"], ["batch", "is killed"], ["is killed"], ["is killed"]], [1, 1, 2]),
        ([["is killed"], ["not taken"], ["lane is killed"], ["is killed"], ["is killed"]], [1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_workers_do_not_read_a_batch_that_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, scripts: list[list[str]], restarts: list[int]
) -> None:
    assert AHEAD_FAILURES_MAX == 3
    goes, log = played(monkeypatch, scripts, ahead=True)
    with pytest.raises(ReadAheadFails) as found:
        goes()
    assert "\n" not in str(found.value)
    assert attempts(log) == restarts
    # Spark's source has the usual number of attempts
    goes, log = played(monkeypatch, [*scripts, ["nothing"]], ahead=False)
    assert goes() == exit_codes.OK
    assert attempts(log) == [*restarts, restarts[-1] + 1]


@pytest.mark.parametrize(
    "scripts",
    [
        [["batch", "is killed"]] * 7,
        [["cannot read"], ["cannot read"]] + [["batch", "cannot read"], ["cannot read"]] * 3,
        [["not taken"]] * 5,
        [["is killed"], ["not taken"], ["lane is killed"], ["is killed"], ["not taken"]],
    ],
)
def test_other_failures_and_progress_leave_it_to_the_workers(
    monkeypatch: pytest.MonkeyPatch, scripts: list[list[str]]
) -> None:
    goes, log = played(monkeypatch, [*scripts, ["nothing"]], ahead=True)
    assert goes() == exit_codes.OK
    assert len(attempts(log)) == len(scripts)


@pytest.mark.parametrize("before", [[], ["is killed"], ["is killed", "cannot read"]])
def test_failures_of_a_lane_park_the_lane(monkeypatch: pytest.MonkeyPatch, before: list[str]) -> None:
    scripts = [*([each] for each in before), *[["lane is killed"]] * 3, ["nothing"]]
    goes, log = played(monkeypatch, scripts, ahead=True, deaths=Deaths())
    assert goes() == exit_codes.OK
    assert [values["lane"] for event, values in log.events if event == "parking"] == ["alpha"]


def test_job_that_fails_otherwise_still_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    goes, log = played(monkeypatch, [["not taken"]] * 6, ahead=True)
    assert goes() == exit_codes.STOPPED
    assert log.events[-1][0] == "failed"


@pytest.mark.parametrize("error", [ReadAheadFails("Kafka did not give it"), OutOfMemory()])
def test_spark_reads_after_that(error: Exception) -> None:
    paces: list[Pace] = []
    log = Log()

    def fails_once(pace: Pace) -> int:
        paces.append(pace)
        if pace is AHEAD:
            raise error
        return exit_codes.OK

    assert run_at_paces(fails_once, log, AHEAD) == exit_codes.OK
    assert paces == [AHEAD, QUICK]
    assert log.events == [("restarting", {"reason": f"{error}; Spark reads {QUICK.poll_records} records at a time"})]


def test_workers_read_at_the_first_pace_only() -> None:
    assert [pace.ahead for pace in (AHEAD, QUICK, STEADY)] == [True, False, False]


# --- progress ---


def progress(observed: dict[str, Any], rows: int = 7, batch: int = 0) -> Any:
    source = SimpleNamespace(endOffset=f'{{"a": {{"0": {batch}}}}}', latestOffset='{"a": {"0": 9}}')
    return SimpleNamespace(
        batchId=batch,
        timestamp="2026-01-01T00:00:00.000Z",
        numInputRows=rows,
        observedMetrics=observed,
        durationMs={"addBatch": 3},
        sources=[source],
    )


def observed(records: int | None) -> dict[str, Any]:
    return {OBSERVED: Row(**{RECORDS: records})}


@pytest.mark.parametrize(
    ("metrics", "records"),
    [({}, 7), ({"another": Row(records=3)}, 7), (observed(1_000), 1_000), (observed(None), 0), (observed(0), 0)],
)
def test_records_of_a_batch_are_observed_or_its_rows(metrics: dict[str, Any], records: int) -> None:
    assert records_in(progress(metrics)) == records


def test_batches_are_logged_with_their_records() -> None:
    log, ends = Log(), list[str]()
    batches = [progress(observed(500), 2, 0), progress(observed(None), 0, 1), progress(observed(3), 1, 2)]
    query: Any = SimpleNamespace(lastProgress=batches[-1], recentProgress=batches)
    assert log_batches(query, -1, log, ends.append) == 2
    found = [(values["batch"], values["records"], values["unread"]) for _, values in log.events]
    assert found == [(0, 500, 9), (2, 3, 7)]
    assert ends == ['{"a": {"0": 2}}']
    assert log_batches(query, 2, log, ends.append) == 2
    assert len(log.events) == 2
