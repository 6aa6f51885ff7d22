# SPDX-License-Identifier: Apache-2.0
"""Says in one line why a query has failed, and remembers which lanes killed their workers, so that such a lane is parked."""

from __future__ import annotations

import errno
import json
import os
import re
from collections import Counter
from itertools import pairwise
from typing import Final

from pyspark.errors import StreamingQueryException

from streaming.spark_internals import (
    CONCURRENT_WRITER,
    EXECUTOR_LOST,
    OUTPUTS_LOST,
    STATE_CLOSED,
    STATE_STORE,
    STATE_UNREADABLE,
    TALKS_TO_PLANNER,
    TALKS_TO_WORKERS,
    WORKER_DIED,
    WORKER_LATE,
    java_trace,
)
from streaming.workers import EXECUTES
from validator.kafka.calls import KAFKA_GONE
from validator.lanes.parking import Suspect

OUT_OF_MEMORY = "Spark's JVM ran out of memory: raise [job] driver_memory"

_GONE = ".InputsRemoved: "
_REPLACED = ".TopicReplaced: "

INPUTS_GONE = "Kafka does not have inputs that the job has not read"
"""What the reason of a failure begins with that `validator.checkpoint.kafka.unread_inputs` looks into."""

READ_FAILED = ".ReadFailed:"
_WRITE_FAILED = ".WriteFailed:"
_FORESEEN = (
    ".HandlerFault:",
    ".WaitingOverflow:",
    ".PluginError:",
    ".UserError:",
    READ_FAILED,
    _WRITE_FAILED,
    ".WriterFenced:",
    ".KafkaGone:",
    _GONE,
    _REPLACED,
)
"""Errors that a worker raises although the program is correct. `ReadFailed` and `WriteFailed` are retried, `KafkaGone` is waited for, and
after `TopicReplaced` the next start of the query compares the topics once more and refuses.

What stops a single lane parks it (`validator.lanes.parking`), so the others come from what all lanes need: the worker's plugins, another
job.
"""

_HUNG = "a handler did not return and no signal could interrupt it"
_CALLS_HANDLERS = re.compile(r"core/handlers/dispatch\.py\", line \d+ in _run$")

_NO_MEMORY = "java.lang.OutOfMemoryError"
"""What Spark says if its JVM runs out of memory."""

_LOST = re.compile(rf"\((\S+) executor \S+\): {re.escape(EXECUTOR_LOST)}")
_EXIT_CODE = re.compile(r"Command exited with code (\d+)")

_RAISED = "Traceback (most recent call last)"

TOO_BUSY = "a Python worker took longer than 10 s to start: the machine has too much to do, or no worker can start there (Spark's log)"

NO_STATE = "Spark has closed a worker's connection to the state, as it does while the disk is full: logs/spark-output.log has the reason"

_STATE_CLOSED = re.compile(STATE_CLOSED)
_STATE_UNREADABLE = re.compile(STATE_UNREADABLE)
_STORE = re.compile(STATE_STORE)
_OF_FILES = re.compile(r"(?:org\.rocksdb\.RocksDBException|java\.[\w.]+Exception): .*")

_CAUSE = "Caused by: "


class BatchFailed(Exception):
    """A batch failed for a reason that may pass.

    ``progressed`` is true if this run of the query completed a batch before, ``outside`` if the reason is neither in Spark nor in a worker.
    ``error`` is all that Spark says of it.
    """

    def __init__(self, reason: str, *, progressed: bool, outside: bool = False, error: str = "") -> None:
        super().__init__(reason)
        self.progressed = progressed
        self.outside = outside
        self.error = error


class StateDamaged(BatchFailed):
    """Spark could not read its state."""


def report_of(error: StreamingQueryException) -> str:
    """Return what Spark says of a query's failure, with the causes and the call of the planning process from Java's stack trace.

    The message has the stack traces of a task that failed, unless an error of Spark's own, such as of a state store, stands for it.
    """
    message = str(error)
    if "\n\tat " in message:
        return message
    lines = java_trace(error).splitlines()
    causes = [line for line in lines if line.startswith(_CAUSE) and line.removeprefix(_CAUSE) not in message]
    return "\n".join([message, *causes, *[line.strip() for line in lines if TALKS_TO_PLANNER in line][:1]])


