# SPDX-License-Identifier: Apache-2.0
"""What is away outside is waited for, with growing pauses that are reported, and not forever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from streaming.batch_watch import Stalled
from streaming.range_source import InputsRemoved, ReadFailed, TopicReplaced
from streaming.reasons import (
    _FORESEEN,
    READ_FAILED,
    WRITER_GONE,
    BatchFailed,
    is_outside,
    reason_of,
    report_of,
    unwritable,
)
from streaming.run import Outages, _follow, ended_in_order, run_queries
from streaming.session import StartFailed
from tests.clock import Clock
from tests.registry_stand_in import stand_in
from tests.unit.streaming.queries import (
    DISK_FULL,
    FAULT,
    KAFKA_GONE,
    KILLED,
    NOT_TAKEN,
    OUTSIDE,
    STATE_NOT_WRITTEN,
    STATE_NOT_WRITTEN_TRACE,
    TRACEBACK,
    Log,
    Query,
    Stop,
)
from validator import exit_codes
from validator.cli.job_log import describe
from validator.codec.framing import id_header
from validator.codec.schemas import schemas
from validator.config import Config
from validator.core.handlers.errors import HandlerFault
from validator.core.lane import WaitingOverflow
from validator.errors import GivenUp, Unavailable, UserError
from validator.job import schema_ids
from validator.job.schema_ids import RecordSchemas
from validator.kafka.transaction import KafkaGone, WriteFailed, WriterFenced
from validator.plugin.registry import PluginError
from validator.waiting import OUTAGE, Patience

FAILED_STARTS: dict[str, Exception] = {
    "offline": BatchFailed("offline", progressed=False, outside=True),
    "no answer": Unavailable("no Kafka answers"),
    "no folder": OSError(30, "Read-only file system"),
}


class Played:
    """Runs of a query, by their scripts; the last one continues until a request to stop."""

    def __init__(self, scripts: list[list[str]], give_up_after_s: float = 3600.0, stalls: int = 0) -> None:
        self.scripts, self.stalls = scripts, stalls
        self.clock, self.log, self.stop = Clock(100.0), Log(), SimpleNamespace(requested=False)
        self.outages = Outages(Patience(give_up_after_s, self.clock, self.clock.sleep), self.stop, self.log)  # type: ignore[arg-type]
        self.ended: list[Query] = []

    def start(self) -> Any:
        script = self.scripts.pop(0)
        if (failure := FAILED_STARTS.get(script[0])) is not None:
            raise failure
        played = self

        class NextQuery(Query):
            id = runId = "query"  # noqa: N815 - as Spark names it

            def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
                played.stop.requested = self.script == ["nothing"]
                return super().awaitTermination(timeout)

            def stop(self) -> None:
                played.ended.append(self)
                super().stop()

        return NextQuery(list(script))

    def watch(self, _: object) -> Any:
        def look() -> None:
            if self.stalls:
                self.stalls -= 1
                raise Stalled("the batch has made no progress for 900 s")

        return SimpleNamespace(look=look)

    def run(self) -> int:
        return ended_in_order(lambda: run_queries(self.start, self.outages, self.watch), self.outages)

    def pauses(self) -> list[float]:
        return [values["seconds"] for event, values in self.log.events if event == "waiting"]


@pytest.mark.parametrize("failure", [*OUTSIDE, *FAILED_STARTS])
def test_long_outage_is_waited_out_and_reported(failure: str) -> None:
    played = Played([])
    played.scripts = (
        [["batch", failure], *[[failure]] * 14, ["nothing"]] if failure in OUTSIDE else [*[[failure]] * 15, ["nothing"]]
    )
    assert played.run() == exit_codes.OK
    expected = [OUTAGE.after(failures) for failures in range(1, 16)]
    assert played.pauses() == expected
    assert played.clock.now_s - 100 == pytest.approx(sum(expected))
    waiting = [values for event, values in played.log.events if event == "waiting"]
    assert [values["waited"] for values in waiting][:4] == [0, 1, 3, 7]
    assert all("\n" not in values["reason"] and values["reason"] for values in waiting)


@pytest.mark.parametrize("failure", [*OUTSIDE, *FAILED_STARTS])
def test_outage_that_lasts_ends_the_job_with_its_own_exit_code(failure: str) -> None:
    played = Played([[failure]] * 99, give_up_after_s=200)
    assert played.run() == exit_codes.STOPPED
    assert sum(played.pauses()) == pytest.approx(200)
    event, values = played.log.events[-1]
    assert event == "failed"
    assert values["reason"].endswith("gave up after 200 s, [job] give_up_after is 200")


def test_every_outage_has_its_own_time() -> None:
    played = Played(
        [[*["batch"] * (number % 2), "kafka gone"] for number in range(20)] + [["nothing"]], give_up_after_s=4
    )
    assert played.run() == exit_codes.OK
    assert set(played.pauses()) == {1, 2}


def test_request_to_stop_ends_a_pause() -> None:
    played = Played([["kafka gone"]] * 9)

    def sleep(seconds: float) -> None:
        played.clock.sleep(seconds)
        played.stop.requested = played.clock.now_s > 110

    played.outages = Outages(Patience(3600, played.clock, sleep), played.stop, played.log)  # type: ignore[arg-type]
    assert played.run() == exit_codes.OK
    assert 110 < played.clock.now_s < 111
    assert played.log.events[-1][0] == "stopped"


@pytest.mark.parametrize("failure", [*OUTSIDE, "is killed"])
def test_batch_that_fails_after_a_request_to_stop_is_left_to_the_next_start(failure: str) -> None:
    played = Played([])

    class Asked(Query):
        id = runId = "query"  # noqa: N815 - as Spark names it

        def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
            played.stop.requested = True
            return super().awaitTermination(timeout)

    def run() -> int:
        return run_queries(lambda: Asked([failure]), played.outages, played.watch)  # type: ignore[arg-type, return-value]

    assert ended_in_order(run, played.outages) == exit_codes.OK
    assert [event for event, _ in played.log.events] == ["ready", "stopped"]


def test_batch_without_progress_is_ended_and_begun_again() -> None:
    played = Played([["busy", *["nothing"] * 9], ["batch", "nothing"], ["nothing"]], stalls=1)
    assert played.run() == exit_codes.OK
    assert [values["reason"] for event, values in played.log.events if event == "waiting"] == [
        "the batch has made no progress for 900 s"
    ]
    assert len(played.ended) == 2
    lasting = Played([["busy", *["nothing"] * 9]] * 99, give_up_after_s=30, stalls=99)
    assert lasting.run() == exit_codes.STOPPED


def test_query_that_does_not_end_ends_the_job() -> None:
    class Stuck(Query):
        def stop(self) -> None:
            raise StreamingQueryException("TimeoutException: stream thread is still running\n\tat something")

    with pytest.raises(GivenUp, match=r"no progress .*, and its query does not end: TimeoutException: stream"):
        _follow(Stuck(["busy", "busy"]), Stop(9), Log(), watch=Played([], stalls=1).watch(None))  # type: ignore[arg-type]
    with pytest.raises(
        GivenUp, match=r"stops between two batches, and its query does not end: TimeoutException: stream"
    ):
        _follow(Stuck(["nothing", "nothing"]), Stop(1), Log())  # type: ignore[arg-type]


def test_first_look_waits_for_kafka_until_a_request_to_stop() -> None:
    played = Played([])
    answers = [Unavailable("no Kafka answers at a:1")] * 3

    def look() -> int:
        if answers:
            raise answers.pop()
        return 0

    assert ended_in_order(lambda: played.outages.wait_out(look), played.outages) == exit_codes.OK
    assert played.pauses() == [1, 2, 4]
    played.stop.requested = True
    answers = [Unavailable("no Kafka answers at a:1")]
    assert ended_in_order(lambda: played.outages.wait_out(look), played.outages) == exit_codes.OK
    assert played.log.events[-1] == ("stopped", {"last_batch": -1})


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        (KAFKA_GONE, True),
        (NOT_TAKEN, False),
        (FAULT, False),
        (DISK_FULL, True),
        (DISK_FULL.replace("No space left on device", "Disk quota exceeded"), True),
        ("java.nio.file.FileSystemException: /job/checkpoint/offsets/.7.tmp: Read-only file system", True),
        ("java.io.FileNotFoundException: /job/checkpoint/offsets/.7.tmp (Permission denied)", True),
        ("org.rocksdb.RocksDBException: While open a file for appending: /x/000012.sst: No space left on device", True),
        ("java.io.IOException: Mkdirs failed to create file:/job/checkpoint/state/0/0 (exists=false)", True),
        (f"{TRACEBACK}OSError: [Errno 28] No space left on device: '/tmp/x'", True),
        (f"{TRACEBACK}PermissionError: [Errno 13] Permission denied", False),
        ("java.lang.NullPointerException", False),
    ],
)
def test_only_failures_from_outside_are_waited_for(text: str, outside: bool) -> None:
    assert is_outside(text) is outside


def test_cause_that_only_javas_stack_trace_names_is_waited_for() -> None:
    failure = StreamingQueryException(STATE_NOT_WRITTEN)
    assert not is_outside(report_of(failure))
    failure._stackTrace = STATE_NOT_WRITTEN_TRACE  # type: ignore[attr-defined]
    assert is_outside(report_of(failure))
    assert reason_of(failure) == (
        f"{STATE_NOT_WRITTEN.splitlines()[0]}: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device",
        False,
    )


def test_message_with_stack_traces_stands_alone() -> None:
    failure = StreamingQueryException(KILLED)
    failure._stackTrace = STATE_NOT_WRITTEN_TRACE  # type: ignore[attr-defined]
    assert report_of(failure) == KILLED


def test_fault_of_a_handler_stops_the_job_even_if_it_names_a_disk() -> None:
    text = FAULT.replace("validator.core", "OSError: [Errno 28] No space left on device\nvalidator.core")
    query = Query(["fails"])
    query.awaitTermination = lambda _: (_ for _ in ()).throw(StreamingQueryException(text))  # type: ignore[method-assign]
    assert _follow(query, Stop(9), Log()) == exit_codes.STOPPED  # type: ignore[arg-type]


def test_slow_registry_is_asked_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = schemas()["validator.Verdict"]
    played = Played([])
    monkeypatch.setattr(schema_ids, "PROGRESS_S", 0)
    with stand_in() as registry:
        own = registry.add("verdicts-value", schema.source)
        config = Config(topics={"prefix": ""}, schema_registry={"url": registry.url})
        found = played.outages.registry_ids(config, [RecordSchemas("verdicts", (schema,))])
    assert found.headers == {id_header(own): schema.header}
    assert played.log.events == [("asking", {"registry": registry.url, "versions": 0, "of": 1})]
    event = {"event": "asking", "registry": registry.url, "versions": 0, "of": 1}
    assert describe(event) == "the schema registry has answered for 0 of 1 versions"


def test_exceptions_that_are_known_by_their_names_have_them() -> None:
    """Spark gives their text only: a class that is renamed would be a failure that nobody has foreseen."""
    known = (
        HandlerFault,
        WaitingOverflow,
        PluginError,
        UserError,
        ReadFailed,
        WriteFailed,
        WriterFenced,
        KafkaGone,
        InputsRemoved,
        TopicReplaced,
    )
    assert [f".{each.__name__}" for each in known] == [name.rstrip(": ") for name in _FORESEEN]
    assert f"{KafkaGone.__module__}.{KafkaGone.__name__}:" == WRITER_GONE
    assert f".{ReadFailed.__name__}:" == READ_FAILED


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (DISK_FULL, "No space left on device"),
        (f"{TRACEBACK}OSError: [Errno 30] Read-only file system: '/tmp/x'", "Read-only file system"),
        ("java.io.FileNotFoundException: /job/checkpoint/offsets/.7.tmp (Permission denied)", "Permission denied"),
        (KAFKA_GONE, None),
        (f"{TRACEBACK}PermissionError: [Errno 13] Permission denied", None),
    ],
)
def test_folder_that_cannot_be_written_is_named_in_words(text: str, why: str | None) -> None:
    assert unwritable(text) == (None if why is None else f"the job's folder ([job] directory) cannot be written: {why}")


def test_start_on_a_full_disk_is_repeated() -> None:
    played, failures = Played([]), [StartFailed("the disk is full")] * 3

    def run() -> int:
        if failures:
            raise failures.pop()
        return exit_codes.OK

    assert ended_in_order(run, played.outages) == exit_codes.OK
    assert played.pauses() == [1, 2, 4]
    failures = [StartFailed("the disk is full")]
    played.stop.requested = True
    assert ended_in_order(run, played.outages) == exit_codes.OK
    assert played.log.events[-1] == ("stopped", {"last_batch": -1})
