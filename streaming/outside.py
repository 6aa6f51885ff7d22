# SPDX-License-Identifier: Apache-2.0
"""What comes from outside: requests to stop, and failures that pass, of Kafka, a name service, the job's disk, or a busy machine."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streaming.reasons import lost_state
from streaming.spark_internals import WORKER_LATE
from validator.job.schema_ids import SchemaIds, schema_ids
from validator.kafka.calls import KAFKA_GONE
from validator.waiting import Patience, Pause, wait_out

if TYPE_CHECKING:
    from validator.config import Config
    from validator.job.schema_ids import RecordSchemas

T = TypeVar("T")

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

_TRACEBACK: Final = "Traceback (most recent call last)"


def unwritable(error: str) -> str | None:
    """Return in one line that the job's folder cannot be written, if the text of an exception says so.

    What a worker raised counts more than what Spark adds to it.
    """
    if _TRACEBACK in error:
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
    return _TRACEBACK not in error and WORKER_LATE in error


class StopSignal:
    """Remembers that a signal asked the process to stop."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._request)

    def _request(self, *_: object) -> None:
        self.requested = True


class Outages:
    """Waits for what is outside, and says so in the job's log: an event ``waiting`` for each pause."""

    def __init__(self, patience: Patience, stop: StopSignal, log: Any) -> None:
        self._patience = patience
        self.stop, self.log = stop, log

    def wait(self, reason: str) -> None:
        """Wait once, until a request to stop at most. Raises `GivenUp`."""
        pause = self._patience.pause(reason)
        self._say(pause)
        self.sleep(pause.seconds)

    def sleep(self, seconds: float) -> None:
        """Sleep, until a request to stop at most."""
        self._patience.sleep(seconds, self._stopping)

    def wait_out(self, attempt: Callable[[], T]) -> T:
        """Return what ``attempt`` returns; raises as `validator.waiting.wait_out` does."""
        return wait_out(attempt, self._patience, self._say, self._stopping)

    def registry_ids(self, config: Config, records: Iterable[RecordSchemas]) -> SchemaIds:
        """Return what the schema registry knows of some records, and say how far it is: an event ``asking``. Raises as `wait_out`."""

        def say(asked: int, of: int) -> None:
            self.log.info("asking", registry=config.schema_registry.url, versions=asked, of=of)

        records = list(records)
        return self.wait_out(lambda: schema_ids(config, records, say))

    def ended(self) -> None:
        """Let the next failure begin another outage."""
        self._patience.ended()

    def _say(self, pause: Pause) -> None:
        self.log.warning("waiting", **pause.event())

    def _stopping(self) -> bool:
        return self.stop.requested
