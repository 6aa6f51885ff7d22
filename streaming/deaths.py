# SPDX-License-Identifier: Apache-2.0
"""Remembers which lanes killed their workers, so that such a lane is parked instead of ending the job."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Final, Protocol

from streaming.spark_internals import (
    EXECUTOR_LOST,
    OUTPUTS_LOST,
    TALKS_TO_PLANNER,
    TALKS_TO_WORKERS,
    WORKER_DIED,
    WORKER_LATE,
)
from streaming.workers import EXECUTES
from validator.lanes.parking import Suspect

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


class Failed(Protocol):
    """A failed batch: its reason in one line, and what Spark says of it."""

    error: str


class Deaths:
    """Counts the deaths of workers by lane and point, as their last words name them (`workers.note_point`).

    The counts last as long as the driver: a lane that has not been parked when it ends is tried again as often by the next one.
    """

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._reasons: dict[tuple[str, str], str] = {}

    def count(self, failure: Failed) -> str | None:
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
