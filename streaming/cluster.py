# SPDX-License-Identifier: Apache-2.0
"""What is different on a cluster: what its master needs before the job can start there, and the executors that the job gains and loses.

A standalone master that was started again without its recovery directory knows no application of the one before: the workers end the job's
executors. Spark's driver does not register again, so the job would wait forever. It ends instead, and the next start registers.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from streaming.batch_watch import LOOK_S, BatchWatch, beat_next_to, signs_of
from streaming.options import is_local
from streaming.spark_internals import PROVES_SECRET, STOPPED_START, executors_of
from validator.errors import GivenUp, UserError
from validator.job.spark_master import SCHEME, is_standalone
from validator.lanes.configured import job_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from validator.config import Config


NONE_SAID_S: Final = 30.0
"""Seconds without an executor after which the job says so: a cluster starts another one in less. Each further line takes twice as long."""

NONE_S_MAX: Final = 120.0
"""Seconds without an executor, after there was one, after which a job on a standalone cluster ends."""


class Watch(Protocol):
    """Something that is looked at while the query runs."""

    def look(self) -> None:
        """Raise if the query does not continue by itself."""


class ExecutorWatch:
    """Looks at the executors of a session, whichever query it runs. ``executors`` returns the machine of each by its name.

    The time in which this process itself was stopped does not count.
    """

    def __init__(
        self,
        master: str,
        executors: Callable[[], Mapping[str, str]],
        give_up_after_s: float,
        log: Any,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        *,
        may_have_none: bool = False,
    ) -> None:
        """With ``may_have_none``, Spark itself gives executors back while there is nothing to do."""
        self._master, self._executors, self._log = master, executors, log
        self._may_have_none = may_have_none
        self._give_up_after_s = give_up_after_s
        self._clock, self._wall_clock = clock, wall_clock
        self._known: Mapping[str, str] = {}
        self._had_one = False
        self._looked_s = clock()
        self._without_s = 0.0
        self._since = wall_clock()
        self._said_s = NONE_SAID_S

    @property
    def lacks_executors(self) -> bool:
        """Whether there was none at the last look, although there should be."""
        return not self._known and not self._may_have_none

    def look(self) -> None:
        """Say what has changed. Raises `GivenUp` if there has been no executor for too long. Looks every `LOOK_S` at most."""
        now = self._clock()
        passed_s = now - self._looked_s
        if passed_s < LOOK_S:
            return
        self._looked_s = now
        before, self._known = self._known, dict(self._executors())
        self._note_changes(before)
        self._had_one = self._had_one or bool(self._known)
        if not self.lacks_executors:
            return
        if before:
            self._without_s, self._since, self._said_s = 0.0, self._wall_clock(), NONE_SAID_S
        self._without_s += min(passed_s, 2 * LOOK_S)
        self._wait()

    def _note_changes(self, before: Mapping[str, str]) -> None:
        for name in before.keys() - self._known.keys():
            self._log.warning("executor lost", host=before[name], executors=len(self._known))
        for name in self._known.keys() - before.keys():
            self._log.info("executor added", host=self._known[name], executors=len(self._known))

    def _wait(self) -> None:
        since = datetime.fromtimestamp(self._since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        reason = f"Spark's master at {self._master} gives the job no executor since {since}"
        ends = self._had_one and is_standalone(self._master)
        limit_s = min(NONE_S_MAX, self._give_up_after_s) if ends else self._give_up_after_s
        if self._without_s >= limit_s:
            why = (
                ": it has no worker for the job, or was started again and does not know it; the next start registers the job"
                if ends
                else f"; gave up after {self._without_s:.0f} s, [job] give_up_after is {self._give_up_after_s:g}"
            )
            raise GivenUp(reason + why)
        if self._without_s >= self._said_s:
            self._said_s = 2 * self._without_s
            self._log.warning(
                "waiting",
                reason=reason,
                seconds=LOOK_S,
                waited=round(self._without_s, 1),
                give_up_after=limit_s,
                master=self._master,
                since=self._since,
            )


class _OnCluster:
    """Looks at the executors, and unless they are lacking at the batch, which makes no progress without them."""

    def __init__(self, executors: ExecutorWatch, batch: BatchWatch) -> None:
        self._executors, self._batch = executors, batch

    def look(self) -> None:
        self._executors.look()
        if not self._executors.lacks_executors:
            self._batch.look()


def watches(spark: SparkSession, config: Config, log: Any) -> Callable[[StreamingQuery], Watch]:
    """Return what is to be looked at while a query of a session runs."""

    def batch(query: StreamingQuery) -> BatchWatch:
        beat = beat_next_to(job_directory(config) / "checkpoint")
        return BatchWatch(config.job.stalled_after, signs_of(spark, query, beat))

    master = config.job.master
    if is_local(master):
        return batch
    dynamic = spark.sparkContext.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
    executors = ExecutorWatch(master, lambda: executors_of(spark), config.job.give_up_after, log, may_have_none=dynamic)
    return lambda query: _OnCluster(executors, batch(query))


PORT: Final = 7077
"""The port of a master whose address has none."""

CONNECT_S_MAX: Final = 5.0
"""Seconds in which a master has to accept a connection."""

_ATTEMPTS: Final = 2
"""Attempts to prove the secret that a master has to refuse: it may end in the middle of one."""


def addresses(master: str) -> list[tuple[str, int]]:
    """Return the hosts and ports of an address, which may name several masters."""
    found = []
    for each in master.removeprefix(SCHEME).split(","):
        host, colon, port = each.rpartition(":")
        if not colon or not port.isdigit():
            host, port = each, str(PORT)
        found.append((host.strip("[]"), int(port)))
    return found


def unreachable(master: str) -> str | None:
    """Return in one line why no master of an address accepts a connection, None if one does or if it is no standalone cluster."""
    if not is_standalone(master):
        return None
    why = ""
    for address in addresses(master):
        try:
            socket.create_connection(address, CONNECT_S_MAX).close()
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
        else:
            return None
    return f"Spark's master at {master} cannot be reached: {why}: check [job] master, and that the master runs"


def refusal(master: str, error: str, log: str) -> str | None:
    """Return in one line why no master has accepted the job, by what Spark has raised; ``log`` is its log of this start.

    Returns None if the start failed for another reason. Raises `UserError` if the secret is wrong, or the port belongs to something else.
    """
    if not is_standalone(master) or STOPPED_START not in error:
        return None
    if log.count(PROVES_SECRET) >= _ATTEMPTS:
        raise UserError(
            f"[job] master {master}: expected a master with the spark.authenticate.secret of the job's spark-defaults.conf, found one that "
            "refuses it: compare it with the master's --properties-file, and check that the port is the master's own, not its web page's"
        )
    return f"Spark's master at {master} does not answer the job: check that it runs, and is no standby of another one"


def log_after(log: Path, size: int) -> str:
    """Return what Spark's log has had added since it had a size."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(size if log.stat().st_size >= size else 0)
        return file.read().decode(errors="replace")
    return ""
