# SPDX-License-Identifier: Apache-2.0
"""The stages of queries: each has separate Python workers, which start while the driver still plans the query.

Otherwise the first batch would start them one after the other, and each would import pandas, Arrow and its stage while the machine's other
cores have nothing to do.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streaming.spark_internals import plan, prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


T = TypeVar("T")

STAGE_VARIABLE: Final = "VALIDATOR_STAGE"

DECODE, LANES, CONDENSE, KEYED = "decode", "lanes", "condense", "keyed"

KEPT: Final = (DECODE, LANES, KEYED)
"""Stages whose workers keep something for the next task of the same number: live lanes, inputs that are read ahead."""

KEPT_WORKERS_MAX: Final = 16
"""Workers of such a stage; tasks whose numbers are equal modulo this have one together, and wait for each other."""

_FIRST: Final = ("pandas", "pyspark.sql.pandas.serializers")
IMPORTS: Final = {
    DECODE: (*_FIRST, "streaming.reading_process", "streaming.decode_stage"),
    LANES: (*_FIRST, "streaming.lane_operator"),
    CONDENSE: (*_FIRST, "streaming.reading_process", "streaming.keyed_job"),
    KEYED: (*_FIRST, "streaming.keyed_job"),
}
"""By stage, what its workers import."""

STARTED_WORKERS_MAX: Final = 4
"""Workers of a stage that are started before they are needed: a small batch has a task for each of four topics."""


def with_own_workers(spark: SparkSession, stage: str, planned: Callable[[], T]) -> T:
    """Plan a stage whose Python workers no other stage uses.

    Spark pools idle workers by environment and hands out any worker of a pool. A separate environment returns to the lane stage the worker
    of its previous batch, which holds the live lanes. If there are several, `streaming.worker_daemon` finds the right one.
    """
    environment = spark.sparkContext.environment
    environment[STAGE_VARIABLE] = stage
    try:
        return planned()
    finally:
        del environment[STAGE_VARIABLE]


def start_workers(spark: SparkSession, master: str, stages: tuple[str, ...], state_partitions: int) -> None:
    """Begin to start the workers of a query's stages, the last of which has the state; on one machine only.

    What fails is left to the first batch, which says so; so is the end of Spark's JVM.
    """
    cores = min(local_cores(master), STARTED_WORKERS_MAX)
    if not cores:
        return
    with suppress(Exception):
        for at, stage in enumerate(stages, start=1):
            count = min(cores, state_partitions) if at == len(stages) else cores
            tasks = spark.sparkContext.parallelize(range(count), count).mapPartitions(partial(_import, IMPORTS[stage]))
            # the environment is part of what this gives, so the threads need none
            begun = with_own_workers(spark, stage, lambda tasks=tasks: prepared(tasks))  # type: ignore[misc]
            threading.Thread(target=_run, args=(begun,), name=f"workers of {stage}", daemon=True).start()


def start_planners(spark: SparkSession, stage: str) -> None:
    """Begin to start the processes in which Spark asks a Python data source for its schema and its plan: the first query finds them.

    What fails is left to that query, as in `start_workers`.
    """
    from streaming.range_source import NothingSource  # slow to import

    with suppress(Exception):
        # the environment is part of what this gives, so the thread needs none
        with_own_workers(spark, stage, lambda: spark.dataSource.register(NothingSource))
        threading.Thread(target=_plan, args=(spark, NothingSource.name()), name="starts planners", daemon=True).start()


def _plan(spark: SparkSession, source: str) -> None:
    with suppress(Exception):  # whoever uses a source says so
        plan(spark, source)


def local_cores(master: str) -> int:
    """Return the tasks that run at once in a local job, 0 on a cluster."""
    if master == "local":
        return 1
    threads = re.fullmatch(r"local\[(\d+|\*)(?:,.*)?\]", master)
    if threads is None:
        return 0
    return (os.cpu_count() or 1) if threads[1] == "*" else int(threads[1])


def _import(modules: tuple[str, ...], rows: Iterator[Any]) -> Iterator[Any]:
    for module in modules:
        import_module(module)
    return rows


def _run(begun: Any) -> None:
    with suppress(Exception):
        begun.count()


# --- which lanes share a state partition, and with it a worker: Spark divides them by a hash of their names ----------------------------

_SEED: Final = 42
_U32: Final = 0xFFFF_FFFF

TRIED: Final = 8
"""Numbers of partitions up to this many times the configured one are tried for a better division."""


def partition_of(lane: str, partitions: int) -> int:
    """Return the state partition of a lane. Source: Spark's ``HashPartitioning``, MurmurHash3 (32 bits) of the key with seed 42."""
    return _hash(lane.encode()) % partitions


def divided(lanes: Collection[str], partitions: int) -> dict[int, list[str]]:
    """Return the lanes by partition, both ascending; partitions without a lane are left out."""
    found: dict[int, list[str]] = {}
    for lane in sorted(lanes):
        found.setdefault(partition_of(lane, partitions), []).append(lane)
    return dict(sorted(found.items()))


def better_number(lanes: Collection[str], partitions: int) -> int | None:
    """Return the least number of partitions of which none has more lanes than if ``partitions`` were even.

    None if there is none, or if lanes use more than half of the partitions that they could use.
    """
    if not lanes or 2 * len(divided(lanes, partitions)) > min(len(lanes), partitions):
        return None
    even = -(-len(lanes) // partitions)
    larger = range(partitions + 1, TRIED * partitions + 1)
    return next((number for number in larger if _largest(lanes, number) <= even), None)


def note_division(lanes: Collection[str], partitions: int, log: Any) -> None:
    """Log that lanes share partitions, and with them workers, while others have none."""
    if (better := better_number(lanes, partitions)) is not None:
        together = list(divided(lanes, partitions).values())
        log.warning("uneven", state_partitions=partitions, lanes=together, better=better)


def _largest(lanes: Collection[str], partitions: int) -> int:
    return max(map(len, divided(lanes, partitions).values()), default=0)


def _hash(data: bytes) -> int:
    """Spark hashes the bytes after the last whole word one by one, as signed numbers."""
    whole = len(data) & ~3
    found = _SEED
    for at in range(0, whole, 4):
        found = _mixed(found, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        found = _mixed(found, byte - 256 if byte > 127 else byte)
    found ^= len(data)
    found = ((found ^ found >> 16) * 0x85EB_CA6B) & _U32
    found = ((found ^ found >> 13) * 0xC2B2_AE35) & _U32
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found


def _mixed(found: int, word: int) -> int:
    word = (word * 0xCC9E_2D51) & _U32
    word = ((word << 15 | word >> 17) * 0x1B87_3593) & _U32
    found ^= word
    return ((found << 13 | found >> 19) * 5 + 0xE654_6B64) & _U32
