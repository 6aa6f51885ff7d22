# SPDX-License-Identifier: Apache-2.0
"""Faults that involve more than one process: second jobs, zombies, lost checkpoints, a full disk."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.crash.bodies import BodiesEpisode
from tests.crash.clusters import CLUSTER_EPISODES, ClusterEpisodes
from tests.crash.consoles import ConsoleEpisode
from tests.crash.gateways import ChannelEpisode
from tests.crash.injected import injected
from tests.crash.journeys import JourneysEpisode
from tests.crash.parked import ParkedEpisode
from tests.crash.processes import of_session, send
from tests.crash.world import PATIENCE_S, Failure, World
from validator import exit_codes
from validator.errors import UserError
from validator.job.process import JobProcess, job_command

REBUILD_RECORDS = 50_000
"""Records per batch of a job that reads all inputs again."""

FULL_S_MAX = 60.0
"""Seconds for which a job runs with a full disk."""

STALL_S = (5.0, 40.0)
"""Bounds of the seconds for which a shared checkpoint stalls."""

FENCED = "another job has taken over"


class Episodes:
    """Each episode begins and ends with a world whose job runs and has settled; the caller compares the output."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._count = 0

    def carry_out(self, name: str) -> tuple[str, int]:
        """Run one episode by its name; return a note about it, and the number of processes that it killed."""
        self._count += 1
        if name in CLUSTER_EPISODES:
            of_cluster: Callable[[], tuple[str, int]] = getattr(ClusterEpisodes(self._world), name.replace("-", "_"))
            return of_cluster()
        method: Callable[[], tuple[str, int]] = getattr(self, "_" + name.replace("-", "_"))
        return method()

    # --- stops ---

    def _sigterm(self) -> tuple[str, int]:
        world = self._world
        world.feed(world.traffic.segment())
        time.sleep(world.random.uniform(0, 1.5))
        if (code := world.stop_job()) != exit_codes.OK:
            raise Failure(f"asked to stop, the job ended with code {code}")
        world.run_job()
        return "ended with code 0", 0

    # --- second jobs ---

    def _second_job_on_the_directory(self) -> tuple[str, int]:
        try:
            self._world.start_job()
        except UserError as error:
            return self._one_line(str(error), "another job is using"), 0
        raise Failure("a second job was started on a directory that another job is using")

    def _second_job_on_the_checkpoint(self) -> tuple[str, int]:
        """Bypass the command line, which would find the process of the first job."""
        world, first = self._world, self._world.job
        assert first is not None
        log = world.folder / "second.log"
        with injected(world.points), log.open("w") as output:
            second = subprocess.Popen(
                job_command(),
                stdout=output,
                stderr=output,
                stdin=subprocess.PIPE,
                start_new_session=True,
                text=True,
            )
            assert second.stdin is not None
            with second.stdin as configuration:
                json.dump(world.config().model_dump(mode="json"), configuration)
        try:
            world.feed(world.traffic.segment())
            deadline = time.monotonic() + PATIENCE_S
            while second.poll() is None and time.monotonic() < deadline:
                self._world.watch(0.5)
        finally:
            second.kill()
            second.wait()
            send(signal.SIGKILL, *(each.pid for each in of_session(second.pid)))
        last = [*log.read_text(encoding="utf-8").splitlines(), ""][-2]
        if second.returncode != exit_codes.USER_ERROR or first.ended():
            raise Failure(f"the second of two jobs on a checkpoint ended with code {second.returncode}: {last}")
        return self._one_line(last, "another job is using"), 0

    def _second_job_without_checkpoint(self) -> tuple[str, int]:
        second = self._world.start_job(self._elsewhere())
        try:
            code = self._end_of(second)
        except UserError as error:
            return self._one_line(str(error), "--rebuild"), 0
        raise Failure(f"a job without a checkpoint ended with code {code}, expected a refusal")

    def _second_job_takes_over(self) -> tuple[str, int]:
        first = self._world.job
        assert first is not None
        return self._contest(first, self._take_over())

    def _stopped_worker_comes_back(self) -> tuple[str, int]:
        world, first = self._world, self._world.job
        assert first is not None
        identity = f"zombie-{self._count}"
        world.arm("commit-before", ("worker",), identity, number=signal.SIGSTOP)
        world.feed(world.traffic.segment())
        world.wait(lambda: world.fired(identity), "the worker is stopped before it commits")
        assert first.pid is not None
        stopped = [each.pid for each in of_session(first.pid) if each.state == psutil.STATUS_STOPPED]
        second = self._take_over()
        world.settle()
        send(signal.SIGCONT, *stopped)
        # it may be about to commit a lane without blocks, and then nothing shows it who owns the lane now
        return self._contest(first, second)

    def _stopped_job_comes_back(self) -> tuple[str, int]:
        """Suspend all of a job, as on a machine that sleeps, while another job takes its place."""
        world, first = self._world, self._world.job
        assert first is not None
        assert first.pid is not None
        world.feed(world.traffic.segment())
        time.sleep(world.random.uniform(0, 1.5))
        # parents first: otherwise a stopped child would look like a hanging one
        send(signal.SIGSTOP, *sorted(each.pid for each in of_session(first.pid)))
        second = self._take_over()
        world.settle()
        send(signal.SIGCONT, *sorted(each.pid for each in of_session(first.pid)))
        return self._contest(first, second)

    # --- checkpoints ---

    def _last_commit_deleted(self) -> tuple[str, int]:
        return self._without_the_last("commits")

    def _last_commit_and_offsets_deleted(self) -> tuple[str, int]:
        return self._without_the_last("commits", "offsets")

    def _checkpoint_deleted(self) -> tuple[str, int]:
        world = self._world
        world.feed(world.traffic.segment(ahead=True))
        world.wait(world.taken, "every lane has taken all of its inputs")
        self._kill_job()
        world.feed(world.traffic.segment())
        shutil.rmtree(world.directory / "checkpoint")
        refused = world.start_job()
        try:
            raise Failure(f"a job without a checkpoint ended with code {self._end_of(refused)}, expected a refusal")
        except UserError as error:
            note = self._one_line(str(error), "--rebuild")
        world.run_job(rebuild=True, max_records_per_trigger=REBUILD_RECORDS)
        return note, 1

    def _disk_full(self) -> tuple[str, int]:
        world, job = self._world, self._world.job
        assert job is not None
        assert job.pid is not None
        with full_disk(world, job.pid) as how:
            world.feed(world.traffic.segment())
            self._outlast(job)
        return self._after_full_disk(job, how), 0

    def _disk_full_during_a_state_write(self) -> tuple[str, int]:
        """Stop a worker before it writes a lane's head, and let it continue when nothing can be written."""
        world, job = self._world, self._world.job
        assert job is not None
        assert job.pid is not None
        if not os.path.ismount(world.directory):
            return "skipped: no separate file system can be mounted here", 0
        identity = f"full-{self._count}"
        world.arm("head-before", ("worker",), identity, number=signal.SIGSTOP)
        world.feed(world.traffic.segment())
        world.wait(lambda: world.fired(identity), "the worker is stopped before it writes its state")
        with full_disk(world, job.pid) as how:
            send(signal.SIGCONT, *(each.pid for each in of_session(job.pid) if each.state == psutil.STATUS_STOPPED))
            self._outlast(job)
        return self._after_full_disk(job, how), 0

    def _outlast(self, job: JobProcess) -> None:
        """Wait for the end of a job on a full disk, for a while."""
        deadline = time.monotonic() + FULL_S_MAX
        while not job.ended() and time.monotonic() < deadline:
            self._world.watch(0.5)

    def _after_full_disk(self, job: JobProcess, how: str) -> str:
        """Return a note about what the job did; if it ended, check how."""
        if not job.ended():
            return f"by {how}: the job survived it"
        if (code := self._end_of(job)) != exit_codes.STOPPED:
            raise Failure(f"with a full disk the job ended with code {code}: {job.failure}")
        expected = "No space left on device" if "file system" in how else ""
        return f"by {how}: " + self._one_line(job.failure or "", expected)

    # --- clusters of Spark ---

    def _checkpoint_stalls(self) -> tuple[str, int]:
        """Let every write to the folder of checkpoint and state wait, as on a shared storage that does not answer."""
        world = self._world
        assert world.disk is not None
        if not world.disk.mounted:
            return "skipped: no file system that can be frozen can be mounted here", 0
        seconds = world.random.uniform(*STALL_S)
        world.feed(world.traffic.segment())
        with world.disk.stalled():
            world.feed(world.traffic.segment())
            world.watch(seconds)
        return f"{seconds:.0f} s", 0

    def _driver_moved(self) -> tuple[str, int]:
        """Kill the driver, and start it on its folder in another place."""
        world = self._world
        world.feed(world.traffic.segment())
        world.watch(world.random.uniform(0, 3.0))
        self._kill_job()
        target = world.directory.with_name(f"job-{self._count}")
        world.directory.rename(target)
        world.directory = target
        world.run_job()
        return f"to {target.name}", 1

    # --- jobs of plugins ---

    def _bodies(self) -> tuple[str, int]:
        return BodiesEpisode(self._world, f"bodies-{self._count}").run()

    def _journeys(self) -> tuple[str, int]:
        return JourneysEpisode(self._world, f"journeys-{self._count}").run()

    # --- transports ---

    def _channel(self) -> tuple[str, int]:
        return ChannelEpisode(self._world, f"channel-{self._count}").run()

    # --- what only reads ---

    def _console(self) -> tuple[str, int]:
        return ConsoleEpisode(self._world, f"console-{self._count}").run()

    # --- lanes ---

    def _parked_lane(self) -> tuple[str, int]:
        return ParkedEpisode(self._world, f"parked-{self._count}").run()

    # --- helpers ---

    def _kill_job(self) -> None:
        """Kill the job as a machine failure would, and forget it."""
        job = self._world.job
        assert job is not None
        self._world.job = None
        self._world.end(job)

    def _without_the_last(self, *folders: str) -> tuple[str, int]:
        world = self._world
        world.feed(world.traffic.segment())
        self._world.watch(world.random.uniform(0, 3.0))
        self._kill_job()
        last = max(
            int(path.name) for path in (world.directory / "checkpoint" / "commits").iterdir() if path.name.isdigit()
        )
        for folder in folders:
            for path in (world.directory / "checkpoint" / folder).iterdir():
                number = path.name.lstrip(".").removesuffix(".crc")
                if number.isdigit() and int(number) >= last:
                    path.unlink()
        world.run_job()
        return f"from batch {last} on", 1

    def _take_over(self) -> JobProcess:
        """Start a job in another folder on the same topics; from now on it is the world's job."""
        world = self._world
        world.job = None
        second = world.start_job(self._elsewhere(), rebuild=True, max_records_per_trigger=REBUILD_RECORDS)
        world.wait(second.ready.is_set, "the second job is ready")
        world.feed(world.traffic.segment())
        world.wait(lambda: world.reader.complete or second.ended(), "the second job emits what was missing")
        return second

    def _back_to_the_first(self, second: JobProcess) -> None:
        """Continue in the first directory, whose checkpoint knows nothing of the second job's work."""
        world = self._world
        for job in world.jobs:
            world.end(job)
        world.run_job(max_records_per_trigger=REBUILD_RECORDS)
        assert second.ended()

    def _elsewhere(self) -> Path:
        return self._world.folder / f"elsewhere-{self._count}"

    def _end_of(self, job: JobProcess, patience_s: float = PATIENCE_S) -> int:
        deadline = time.monotonic() + patience_s
        while not job.ended():
            if time.monotonic() > deadline:
                raise Failure(f"a job that had to end still runs after {patience_s:.0f} s")
            self._world.watch(0.2)
        return job.wait()

    def _contest(self, first: JobProcess, second: JobProcess) -> tuple[str, int]:
        """Let two jobs work on the same lanes until one of them gives up, which it does when it has output to write."""
        deadline = time.monotonic() + PATIENCE_S
        while not first.ended() and not second.ended():
            if time.monotonic() > deadline:
                raise Failure("two jobs work on the same lanes, and neither has noticed")
            self._world.feed(self._world.traffic.segment())
            self._world.watch(2.0)
        loser = first if first.ended() else second
        note = self._fenced(loser)
        self._back_to_the_first(second)
        return f"the {'first' if loser is first else 'second'}: {note}", 1

    def _fenced(self, job: JobProcess) -> str:
        if (code := self._end_of(job)) != exit_codes.STOPPED:
            raise Failure(f"a fenced job ended with code {code}: {job.failure}")
        return self._one_line(job.failure or "", FENCED)

    def _one_line(self, text: str, expected: str) -> str:
        if expected not in text or "\n" in text.strip():
            raise Failure(f"expected one line with {expected!r}, found {text!r}")
        return expected


@contextmanager
def full_disk(world: World, driver: int) -> Iterator[str]:
    """Fill the space of the job's state: on a separate small file system if that is possible, else by a limit on file sizes."""
    if os.path.ismount(world.directory):
        filler = world.directory / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
        except OSError:
            pass
        try:
            yield "a full file system"
        finally:
            filler.unlink()
        return
    pids = [each.pid for each in of_session(driver)]
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in pids}
    for pid, (_, hard) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield "a limit of file sizes"
    finally:
        for pid, limit in limits.items():
            if psutil.pid_exists(pid):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
