# SPDX-License-Identifier: Apache-2.0
"""Carries out a schedule: kill, wait for recovery, compare, next."""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.crash.comparison import Tally
from tests.crash.episodes import Episodes
from tests.crash.inject.crash_failpoints import STEPS
from tests.crash.processes import (
    STAGES,
    daemons_of,
    forkers_of,
    jvm_of,
    lane_processes_of,
    of_session,
    planners_of,
    send,
    workers_among,
    workers_of,
)
from tests.crash.report import Done, Report
from tests.crash.schedule import LOGGED, Kill
from tests.crash.world import PATIENCE_S, SLOWNESS, Failure, World
from validator import exit_codes

SEGMENTS_MAX = 24
"""Segments to feed before an armed step must have been reached."""

STUCK_S_MAX = 1_800.0 * SLOWNESS
"""Seconds after which a kill counts as stuck; the longest episode takes some minutes on a busy machine."""

FAILURES_MAX = 20
"""Failures after which a run that continues after each gives up."""

VICTIMS = {"machine": ("driver", "jvm", "worker")}

JVM_DIED = "Spark's JVM was killed"

SURVIVES = ("worker", "lane-process", "forker", "planner", "broker")
"""Victims whose death a job survives without help."""

ENDS = ("driver", "jvm", "machine")
"""Victims whose death ends the job."""

FILES = {
    "offsets-logged": ("offsets", ""),
    "state-written": ("state/0/0", ".changelog"),
    "commit-logged": ("commits", ""),
}
"""Where the checkpoint shows Spark's own steps, and the suffix of such a file."""


def run(
    seed: int,
    schedule: Sequence[Kill],
    *,
    command: str,
    build: Path,
    lanes: int = 3,
    brokers: int = 1,
    on_cluster: bool = False,
    first: int = 0,
    world_number: int = 0,
    log: Callable[[str], None] = print,
) -> Report:
    """Carry out a schedule from kill ``first`` on, and return the report, which is also written after each kill.

    Worlds with the same seed and different numbers have different traffic. ``command`` is the one that repeats it from kill 0 on.
    """
    build = build.absolute()
    report = Report(seed, f"{command} --first {first}" if first else command, len(schedule) - first)
    started = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix=f"crash-{seed}-"))
    world = World(
        folder,
        seed + 10_000 * world_number,
        lanes=lanes,
        blocks=60 + 40 * len(schedule),
        blocks_per_segment=3,
        brokers_count=brokers,
        on_cluster=on_cluster,
    )
    report.tally = Tally()
    target = build / f"report-{seed}.json"

    def update() -> None:
        report.steps_seen = sorted(world.seen())
        report.job_starts = world.starts
        report.inputs = sum(world.delivered.values())
        report.seconds = round(time.monotonic() - started, 1)
        report.write(target)

    try:
        with world:
            report.tally = world.reader.tally
            runner = Runner(world, seed)
            try:
                runner.begin()
                log(f"first verdicts after {time.monotonic() - started:.0f} s; {len(schedule) - first} kills to come")
                for number in range(first, len(schedule)):
                    kill = schedule[number]
                    runner.now = f"kill {number}, {kill.name}"
                    with watchdog(world, runner.now):
                        report.done.append(done := runner.carry_out(number, kill))
                    report.steps_fired = sorted(runner.fired)
                    update()
                    ends = f"; ended: {'; '.join(done.ends)}" if done.ends else ""
                    log(
                        f"{number + 1:4}/{len(schedule)} {kill.name:44} {done.seconds:5.1f} s  "
                        f"{world.reader.tally.verdicts:6} verdicts{ends[:160]}{'; ' + done.note if done.note else ''}"
                    )
                runner.now = "the end"
                with watchdog(world, runner.now):
                    runner.finish()
            except (Failure, Exception) as error:  # noqa: BLE001 - any error is reported, and its evidence kept
                report.wrong = f"{runner.now}: {world.stuck or error or type(error).__name__}"
                report.evidence = str(build / f"evidence-{seed}")
                shutil.rmtree(report.evidence, ignore_errors=True)
                world.keep_evidence(Path(report.evidence))
                Path(report.evidence, "failure.txt").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        update()
        shutil.rmtree(folder, ignore_errors=True)
    return report


