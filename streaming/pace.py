# SPDX-License-Identifier: Apache-2.0
"""How much of Kafka a process holds at once, and what happens if its memory does not suffice.

Kafka's clients bound what they fetch in compressed bytes, and what they hand over in records: as complete values, of which a task holds
twice as many for a moment. A value may be a thousand times as large as its compressed form, so no number of records is both quick for
small ones and safe for large ones. The job begins with a quick pace. In a local one that means that its workers read
(`streaming.range_source`), whose client unpacks whole batches of a producer at once. If a batch fails there again and again, or Spark's JVM
runs out of memory, the job starts another JVM that reads by itself, or less at a time, and repeats the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Pace:
    """``poll_records`` are handed over at once; ``alone`` if one task runs at a time, which is so in local mode only.

    With ``ahead``, workers read Kafka, also ahead.
    """

    poll_records: int
    alone: bool = False
    ahead: bool = False


AHEAD: Final = Pace(1_000, ahead=True)
"""In a local job: what a batch holds is read while the batch before is executed."""

QUICK: Final = Pace(500)
"""Kafka's default. A record costs 13 us less than with `STEADY`, in Spark's JVM and the broker together: Spark asks for a partition's ends
after each poll."""

STEADY: Final = Pace(64)
"""1 GiB for each task that reads records of `RECORD_BYTES_MAX`."""

SINGLE: Final = Pace(1, alone=True)
"""Twice the largest value. A record costs a round trip, so the job goes back to `STEADY` after a batch."""

_NEXT: Final = {AHEAD: QUICK, QUICK: STEADY, STEADY: SINGLE}

AHEAD_FAILURES_MAX: Final = 3
"""Failures to read one batch after which Spark reads instead of workers. A person or the system may kill a worker once or twice."""

OUT_OF_MEMORY: Final = "Spark's JVM ran out of memory: raise [job] driver_memory (docs/operations.md, Parked lanes)"


class OutOfMemory(Exception):
    """Spark's JVM has run out of memory."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_MEMORY)


class ReadAheadFails(Exception):
    """A batch fails again and again while workers read Kafka."""


class BatchPassed(Exception):
    """The batch is done for which the job had slowed down."""


def run_at_paces(run: Callable[[Pace], int], log: Any, pace: Pace = QUICK) -> int:
    """Run the job, each time in another session, until it ends by itself, and return its exit code; ``pace`` is the first one.

    ``run`` raises `ReadAheadFails`, `OutOfMemory`, and `BatchPassed` after a batch at the pace `SINGLE`. Raises `OutOfMemory` if that pace
    is too quick, too.
    """
    while True:
        try:
            return run(pace)
        except (ReadAheadFails, OutOfMemory) as error:
            if pace not in _NEXT:
                raise
            pace = _NEXT[pace]
            log.warning("restarting", reason=f"{error}; Spark reads {pace.poll_records} records at a time")
        except BatchPassed:
            pace = STEADY
            log.info("restarting", reason=f"the batch is done; reading {pace.poll_records} records at a time")


def passing(pace: Pace, commit: Callable[[str], None]) -> Callable[[str], None]:
    """Return what gets the end of each batch's inputs; it raises `BatchPassed` after the first at the pace `SINGLE`."""

    def committed(end: str) -> None:
        commit(end)
        if pace is SINGLE:
            raise BatchPassed

    return committed