def reason_of(error: StreamingQueryException) -> tuple[str, bool]:
    """Return in one line why the query failed, and whether that is a foreseen error.

    The line is the last foreseen error of a worker if there is one, otherwise Spark's first line with the last exception of a Python
    process, or the last cause that is not in its message.
    """
    report = report_of(error)
    lines = [line.strip() for line in report.splitlines() if line.strip()]
    foreseen = [line for line in lines if any(name in line for name in _FORESEEN)]
    if foreseen:
        return foreseen[-1].rpartition(_GONE)[2] if _GONE in foreseen[-1] else foreseen[-1], True
    stuck = _stuck_handler(lines)
    if stuck is not None:
        return f"{_HUNG}, so its worker was killed: {stuck}", True
    if any(_NO_MEMORY in line for line in lines):
        return OUT_OF_MEMORY, True
    if any(WORKER_LATE in line for line in lines) and _RAISED not in report:
        return TOO_BUSY, False
    if (lost := _lost_executor(report)) is not None and _RAISED not in report:
        return lost, False
    if lost_state(report):
        return NO_STATE, False
    first = lines[0] if lines else type(error).__name__
    raised = _raised(report)
    if raised is not None:
        first = f"{first.partition(_RAISED)[0].rstrip(': ')}: {raised}"
    elif lines and lines[-1].startswith(_CAUSE) and "\n\tat " not in report:
        first = f"{first}: {lines[-1].removeprefix(_CAUSE)}"
    return first, CONCURRENT_WRITER in first


def may_pass(error: str, reason: str) -> bool:
    """Return whether to start again: Kafka rejected a batch, a worker or executor died or did not start, or the start says more."""
    if any(each in reason for each in (_WRITE_FAILED, READ_FAILED, _REPLACED)):
        return True
    return _RAISED not in error and (worker_died(error) or executor_lost(error))


def lost_state(report: str) -> bool:
    """Return whether Spark no longer answered a worker's questions to the state."""
    return _STATE_CLOSED.search(report) is not None


def damaged_state(report: str) -> str | None:
    """Return in one line what Spark cannot read of its state, None if it failed for another reason."""
    lines = report.splitlines()
    found = next((line.strip() for line in lines if _STATE_UNREADABLE.search(line)), None)
    if found is None:
        return None
    store = _STORE.search(report)
    where = f"state/{store[1]}/{store[2]} of the checkpoint" if store else "the checkpoint's state"
    causes = [each[0] for line in lines if (each := _OF_FILES.search(line))]
    causes += [line.removeprefix(_CAUSE) for line in lines[::-1] if line.startswith(_CAUSE)]
    return f"Spark cannot read {where}: {(causes or [found])[0].strip()}"


def _lost_executor(report: str) -> str | None:
    """Return in short that an executor was lost, without what Spark guesses; None if none was."""
    found = list(_LOST.finditer(report))
    if not found:
        return None
    code = _EXIT_CODE.search(report, found[-1].end())
    return f"an executor was lost ({found[-1][1]}{f', exit code {code[1]}' if code else ''})"


def _raised(report: str) -> str | None:
    """Return the last exception of a Python process; None if there is none."""
    found, inside = None, False
    for line in report.splitlines():
        if _RAISED in line:
            inside = True
        elif inside and line.strip() and not line[0].isspace():
            found, inside = line.strip(), False
    return found


def unread_inputs_gone(which: str) -> str:
    """Return what to say if Kafka does not give inputs that the job has not read. What to do depends on whether that lasts."""
    return f"{INPUTS_GONE} ({which})"


def _stuck_handler(lines: list[str]) -> str | None:
    """Return the plugin's line at which a worker was killed, from the stack that it left; innermost call first. None if there is none."""
    if not any(WORKER_DIED in line for line in lines):
        return None
    for inner, outer in pairwise(lines):
        if inner.startswith("File ") and _CALLS_HANDLERS.search(outer):
            return inner
    return None


DEATHS_MAX: Final = 3
"""Deaths of workers at the same point of a lane after which it is parked. A person or the system may kill a worker once or twice."""

