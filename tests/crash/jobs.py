# SPDX-License-Identifier: Apache-2.0
"""The job of a plugin, its workers and its broker, killed while records flow: what the episodes of all jobs share."""

from __future__ import annotations

import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar, Final, Generic, TypeVar

from tests.crash.injected import arm, injected
from tests.crash.processes import jvm_of, of_session, send, workers_of
from tests.crash.world import PATIENCE_S, Failure, World
from validator.config import Config
from validator.job.installed import of_job
from validator.job.process import JobProcess

R = TypeVar("R")

KILLS: Final = (
    "worker condense", "worker keyed", "broker", "driver", "jvm", "machine",
    "worker@commit-before", "worker@commit-after", "broker@commit-during", "machine@commit-before", "driver@commit-after",
)  # fmt: skip
"""At a random moment, or at a named step of the sink."""


class JobEpisode(ABC, Generic[R]):
    """One run of a job on the world's broker, with its own topics. ``R`` is what is fed one after the other."""

    job_name: ClassVar[str]

    def __init__(self, world: World, name: str) -> None:
        self._world, self._random = world, Random(world.random.random())
        self.folder = world.folder / name
        self.prefix = f"{name}."
        self.points = self.folder / "points"
        (self.points / "seen").mkdir(parents=True)
        self.config = self._configuration()
        self.ends: list[int] = []
        self._expects_end = False
        self._process: JobProcess | None = None

    @abstractmethod
    def _configuration(self) -> Config:
        """Return the configuration of the job."""

    @abstractmethod
    def _feed(self, part: Sequence[R]) -> None:
        """Write records."""

    @abstractmethod
    def _has_taken(self) -> bool:
        """Whether the job has taken everything written."""

    @abstractmethod
    def _settle(self) -> None:
        """Wait until everything written is taken, and compare the output."""

    def _look(self) -> None:
        """Look at what runs next to the job."""

    def _survive(self, kills: Sequence[str], history: Sequence[R]) -> int:
        """Feed a history, and kill everything in turn; return how many processes were killed. The job ends before this returns."""
        size = -(-len(history) // (len(kills) + 2))
        slices = [history[at : at + size] for at in range(0, len(history), size)]
        signals = 0
        self._start()
        self._feed(slices[0])
        self._settle()
        for kill, part in zip(kills, slices[1:], strict=False):
            signals += self._kill(kill, part)
            self._settle()
        self._feed([each for part in slices[len(kills) + 1 :] for each in part])
        self._settle()
        return signals

    # --- the job ---

    def _start(self) -> None:
        log = (self.folder / "job.log").open("a", encoding="utf-8")

        def on_event(event: dict[str, Any]) -> None:
            log.write(json.dumps({"at": round(time.time(), 2)} | event) + "\n")
            log.flush()

        self._process = JobProcess(of_job(self.config, self.job_name), on_event, plugin=self.job_name)
        with injected(self.points):
            self._process.start()
        self._world.jobs.append(self._process)

    def _stop(self) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        process.stop()
        if code := process.wait():
            raise Failure(f"asked to stop, the job ended with code {code}")
        assert process.pid is not None
        self._world.ended(process.pid)
        self._world.check_deaths()

    def _supervise(self) -> None:
        self._world.supervise()
        self._look()
        process = self._process
        if process is not None and process.ended():
            assert process.pid is not None
            self._world.ended(process.pid)
            code = process.wait()
            self.ends.append(code)
            if not self._expects_end:
                raise Failure(f"the job did not outlive it: code {code}, {process.failure}")
            self._start()

    # --- feeding and killing ---

    def _kill(self, kill: str, part: Sequence[R]) -> int:
        victim, _, step = kill.partition("@")
        self._expects_end = victim in ("driver", "jvm", "machine")
        before = len(self.ends)
        if step:
            signals = self._at_step(victim, step, part)
        elif victim.startswith("worker "):
            signals = self._strike_worker(victim.removeprefix("worker "), part)
        else:
            self._feed(part[: len(part) // 2])
            until = time.monotonic() + self._random.uniform(0, 2.0)
            self._wait(lambda: time.monotonic() > until, "a random moment")
            signals = self._strike(victim)
            self._feed(part[len(part) // 2 :])
        if self._expects_end:
            self._wait(lambda: len(self.ends) > before, "the job ends")
        return signals

    def _at_step(self, victim: str, step: str, part: Sequence[R]) -> int:
        victims = ("driver", "jvm", "worker") if victim == "machine" else (victim,)
        identity = f"{victim}-{step}"
        arm(self.points, self._world.brokers.playing(), step, victims, identity)
        self._feed(part)
        fired = self.points / f"fired-{identity}"
        self._wait(fired.exists, f"step {step} is reached")
        return len(victims)

    def _strike_worker(self, stage: str, part: Sequence[R]) -> int:
        """Kill the workers of a stage as soon as there are any: Spark ends those that have had no work for a minute."""
        for at, record in enumerate(part):
            self._feed([record])
            self._wait(lambda: bool(self._workers(stage)) or self._has_taken(), "a worker takes a record")
            if signals := send(signal.SIGKILL, *self._workers(stage)):
                self._feed(part[at + 1 :])
                return signals
        raise Failure(f"no {stage} worker to kill")

    def _workers(self, stage: str) -> list[int]:
        pid = None if self._process is None else self._process.pid
        return [] if pid is None else workers_of(pid, stage)

    def _strike(self, victim: str) -> int:
        assert self._process is not None
        pid = self._process.pid
        assert pid is not None
        match victim:
            case "driver":
                return send(signal.SIGKILL, pid)
            case "jvm":
                return send(signal.SIGKILL, jvm_of(pid))
            case "broker":
                return send(signal.SIGKILL, self._world.brokers.playing().status().pid)
        return send(signal.SIGKILL, *(each.pid for each in of_session(pid)))

    def _wait(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"waited {PATIENCE_S:.0f} s in vain: {what}")
            self._supervise()
            time.sleep(0.05)
