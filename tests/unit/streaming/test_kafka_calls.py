# SPDX-License-Identifier: Apache-2.0
"""Each call into librdkafka that a lane waits for, with a stand-in that does not return: the worker ends, and says that Kafka is why."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from pyspark.errors import StreamingQueryException

from streaming import range_reader, run
from streaming.reasons import is_outside, reason_of
from streaming.taking_over import end_open_transactions
from streaming.transactions import TransactionalWriter
from validator.checkpoint import markers
from validator.checkpoint.markers import LaneOnKafka
from validator.codec.encode import OutputRecord
from validator.errors import Unavailable, UserError
from validator.kafka import calls, transaction
from validator.kafka import reader as reader_module
from validator.kafka.calls import CALL_S_MAX, CALLS, ENDED, GRACE_S, KAFKA_GONE, Call, overdue, within
from validator.kafka.reader import TopicReader
from validator.kafka.transaction import WriteFailed
from validator.lanes.marker import Marker

if TYPE_CHECKING:
    from pathlib import Path

KAFKA: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1"}
LANE = "polkadot"
HUNG_S_MAX = 120.0
"""Seconds after which a stand-in returns all the same, so that a test ends."""


class Hung:
    """What the stand-ins share: a call that returns only once the process would have been ended."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.at = ""
        self._ended = threading.Event()

    def end(self, words: str) -> None:
        self.words.append(words)
        self._ended.set()

    def pass_by(self, name: str) -> None:
        if name == self.at:
            self._ended.wait(HUNG_S_MAX)
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))  # it is not asked again


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Hung:
    """Replace librdkafka's clients; any call that is in progress for a moment is overdue."""
    made = Hung()

    class Client:
        def __init__(self, *_: Any) -> None: ...

        def __len__(self) -> int:
            return 0

        def list_topics(self, topic: str = "", **_: Any) -> Any:
            made.pass_by("list_topics")
            return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

        def offsets_for_times(self, places: list[TopicPartition], **_: Any) -> list[TopicPartition]:
            made.pass_by("offsets_for_times")
            return [TopicPartition(place.topic, place.partition, 0) for place in places]

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_, **__: made.pass_by(name)

    for module in (transaction, markers, range_reader, reader_module, run):
        for client in ("Producer", "Consumer", "AdminClient"):
            if hasattr(module, client):
                monkeypatch.setattr(module, client, Client)
    monkeypatch.setattr(calls, "end_process", made.end)
    monkeypatch.setattr(calls, "TICK_S", 0.01)
    monkeypatch.setattr(calls, "_later", lambda passed_s, _: (passed_s + 1_000.0, time.monotonic()))
    return made


def writer() -> TransactionalWriter:
    return TransactionalWriter(LaneOnKafka(KAFKA, "p.", LANE), "job")


def read(act: Callable[[TopicReader], object]) -> Callable[[], object]:
    return lambda: act(TopicReader(KAFKA, "p.", ["markers"], lane=LANE))


RECORD = OutputRecord("verdicts", b"k", b"v")
ABORTS = KafkaError(KafkaError._STATE, txn_requires_abort=True)

WAITING: dict[Call, tuple[str, Callable[[], object]]] = {
    calls.OPEN_WRITER: ("init_transactions", writer),
    calls.BEGIN: ("begin_transaction", lambda: writer().write([RECORD])),
    calls.SEND: ("produce", lambda: writer().write([RECORD])),
    calls.REPORT: ("poll", lambda: writer()._writer._await_report(ABORTS)),
    calls.COMMIT: ("commit_transaction", lambda: writer().commit(Marker())),
    calls.ASK_GROUP: ("committed", lambda: markers.LaneOnKafka(KAFKA, "p.", LANE).group_block()),
    calls.OPEN_READER: ("list_topics", read(lambda _: None)),
    calls.ASK_ENDS: ("list_offsets", read(lambda reader: reader.ends())),
    calls.READ: ("poll", read(lambda reader: reader.poll(0.1))),
    calls.READ_RANGE: ("poll", lambda: range_reader.Cursor({}, ()).poll()),
    calls.CLOSE: ("close", read(lambda reader: reader.close())),
}
"""By call, the method of librdkafka's client that does not return, and what a lane does."""