_EXECUTED: Final = re.compile(rf"{EXECUTES} (\[.*\])")

_LOST_WORKER = re.compile(
    r"java\.(io\.(EOF|IO)|net\.Socket|nio\.channels\.(AsynchronousClose|ClosedChannel))Exception(: (Broken pipe|Connection reset|"
    r"Socket closed|Stream closed)|$)",
    re.MULTILINE,
)


def executor_lost(error: str) -> bool:
    """Return whether the text of a query's exception says that executors were lost."""
    return EXECUTOR_LOST in error or OUTPUTS_LOST in error


def worker_died(error: str) -> bool:
    """Return whether the text of a query's exception says that a worker died, or did not start."""
    return (
        WORKER_DIED in error
        or WORKER_LATE in error
        or (
            any(each in error for each in (TALKS_TO_WORKERS, TALKS_TO_PLANNER))
            and _LOST_WORKER.search(error) is not None
        )
    )


class Deaths:
    """Counts the deaths of workers by lane and point, as their last words name them (`workers.note_point`).

    The counts last as long as the driver: a lane that has not been parked when it ends is tried again as often by the next one.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._reasons: dict[tuple[str, str], str] = {}

    def count(self, failure: BatchFailed) -> str | None:
        """Count a failure, and return its lane if that is to be parked now."""
        executed = executed_lane(failure.error)
        if executed is None:
            return None
        self._counts[executed] += 1
        lane, _ = executed
        self._reasons[executed] = (
            f"lane {lane}: its worker died {self._counts[executed]} times at the same point: {failure}"
        )
        return lane if self._counts[executed] == DEATHS_MAX else None

    def suspects(self) -> dict[str, Suspect]:
        """Return the lanes to be parked, each with the last point at which that is so."""
        return {
            lane: Suspect(point, self._reasons[lane, point])
            for (lane, point), count in self._counts.items()
            if count >= DEATHS_MAX
        }


def executed_lane(error: str) -> tuple[str, str] | None:
    """Return the lane, and its point, that a worker executed when it died; None if the error does not say so."""
    found = _EXECUTED.search(error)
    if found is None:
        return None
    try:
        words = json.loads(found[1])
    except ValueError:
        return None
    if len(words) != 2 or not all(isinstance(word, str) for word in words):
        return None
    lane, point = words
    return lane, point


# --- failures that pass, of Kafka, a name service, the job's disk, or a busy machine ---

_NO_RIGHT: Final = "Permission denied"
_DISK: Final = {
    "No space left on device": "No space left on device",
    "Disk quota exceeded": "Disk quota exceeded",
    "Read-only file system": "Read-only file system",
    f"({_NO_RIGHT})": _NO_RIGHT,
    "java.nio.file.AccessDeniedException: ": _NO_RIGHT,
    "Mkdirs failed to create ": "no folder can be created there",
    "Input/output error": "Input/output error",
}
"""What Java, RocksDB, Hadoop's file system and Python say of a folder that cannot be written, with our words; in parentheses as Java quotes
the system."""

WRITER_GONE: Final = KAFKA_GONE
"""A worker's `validator.kafka.transaction.KafkaGone`, in the text of the query's exception."""

_ERRNO: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""The same of a worker's own files, by number."""


def unwritable(error: str) -> str | None:
    """Return in one line that the job's folder cannot be written, if the text of an exception says so.

    What a worker raised counts more than what Spark adds to it.
    """
    if _RAISED in error:
        found = (os.strerror(number) for number in _ERRNO if f"OSError: [Errno {number}]" in error)
    else:
        found = (words for sign, words in _DISK.items() if sign in error)
    why = next(found, None)
    return None if why is None else f"the job's folder ([job] directory) cannot be written: {why}"


def is_outside(error: str) -> bool:
    """Return whether the text of a query's exception, with its stack traces, reports something that passes.

    What a worker raised counts more than what Spark adds to it. A worker that starts too late says that the machine has too much to do.
    """
    if WRITER_GONE in error or unwritable(error) is not None or lost_state(error):
        return True
    return _RAISED not in error and WORKER_LATE in error
