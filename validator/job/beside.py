# SPDX-License-Identifier: Apache-2.0
"""Runs the jobs of plugins that have a table `[jobs.<name>]` next to the lanes' job, each as a process with its own checkpoint.

The end of such a job never ends the lanes: it is logged, and the job is started again if `--restart` asks for it.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from validator import exit_codes
from validator.errors import UserError
from validator.job.installed import configured_job, create_job_topics, of_job
from validator.job.process import JobProcess
from validator.waiting import RESTART

if TYPE_CHECKING:
    from collections.abc import Callable

    from validator.config import Config
    from validator.job.process import Event
    from validator.plugin.job_api import Job


class JobsBeside:
    """Jobs of plugins, by name. Their events have the key ``job``; ``job ended`` has its exit code and reason."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self._on_event = on_event
        self._running: dict[str, JobProcess] = {}
        self._failures: dict[str, int] = {}
        """Restarts in a row without a completed batch."""
        self._due_s: dict[str, float] = {}
        """When a job is started again."""

    def check(self, config: Config) -> None:
        """Check the jobs that are to be started. Raises `UserError` as their plugins do for their tables, and as `JobProcess.check`."""
        for job in _jobs(config):
            if job.name not in self._running:
                self._process(config, job.name).check()

    def start(self, config: Config) -> None:
        """Create the missing topics of the jobs, and start those that do not run. Kafka must answer. Raises `UserError`, `Unavailable`."""
        for job in _jobs(config):
            if job.name not in self._running:
                create_job_topics(config, job)
                self._begin(config, job.name)

    def look(self, config: Config, restarts_max: int) -> None:
        """Say which jobs have ended, and start those again that were killed or stopped by themselves, after a pause."""
        for name, process in list(self._running.items()):
            if name in self._due_s:
                if time.monotonic() >= self._due_s[name]:
                    del self._due_s[name]
                    self._begin(config, name)
            elif process.ended() and name in self._failures:
                self._ended(name, process, restarts_max)

    def stop(self) -> None:
        """Stop all jobs after their batches, at the same time."""
        with ThreadPoolExecutor(max(1, len(self._running))) as stopping:
            list(stopping.map(JobProcess.stop, self._running.values()))

    def kill(self) -> None:
        """Kill all jobs at once."""
        for process in self._running.values():
            process.kill()

    def _process(self, config: Config, name: str) -> JobProcess:
        return JobProcess(of_job(config, name), lambda event: self._on_event({**event, "job": name}), plugin=name)

    def _begin(self, config: Config, name: str) -> None:
        self._running[name] = self._process(config, name)
        self._failures.setdefault(name, 0)
        try:
            self._running[name].start()
        except UserError as error:
            self._say_ended(name, exit_codes.USER_ERROR, str(error))

    def _ended(self, name: str, process: JobProcess, restarts_max: int) -> None:
        try:
            code, reason = process.wait(), process.failure
        except UserError as error:
            code, reason = exit_codes.USER_ERROR, str(error)
        failures = 1 if process.batches else self._failures[name] + 1
        if code != exit_codes.STOPPED or failures > restarts_max:
            self._say_ended(name, code, reason)
            return
        self._failures[name] = failures
        pause_s = RESTART.after(failures)
        self._due_s[name] = time.monotonic() + pause_s
        restart = {"event": "restart", "attempt": failures, "attempts_max": restarts_max, "seconds": pause_s}
        self._on_event({**restart, "job": name})

    def _say_ended(self, name: str, code: int, reason: str | None) -> None:
        """Say that a job has ended and is not started again."""
        del self._failures[name]
        self._on_event({"event": "job ended", "job": name, "exit_code": code, "reason": reason})


def _jobs(config: Config) -> list[Job]:
    """Return the configured jobs that no separate command runs, by name. Raises `UserError`."""
    jobs = (configured_job(config, name) for name in sorted(config.jobs))
    return [job for job in jobs if getattr(job, "command", None) is None]
