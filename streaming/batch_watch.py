# SPDX-License-Identifier: Apache-2.0
"""Notices a batch that has stopped, and a clock that was set back, which nothing else reports.

If a thread of Spark's dies, say because the disk was full while it wrote the state, the worker that waits for its answer waits forever. A
batch may be long, so what counts is whether anything moves: whether Spark has counted rows, bytes or tasks since the last look, which its
executors report every 10 s, or a lane has executed a block (`Beat`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.spark_internals import counts_of

LOOK_S: Final = 5.0
"""Seconds between two looks at a batch, and at least between two signs of a worker."""

CLOCK_BACK_S_MAX: Final = 30.0
"""Seconds by which the clock may be set back unnoticed. Between two batches Spark waits for a time of day, so that a trigger's interval
becomes longer by as much."""


class Stalled(Exception):
    """The query does not continue by itself."""


class BatchWatch:
    """Looks at a query's signs of life. ``signs`` returns None between batches, else a value that changes with any progress.

    Time in which this process itself was stopped does not count: the batch may have been stopped with it.
    """

    def __init__(
        self,
        stalled_after_s: float,
        signs: Callable[[], object],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._stalled_after_s = stalled_after_s
        self._signs, self._clock, self._wall_clock = signs, clock, wall_clock
        self._last: object = None
        self._still_s = 0.0
        self._looked_s = clock()
        self._ahead_s = wall_clock() - clock()

    def look(self) -> None:
        """Raise `Stalled` if the batch has made no progress for too long, or if the clock was set back. Looks every `LOOK_S` at most."""
        now = self._clock()
        passed_s = now - self._looked_s
        if passed_s < LOOK_S:
            return
        self._looked_s = now
        self._check_clock(now)
        signs = self._signs()
        if signs is None or signs != self._last:
            self._last, self._still_s = signs, 0.0
            return
        self._still_s += min(passed_s, 2 * LOOK_S)
        if self._still_s >= self._stalled_after_s:
            raise Stalled(f"the batch has made no progress for {self._still_s:.0f} s")

    def _check_clock(self, now: float) -> None:
        ahead_s = self._wall_clock() - now
        back_s, self._ahead_s = self._ahead_s - ahead_s, ahead_s
        if back_s > CLOCK_BACK_S_MAX:
            raise Stalled(f"the clock was set back by {back_s:.0f} s")


@dataclass(frozen=True, slots=True)
class Beat:
    """A file whose time of change says that a worker makes progress. Where the job's folder is out of a worker's reach, nothing says so."""

    path: str

    def create(self) -> None:
        """Create the file, as the driver does before a query."""
        with suppress(OSError):
            Path(self.path).touch()

    def beat(self) -> None:
        """Change the file's time unless that was done a moment ago. This takes no space on a disk."""
        global _beaten_s
        now = time.monotonic()
        if now - _beaten_s >= LOOK_S / 2:
            _beaten_s = now
            with suppress(OSError):
                Path(self.path).touch()

    def seen(self) -> int | None:
        """Return the time of change as a number that means nothing by itself."""
        try:
            return Path(self.path).stat().st_mtime_ns
        except OSError:
            return None


_beaten_s = float("-inf")


def beat_next_to(checkpoint: Path | str) -> Beat:
    return Beat(str(Path(checkpoint).parent / "progress"))


def signs_of(spark: SparkSession, query: StreamingQuery, beat: Beat) -> Callable[[], object]:
    """Return what a `BatchWatch` looks at."""

    def signs() -> object:
        status = query.status
        if not status["isTriggerActive"]:
            return None
        progress = query.lastProgress
        batch = -1 if progress is None else progress.batchId
        return batch, status["message"], beat.seen(), _tasks(spark), counts_of(spark)

    return signs


def _tasks(spark: SparkSession) -> tuple[object, ...]:
    """Return the stages that run, with how many of their tasks run and are done."""
    tracker = spark.sparkContext.statusTracker()
    found = [(stage, tracker.getStageInfo(stage)) for stage in sorted(tracker.getActiveStageIds())]
    return tuple((stage, info and (info.numActiveTasks, info.numCompletedTasks)) for stage, info in found)