def run_on(seed: int, schedule: Sequence[Kill], *, build: Path, first: int = 0, **options: Any) -> Report:
    """Carry out a schedule as `run` does, but continue after a failure with the next kill, in a new world; return the report of all."""
    whole: Report | None = None
    for _ in range(FAILURES_MAX):
        started = first
        part = run(seed, schedule, build=build / f"from-{started}", first=started, **options)
        if whole is None:
            whole = part
        else:
            seconds, planned = whole.seconds + part.seconds, whole.planned
            whole.add(part)
            whole.seconds, whole.planned = seconds, planned
        whole.write(build / f"report-{seed}.json")
        first = started + len(part.done) + 1  # after the one that failed
        if not part.wrong or first >= len(schedule):
            break
    assert whole is not None
    return whole


@contextmanager
def watchdog(world: World, what: str) -> Iterator[None]:
    """End all jobs of a world if this takes too long, so that whatever waits for them returns, and its evidence is kept."""
    timer = threading.Timer(STUCK_S_MAX, lambda: world.give_up(f"{what} takes longer than {STUCK_S_MAX:.0f} s"))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Runner:
    """Carries out kills on a world, one after another."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.now = "the start"
        self.fired: set[str] = set()
        self._episodes = Episodes(world)
        self._seed = seed

    def begin(self) -> None:
        """Start the job and wait for its first verdicts."""
        world = self.world
        world.run_job()
        world.feed(world.traffic.segment())
        world.settle()

    def carry_out(self, number: int, kill: Kill) -> Done:
        """Make one kill, wait until all output has arrived, and compare."""
        world = self.world
        world.broker_pause_s = kill.broker_pause_s
        ends_before, started = len(world.endings), time.monotonic()
        done = Done(number, kill, 0.0, 1)
        if kill.victim == "episode":
            done.note, done.signals = self._episodes.carry_out(kill.step)
            self.fired.add(kill.step)
        elif kill.step == "random":
            self._at_random(kill)
        elif kill.step in LOGGED:
            self._when_logged(kill)
        else:
            done.signals = self._at_step(f"{number}-{kill.victim}-{kill.step}", kill)
        if kill.victim in ENDS:  # the job may take a moment longer than its last batch
            world.wait(lambda: len(world.endings) > ends_before, "the job ends")
        world.settle()
        world.check_deaths()
        world.wait(world.brokers.whole, "all brokers run and every replica is in sync")
        done.seconds = round(time.monotonic() - started, 1)
        endings = world.endings[ends_before:]
        done.ends = [f"code {each.code}, {each.reason or 'no reason given'}" for each in endings]
        if endings and kill.victim in SURVIVES:
            raise Failure(f"the job did not outlive it: {done.ends[0]}")
        if kill.victim == "jvm" and not any(
            each.code == exit_codes.STOPPED and JVM_DIED in (each.reason or "") for each in endings
        ):
            raise Failure(f"a job whose JVM is killed says so and stops with code {exit_codes.STOPPED}: {done.ends}")
        return done

    def finish(self) -> None:
        """Stop the job normally, and compare everything once more, also for a reader that comes only now."""
        world = self.world
        world.supervise()  # the last kill may have ended a job whose output was all there
        world.wait(world.taken, "every lane has taken all of its inputs")
        last = world.jobs[-1]
        if (code := world.stop_job()) != 0:
            raise Failure(f"asked to stop, the job ended with code {code}")
        world.settle()
        world.check_status()
        assert last.pid is not None
        world.ended(last.pid)
        world.check_deaths()
        world.read_again()

    def _feed(self, chunks: int = 1) -> None:
        self.world.feed(self.world.traffic.segment(), chunks=chunks, pause_s=0.3)

    def _at_step(self, identity: str, kill: Kill) -> int:
        world, step = self.world, STEPS[kill.step]
        if step.fresh:
            self._wait_for_workers(step.stage)
        world.arm(
            kill.step,
            VICTIMS.get(kill.victim, (kill.victim,)),
            identity,
            countdown=kill.countdown,
            delay_s=kill.delay_s,
            role=kill.role,
        )
        before = send(signal.SIGKILL, *self._workers(step.stage)) if step.fresh else 0
        for _ in range(SEGMENTS_MAX):
            self._feed(kill.chunks)
            world.settle()
            if world.fired(identity):
                self.fired.add(kill.step)
                return before + len(VICTIMS.get(kill.victim, (kill.victim,)))
        world.disarm()
        raise Failure(f"step {kill.step} was not reached {kill.countdown} times in {SEGMENTS_MAX} segments")

    def _at_random(self, kill: Kill) -> None:
        if kill.stage:
            self._wait_for_workers(kill.stage)
        failed: list[BaseException] = []

        def strike() -> None:
            try:
                self._strike(kill)
            except BaseException as error:  # noqa: BLE001 - the main thread reports it
                failed.append(error)

        timer = threading.Timer(kill.delay_s, strike)
        timer.start()
        self._feed(kill.chunks)
        self.world.wait(lambda: not timer.is_alive(), "the kill is made")
        if failed:
            raise failed[0]

    def _strike(self, kill: Kill) -> None:
        # a job that has just started has no JVM yet, and between two batches of a restarting query there may be no worker
        deadline = time.monotonic() + PATIENCE_S
        while not send(signal.SIGKILL, *self._targets(kill)):
            if time.monotonic() > deadline:
                raise Failure(f"no {kill.stage} {kill.victim} to kill")
            time.sleep(0.02)

    def _targets(self, kill: Kill) -> list[int | None]:
        """Return the processes that a kill without a step in the program ends, as far as they exist."""
        job = self.world.job
        assert job is not None
        assert job.pid is not None
        match kill.victim:
            case "worker":
                return [*self._workers(kill.stage)]
            case "lane-process":
                return [*lane_processes_of(job.pid)]
            case "forker":
                return [*forkers_of(job.pid)]
            case "daemon":
                return [*daemons_of(job.pid, kill.stage)]
            case "planner":
                return [
                    *(planners_of(job.pid) or workers_of(job.pid, "decode"))
                ]  # Spark reads by itself after several kills
            case "spark-master" | "spark-worker" | "executor":
                assert self.world.spark is not None
                return self.world.spark.pids(kill.victim)
            case "driver":
                return [job.pid]
            case "jvm":
                return [jvm_of(job.pid)]
            case "broker":
                return [self.world.brokers.playing(kill.role).status().pid]
            case _:
                return [each.pid for each in of_session(job.pid)]

    def _when_logged(self, kill: Kill) -> None:
        name, suffix = FILES[kill.step]
        folder = self.world.directory / "checkpoint" / name
        known = {path.name for path in folder.iterdir()}
        fed = threading.Event()
        found = threading.Event()

        def watch() -> None:
            while not fed.wait(0.0005):
                new = {path.name for path in folder.iterdir()} - known
                if any(not each.startswith(".") and each.endswith(suffix) for each in new):
                    self._strike(kill)
                    found.set()
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            self._feed()
            self.world.wait(found.is_set, f"a new file in {folder}")
        finally:
            fed.set()
            watcher.join()
        self.fired.add(kill.step)

    def _workers(self, stage: str) -> list[int]:
        assert self.world.job is not None
        assert self.world.job.pid is not None
        if self.world.spark is not None:
            return workers_among(self.world.spark.processes(), stage)
        return workers_of(self.world.job.pid, stage)

    def _wait_for_workers(self, stage: str) -> None:
        assert stage in STAGES
        if not self._workers(stage):
            self._feed()
            self.world.wait(lambda: bool(self._workers(stage)), f"there is a {stage} worker")


def every_step_seen(report: Report) -> list[str]:
    """Return the named steps that no process of a run has reached."""
    return sorted(set(STEPS) - set(report.steps_seen))


def summary(path: Path) -> dict[str, object]:
    """Return a report from a file."""
    document: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return document