def test_every_call_has_a_case() -> None:
    assert WAITING.keys() == set(CALLS)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.what)
def test_worker_ends_if_a_call_does_not_return(hung: Hung, call: Call) -> None:
    hung.at, act = WAITING[call]
    with suppress(KafkaException, WriteFailed, UserError):
        act()
    lane = "" if call is calls.READ_RANGE else f" of lane {LANE}"
    assert hung.words[:1] == [
        f"{KAFKA_GONE} Kafka does not answer: {call.what}{lane} did not return within {call.bound_s + GRACE_S:.0f} s; its worker was ended"
    ]


def test_watched_ends_are_asked_of_each_partition_too(hung: Hung) -> None:
    hung.at = "offsets_for_times"
    with suppress(UserError):
        read(lambda reader: reader.spans())()
    assert overdue(calls.ASK_ENDS, LANE) in hung.words[0]


def test_call_that_makes_progress_is_not_overdue(hung: Hung, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, goes_on = threading.Semaphore(0), threading.Semaphore(0)

    def later(_: float, now: float) -> tuple[float, float]:
        looks.release()
        goes_on.acquire()
        return calls.SEND.bound_s, now

    monkeypatch.setattr(calls, "_later", later)
    with within(calls.SEND, LANE) as call:
        for _ in range(20):
            looks.acquire()
            call.again()
            goes_on.release()
    monkeypatch.undo()
    goes_on.release()
    assert hung.words == []


def test_driver_gives_up_a_call_that_does_not_return(hung: Hung) -> None:
    hung.at = "init_transactions"
    with pytest.raises(
        Unavailable,
        match=r"^Kafka does not answer: opening a producer \(init_transactions\) did not return within 55 s",
    ):
        end_open_transactions(KAFKA, "p.", ["a", "b"])
    hung.at = "close"
    run.JobOffsets(KAFKA, "p.").close()
    assert hung.words == [], "the driver is not ended"
    hung.end("")


def test_driver_gets_what_a_call_gives_or_raises(hung: Hung, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_later", lambda *_: (0.0, 0.0))
    end_open_transactions(KAFKA, "p.", ["a"])
    hung.at = "init_transactions"
    hung.end("")
    with pytest.raises(UserError, match="Kafka did not accept the batch: "):
        end_open_transactions(KAFKA, "p.", ["a"])


def test_time_in_which_the_process_was_stopped_does_not_count() -> None:
    passed_s, _ = calls._later(5.0, time.monotonic() - 3_600)
    assert passed_s == 5.0 + 2 * calls.TICK_S


def test_event_of_a_call_comes_within_a_minute() -> None:
    """Whether the call ends in time or its worker is ended: the rest of the minute is for Spark."""
    assert CALL_S_MAX + GRACE_S < 60
    assert max(call.bound_s for call in CALLS) <= CALL_S_MAX


HANGS = """
import time
from validator.kafka import calls
calls.TICK_S, calls.GRACE_S = 0.01, 0.0
with calls.within(calls.Call("a call", 0.05), "polkadot"):
    time.sleep(120)
"""


def test_last_words_are_where_spark_reports_them_and_make_the_job_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHON_FAULTHANDLER_DIR", str(tmp_path))
    process = subprocess.Popen([sys.executable, "-c", HANGS])
    assert process.wait() == ENDED
    words = (tmp_path / str(process.pid)).read_text(encoding="utf-8")
    message = f'Job aborted: Python worker exited unexpectedly (crashed): executes lane ["polkadot", "ab"]\n{words}\n\tat org.apache'
    reason, foreseen = reason_of(StreamingQueryException(message))
    assert reason.endswith(
        "Kafka does not answer: a call of lane polkadot did not return within 0 s; its worker was ended"
    )
    assert foreseen
    assert is_outside(message)
