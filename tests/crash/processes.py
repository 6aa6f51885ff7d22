# SPDX-License-Identifier: Apache-2.0
"""Identifies the job's processes, and kills them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import psutil

STAGES = ("decode", "lanes")


class Process(NamedTuple):
    """A live process."""

    pid: int
    parent: int
    session: int
    state: str
    command: str


def processes() -> Iterator[Process]:
    """Yield every live process; zombies count as dead."""
    for each in psutil.process_iter(["ppid", "status", "cmdline"]):
        with suppress(ProcessLookupError):
            if each.info["status"] not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
                command = " ".join(each.info["cmdline"] or ())
                yield Process(each.pid, each.info["ppid"], os.getsid(each.pid), each.info["status"], command)


def of_session(session: int) -> list[Process]:
    """Return the processes of a job: its driver starts a session, and all its descendants but the processes of lanes stay in it."""
    return [each for each in processes() if each.session == session]


def jvm_of(driver: int) -> int | None:
    """Return the JVM of a driver."""
    return next((each.pid for each in of_session(driver) if each.parent == driver and "java" in each.command), None)


DAEMONS = ("-m pyspark.daemon pyspark.worker", "-m streaming.worker_daemon pyspark.worker")
"""How the processes begin that fork workers; the module's name is in the JVM's command, too."""

FORKER = "validator.lanes.apart.process import main"
"""What the process's command has from which those of lanes are forked."""

PLANNER = "-m pyspark.sql.streaming.python_streaming_source_runner"
"""How the process begins that plans batches."""


def forkers_of(driver: int) -> list[int]:
    """Return the processes of a job that fork those of lanes with handlers."""
    return [each.pid for each in of_session(driver) if FORKER in each.command]


def lane_processes_of(driver: int) -> list[int]:
    """Return the processes of lanes with handlers; each has a separate session."""
    forkers = set(forkers_of(driver))
    return [each.pid for each in processes() if each.parent in forkers]


def daemons_of(driver: int, stage: str) -> list[int]:
    """Return the processes of a job that fork the workers of a stage."""
    return [pid for pid in _daemons(of_session(driver)) if _stage(pid) == stage]


def planners_of(driver: int) -> list[int]:
    """Return the process of a job that plans batches, if it runs."""
    return [each.pid for each in of_session(driver) if PLANNER in each.command]


def workers_of(driver: int, stage: str | None = None) -> list[int]:
    """Return the Python workers of a job, of one stage or all; their environment names the stage.

    A worker whose daemon was killed runs until Spark has not used it for a minute.
    """
    return workers_among(of_session(driver), stage)


def workers_among(found: list[Process], stage: str | None = None) -> list[int]:
    """Return the Python workers among processes that have the JVMs of their daemons with them."""
    daemons = _daemons(found)
    workers = [each.pid for each in found if _forks(each) and each.pid not in daemons]
    return [pid for pid in workers if stage is None or _stage(pid) == stage]


def workers_below(jvm: int) -> list[int]:
    """Return the Python workers of a JVM: the children of the daemons that it has started."""
    found = list(processes())
    daemons = {each.pid for each in found if each.parent == jvm and _forks(each)}
    return [each.pid for each in found if each.parent in daemons]


def _daemons(found: list[Process]) -> set[int]:
    """Return the daemons: children of the JVM. Their forked workers have the same command."""
    others = {each.pid for each in found if not _forks(each)}
    return {each.pid for each in found if _forks(each) and each.parent in others}


def _forks(process: Process) -> bool:
    return any(begin in process.command for begin in DAEMONS)


def _stage(pid: int) -> str | None:
    with suppress(psutil.Error):
        return psutil.Process(pid).environ().get("VALIDATOR_STAGE")
    return None


def send(number: signal.Signals, *pids: int | None) -> int:
    """Send a signal to the processes that still exist; return their number."""
    sent = 0
    for pid in pids:
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                sent += 1
    return sent
