# SPDX-License-Identifier: Apache-2.0
"""Bounds every call into librdkafka that a lane waits for, also where librdkafka does not keep the time that it was given.

A call whose time is up normally raises, and the batch is retried. Some do not (librdkafka issues 5456 and 5511), and no thread can be taken
out of a call. So a thread of the worker looks at the calls in progress, and ends the worker once one has taken `GRACE_S` longer than its
bound. What the worker leaves as its last words is what the call should have raised: the job waits for Kafka and repeats the batch.

The driver waits for few calls, and gives up those that do not return (`waited_for`). Time in which a process was stopped does not count.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")

CALL_S_MAX: Final = 45.0
"""Seconds that one call to Kafka may take: the job says within a minute that Kafka does not answer."""

PROGRESS_S_MAX: Final = 45.0
"""Seconds that reading a topic, or sending records, may make no progress."""

TRANSACTION_MS_MAX: Final = 300_000
"""Milliseconds after which the broker aborts an abandoned transaction. Until then, readers of committed records wait for a dead writer
whose lane nobody takes over."""

ABANDONED_S_MAX: Final = TRANSACTION_MS_MAX / 1_000 + 60.0
"""Seconds after which an abandoned transaction has ended, whoever left it."""

GROUP_S_MAX: Final = 5.0
"""Seconds in which a lane's consumer group may say what it knows; otherwise it says nothing."""

REPORT_S_MAX: Final = 2.0
"""Seconds to wait for the report on the record that failed a transaction."""

LOCAL_S_MAX: Final = 10.0
"""Seconds for what needs no answer: librdkafka's own threads have it."""

GRACE_S: Final = 10.0
"""Seconds beyond its bound that a call may take."""

TICK_S: Final = 1.0
"""Seconds between two looks at the calls in progress."""

ENDED: Final = 75
"""Exit code of a worker that was ended because of a call."""

KAFKA_GONE: Final = "validator.kafka.transaction.KafkaGone:"
"""How Spark reports a worker's `validator.kafka.transaction.KafkaGone`."""


class Call(NamedTuple):
    """A call into librdkafka, or a few that share a bound: what it does, and the seconds that it may take."""

    what: str
    bound_s: float


OPEN_WRITER: Final = Call("opening a producer (init_transactions)", CALL_S_MAX)
BEGIN: Final = Call("beginning a transaction (begin_transaction)", LOCAL_S_MAX)
SEND: Final = Call("sending records (produce, poll)", PROGRESS_S_MAX)
REPORT: Final = Call("asking why a transaction failed (poll)", REPORT_S_MAX)
COMMIT: Final = Call("committing a transaction (commit_transaction)", CALL_S_MAX)
ASK_GROUP: Final = Call("asking the lane's consumer group (committed)", GROUP_S_MAX)
OPEN_READER: Final = Call("looking up a topic to read (list_topics)", CALL_S_MAX)
ASK_ENDS: Final = Call("asking where a topic begins and ends (list_offsets, offsets_for_times)", CALL_S_MAX)
READ: Final = Call("reading a topic (poll)", CALL_S_MAX)
READ_RANGE: Final = Call("reading inputs (poll)", LOCAL_S_MAX)
CLOSE: Final = Call("closing a consumer (close)", LOCAL_S_MAX)

CALLS: Final = (OPEN_WRITER, BEGIN, SEND, REPORT, COMMIT, ASK_GROUP, OPEN_READER, ASK_ENDS, READ, READ_RANGE, CLOSE)
"""Every call that a lane waits for. docs/failures.md shows the table."""


def overdue(call: Call, lane: str = "") -> str:
    """Return in one line that a call has not returned."""
    whose = f" of lane {lane}" if lane else ""
    return f"Kafka does not answer: {call.what}{whose} did not return within {call.bound_s + GRACE_S:.0f} s"


class _Waiting:
    """A call in progress, and the seconds that it has taken."""

    __slots__ = ("call", "lane", "passed_s")

    def __init__(self, call: Call, lane: str) -> None:
        self.call, self.lane, self.passed_s = call, lane, 0.0


_waiting: dict[int, _Waiting] = {}
"""The calls in progress of this process, by thread."""

_watched_pid = 0
"""The process that has a watching thread; a forked one has none."""


class within:  # noqa: N801 - used as a function
    """Watches a call while it is a context; contexts do not nest. `again` begins its time again after progress.

    A call of no lane is not watched: its ``lane`` is None.
    """

    __slots__ = ("_thread", "_waiting")

    def __init__(self, call: Call, lane: str | None = "") -> None:
        self._waiting = None if lane is None else _Waiting(call, lane)
        self._thread = threading.get_ident()

    def __enter__(self) -> Self:
        if self._waiting is not None:
            if _watched_pid != os.getpid():
                _watch()
            _waiting[self._thread] = self._waiting
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._waiting is not None:
            _waiting.pop(self._thread, None)

    def again(self) -> None:
        """Begin the call's time again."""
        if self._waiting is not None:
            self._waiting.passed_s = 0.0


def waited_for(call: Call, ask: Callable[[], T]) -> T:
    """Return what ``ask`` returns, from a separate thread. Raises `TimeoutError` if it does not return; its thread is left behind."""
    answers: SimpleQueue[tuple[T | None, BaseException | None]] = SimpleQueue()

    def answer() -> None:
        try:
            answers.put((ask(), None))
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            answers.put((None, error))

    threading.Thread(target=answer, name="kafka-call", daemon=True).start()
    passed_s, looked_s = 0.0, time.monotonic()
    while True:
        try:
            found, error = answers.get(timeout=TICK_S)
        except Empty:
            passed_s, looked_s = _later(passed_s, looked_s)
            if passed_s >= call.bound_s + GRACE_S:
                raise TimeoutError(overdue(call)) from None
            continue
        if error is not None:
            raise error
        return found  # type: ignore[return-value]  # None stands for an error only


def _later(passed_s: float, looked_s: float) -> tuple[float, float]:
    """Return the seconds that have passed, without those for which the process was stopped, and the time of this look."""
    now = time.monotonic()
    return passed_s + min(now - looked_s, 2 * TICK_S), now


def _watch() -> None:
    global _watched_pid
    _watched_pid = os.getpid()
    _waiting.clear()  # those of the process that forked this one
    threading.Thread(target=_look, name="kafka-calls", daemon=True).start()


def _look() -> None:
    looked_s = time.monotonic()
    while True:
        time.sleep(TICK_S)
        passed_s, looked_s = _later(0.0, looked_s)
        for waiting in list(_waiting.values()):
            waiting.passed_s += passed_s
            if waiting.passed_s >= waiting.call.bound_s + GRACE_S:
                end_process(f"{KAFKA_GONE} {overdue(waiting.call, waiting.lane)}; its worker was ended")


def say_last(words: str) -> None:
    """Leave last words where Spark reports them if a worker dies, or on standard error where there is no such file."""
    folder = os.environ.get("PYTHON_FAULTHANDLER_DIR")
    if folder is None:
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()
        return
    with open(f"{folder}/{os.getpid()}", "a", encoding="utf-8") as file:  # noqa: PTH123
        file.write(f"{words}\n")


def end_process(words: str) -> None:
    """End this process with its last words; nothing of it can be ended in order, since a thread stands in a call."""
    try:
        say_last(words)
    finally:
        os._exit(ENDED)
