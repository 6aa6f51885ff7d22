# SPDX-License-Identifier: Apache-2.0
"""The job's folder: its lock, and its logs. The job's own log goes to standard error, all else that it prints to a file of bounded size."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO, cast

import structlog

from validator.errors import UserError
from validator.private import make_private

_RAISED_BY = re.compile(r"^(?:streaming|validator)(?:\.\w+)+: ")
"""How Python names an exception of the program before its text."""

OUTPUT_LOG = "spark-output.log"

OUTPUT_LOG_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of Spark's and the workers' output after which the log rotates. One previous file is kept."""

LINE_CHARACTERS_MAX = 64 * 1024
"""Characters of that output that are taken at once: a longer line, which may have no end, is written in parts."""

LOG_DRAIN_S_MAX = 2.0
"""Seconds to wait at the end until the last of that output is written."""

_END = "the end of the job's output\0\n"
"""What the job itself prints last: others may hold the pipe for longer, a JVM for two seconds."""


class _Noise(RotatingFileHandler):
    """A log whose own failure is not printed: what is printed is the log."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Drop the record, say because the disk is full: whoever prints must not wait for it."""


@contextmanager
def own_output(directory: Path) -> Iterator[TextIO]:
    """Redirect everything that this process, the JVM and the workers print to a log file; yield the original standard error."""
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    own = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    noise = _Noise(logs / OUTPUT_LOG, maxBytes=OUTPUT_LOG_BYTES_MAX, backupCount=1, encoding="utf-8", errors="replace")
    noise.terminator = ""
    read, write = os.pipe()
    os.dup2(write, 1)
    os.dup2(write, 2)
    drained = threading.Thread(target=_drain, args=(read, noise), daemon=True)
    drained.start()
    try:
        yield own
    finally:
        with suppress(OSError):
            own.flush()
        os.dup2(own.fileno(), 1)
        os.dup2(own.fileno(), 2)
        threading.Thread(target=_end_output, args=(write,), daemon=True).start()  # it waits while the pipe is full
        drained.join(LOG_DRAIN_S_MAX)


def _end_output(pipe: int) -> None:
    with suppress(OSError):
        os.write(pipe, _END.encode())
    os.close(pipe)


def _drain(pipe: int, log: RotatingFileHandler) -> None:
    """Copy a pipe to a log, until its end or until nobody holds the other end."""
    with os.fdopen(pipe, encoding="utf-8", errors="replace") as lines:
        for line in iter(lambda: lines.readline(LINE_CHARACTERS_MAX), ""):
            last = line.removesuffix(_END)
            if last:
                log.emit(logging.makeLogRecord({"msg": last}))
            if last != line:
                break
    with suppress(OSError):  # it flushes what a full disk has not taken
        log.close()


class _Lossy:
    """Drops what cannot be written: the job continues if the disk is full, or if whoever started it was killed and nobody reads its log."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._output.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._output.flush()


def logger(output: TextIO, note: Callable[[Mapping[str, Any]], None] = lambda _: None) -> Any:
    """Return the job's logger, which writes JSON lines with an ``event`` each; ``note`` gets each event first."""

    def noted(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if "reason" in event:  # whoever reads it knows no modules
            event["reason"] = _RAISED_BY.sub("", str(event["reason"]))
        note(event)
        return event

    structlog.configure(
        processors=[
            noted,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _Lossy(output))),
    )
    return structlog.get_logger()


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold a lock on the job's folder; it ends with the process. Raises `UserError` if it cannot be written, or another job holds it."""
    try:
        make_private(directory)
        handle = (directory / "running.lock").open("w")
    except OSError as error:
        raise UserError(f"[job] directory {directory}: the job cannot write there: {error.strerror}") from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another job is using {directory}: stop it, or give this one a separate [job] directory"
            ) from None
        yield
