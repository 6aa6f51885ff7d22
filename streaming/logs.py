# SPDX-License-Identifier: Apache-2.0
"""The job's own log on standard error; everything else that it prints goes to a file of bounded size."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO

import structlog

OUTPUT_LOG = "spark-output.log"

OUTPUT_LOG_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of Spark's and the workers' output after which the log rotates. One previous file is kept."""

LOG_DRAIN_S_MAX = 2.0
"""Seconds to wait at the end until the last of that output is written."""


@contextmanager
def own_output(directory: Path) -> Iterator[TextIO]:
    """Redirect everything that this process, the JVM and the workers print to a log file; yield the original standard error."""
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    own = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8")
    noise = RotatingFileHandler(
        logs / OUTPUT_LOG, maxBytes=OUTPUT_LOG_BYTES_MAX, backupCount=1, encoding="utf-8", errors="replace"
    )
    noise.terminator = ""
    read, write = os.pipe()
    os.dup2(write, 1)
    os.dup2(write, 2)
    os.close(write)
    drained = threading.Thread(target=_drain, args=(read, noise), daemon=True)
    drained.start()
    try:
        yield own
    finally:
        own.flush()
        os.dup2(own.fileno(), 1)
        os.dup2(own.fileno(), 2)
        drained.join(LOG_DRAIN_S_MAX)


def _drain(pipe: int, log: RotatingFileHandler) -> None:
    """Copy a pipe to a log until nobody holds the pipe's other end."""
    with os.fdopen(pipe, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            log.emit(logging.makeLogRecord({"msg": line}))
    log.close()


def logger(output: TextIO) -> Any:
    """Return the job's logger, which writes JSON lines with an ``event`` each."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(output),
    )
    return structlog.get_logger()
