# SPDX-License-Identifier: Apache-2.0
"""The processes of a running job, by kind, and the processor time that each kind has used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain

import psutil

from streaming.stages import STAGE_VARIABLE

JVM = "JVM"


def family(pid: int) -> Iterator[psutil.Process]:
    """Yield a process and all its descendants."""
    try:
        driver = psutil.Process(pid)
        yield from chain([driver], driver.children(recursive=True))
    except psutil.NoSuchProcess:
        return


def kind_of(process: psutil.Process, driver: int) -> str:
    """Return what a process of the job does: the driver, the JVM, a stage's workers, or the daemons that fork them."""
    name = process.name()
    if "java" in name:
        return JVM
    stage = process.environ().get(STAGE_VARIABLE)
    if stage is None:
        return "driver" if process.pid == driver else "others"
    parent = process.parent()
    is_worker = parent is not None and parent.environ().get(STAGE_VARIABLE) == stage
    return f"{stage} workers" if is_worker else "daemons"


def processor_seconds(pid: int) -> dict[str, float]:
    """Return the processor time in seconds that a job's living processes have used, user and system together, by kind."""
    sums: dict[str, float] = defaultdict(float)
    for process in family(pid):
        try:
            used = process.cpu_times()
            sums[kind_of(process, pid)] += used.user + used.system
        except psutil.Error:
            continue
    return dict(sums)


def resident_mib(pid: int) -> dict[str, float]:
    """Return the memory in MiB of a job's living processes by kind, with the share of each in what several have mapped; Linux only."""
    sums: dict[str, float] = defaultdict(float)
    for process in family(pid):
        try:
            sums[kind_of(process, pid)] += process.memory_full_info().pss / 1024**2
        except psutil.Error:
            continue
    return dict(sums)


def used_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the processor time that was used between two measurements."""
    return {kind: seconds - before.get(kind, 0.0) for kind, seconds in after.items()}
