# SPDX-License-Identifier: Apache-2.0
"""A broker, a job on it, traffic and a reader; any of them may be killed at any moment and is then restarted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Self

from confluent_kafka import Producer

from tests.crash.brokers import Brokers, OneBroker, ThreeBrokers
from tests.crash.comparison import Reader
from tests.crash.injected import CONSTANTS, arm, injected, mount, python_path
from tests.crash.processes import of_session, send
from tests.crash.spark import SharedDisk, SparkCluster
from tests.crash.traffic import Sent, Traffic, Undisturbed, chains_of
from tests.unit.lanes.chains import Chain, config_of
from validator.codec.orders import encode_order
from validator.config import Config
from validator.errors import UserError
from validator.job.process import JobProcess
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics

PREFIX = "crash."

SLOWNESS = float(os.environ.get("CRASH_SLOWNESS", "1"))
"""How many times as long everything is waited for: more than 1 on a machine that has far more to do than it can."""

PATIENCE_S = 420.0 * SLOWNESS
"""Output that takes longer counts as lost; this exceeds the life of an open transaction of a dead writer."""

DEATH_S_MAX = 180.0 * SLOWNESS
"""Seconds within which the JVM and the workers of a dead driver must end."""

GRACE_S = 30.0
"""Seconds for which processes are watched before they count as live, however long ago their driver ended: nobody may have looked since."""

OTHERS_S = 30.0 * SLOWNESS
"""Seconds after the last lane has written everything in which the rest must have been written, too."""

STALLED_S = round(120 * SLOWNESS)
"""Seconds without any progress after which a job ends its batch and begins again: less than `PATIENCE_S`."""


class Failure(Exception):
    """The product did something wrong."""


@dataclass
class Ending:
    """How a job ended that was not asked to stop."""

    code: int
    reason: str | None


@dataclass
class World:
    """Everything of one run, below one folder; leaving it ends every process that it started."""

    folder: Path
    seed: int
    lanes: int = 3
    blocks: int = 2_000
    blocks_per_segment: int = 5
    records_per_trigger: int = 60
    brokers_count: int = 1
    """One or three."""
    on_cluster: bool = False
    """Whether the job runs on a standalone cluster of Spark, rather than in one process."""
    endings: list[Ending] = field(default_factory=list)
    starts: int = 0
    logged: Counter[str] = field(default_factory=Counter)
    """Events of all jobs, by name."""

    def __post_init__(self) -> None:
        self.folder = self.folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.random = Random(self.seed)
        self.state_partitions = (
            3 if self.seed % 2 else 1
        )  # of three, each has a lane; their workers have another daemon
        self._taken_since: float | None = None
        self.chains: tuple[Chain, ...] = chains_of(self.seed, self.lanes, self.blocks)
        self.traffic = Traffic(self.chains, Random(self.seed + 1), self.blocks_per_segment)
        self.undisturbed = Undisturbed(self.chains, PREFIX)
        self.points = self.folder / "points"
        (self.points / "seen").mkdir(parents=True)
        (self.points / "constants").write_text(json.dumps(CONSTANTS))
        lanes = [each.lane for each in self.chains]
        self.brokers: Brokers = (
            OneBroker(self.folder)
            if self.brokers_count == 1
            else ThreeBrokers(self.folder, PREFIX, lanes, Random(self.seed + 2))
        )
        self.jobs: list[JobProcess] = []
        self.job: JobProcess | None = None
        self.disk = SharedDisk(self.folder / "disk", self.folder / "disk.image") if self.on_cluster else None
        self.directory = (self.disk.folder if self.disk else self.folder) / "job"
        self.spark = SparkCluster(self.folder, python_path(), self.points) if self.on_cluster else None
        self.broker_pause_s = 0.0
        self.ended_sessions: dict[int, float] = {}
        self.delivered: Counter[str] = Counter()
        self._undelivered: list[str] = []
        self.stuck = ""
        """Why everything was ended; set by the watchdog of `run`."""

    # --- start and end ---

    def __enter__(self) -> Self:
        if self.disk is not None:
            self.disk.mount()
        self.directory.mkdir()
        self._mounted = self.disk is None and mount(self.directory)
        if self.spark is not None:
            self.spark.start()
        self.brokers.start()
        self.kafka: dict[str, Any] = self.brokers.kafka
        create_topics(self.kafka, prefix=PREFIX)
        self.reader = Reader(self.kafka, PREFIX, self.undisturbed)
        self.onlooker = Reader(self.kafka, PREFIX, self.undisturbed)
        """Connected all the while: it never asks for a position again, whatever happens."""
        self._producer = Producer(producer_config(self.kafka) | {"reconnect.backoff.max.ms": 500})
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs:
            self.end(job)
        self.onlooker.close()
        self.reader.close()
        self.brokers.stop()
        if self.spark is not None:
            self.spark.stop()
        if self.disk is not None:
            self.disk.unmount()
        if self._mounted:
            subprocess.run(["umount", "--lazy", str(self.directory)], check=True)

    def end(self, job: JobProcess) -> None:
        """Kill what is left of a job."""
        job.kill()
        if job.pid is not None:
            send(signal.SIGKILL, *(each.pid for each in of_session(job.pid)))

    def config(self, directory: Path | None = None, **changes: Any) -> Config:
        """Return the configuration of a job."""
        job = {
            "directory": str(directory or self.directory),
            "master": "local[2]",
            "driver_memory": "768m",
            "max_records_per_trigger": self.records_per_trigger,
            "state_partitions": self.state_partitions,
            "stalled_after": STALLED_S,
        }
        if self.spark is not None:
            job |= {"master": self.spark.address, "driver_memory": "512m"}
        return config_of(*self.chains, job=job | changes, topics={"prefix": PREFIX}, kafka=self.kafka)

    def start_job(self, directory: Path | None = None, **changes: Any) -> JobProcess:
        """Start a job and return immediately; the first failpoint may fire while it starts."""
        log = (self.folder / "job.log").open("a", encoding="utf-8")

        def on_event(event: dict[str, Any]) -> None:
            self.logged[event["event"]] += 1
            log.write(json.dumps({"at": round(time.time(), 2)} | event) + "\n")
            log.flush()

        job = JobProcess(self.config(directory, **changes), on_event)
        with injected(self.points, self.spark.environment if self.spark else {}):
            job.start()
        self.jobs.append(job)
        self.starts += 1
        return job

    def run_job(self, **changes: Any) -> None:
        """Start the job of this world, and remember it as the one that must run."""
        self.job = self.start_job(**changes)

    def strike(self, victims: str) -> int:
        """Kill the broker and the job's processes, as far as ``victims`` names "broker" and "machine"; return how many those were."""
        signals = send(signal.SIGKILL, self.brokers.playing().status().pid) if "broker" in victims else 0
        if "machine" in victims:
            assert self.job is not None
            assert self.job.pid is not None
            signals += send(signal.SIGKILL, *(each.pid for each in of_session(self.job.pid)))
        return signals

    def stop_job(self) -> int:
        """Ask the job to stop, and return its exit code; from now on no job must run."""
        job, self.job = self.job, None
        assert job is not None
        job.stop()
        return job.wait()

    # --- traffic ---

    def feed(self, records: Sequence[Sent], *, chunks: int = 1, pause_s: float = 0.0) -> None:
        """Write records to the topics, together or in chunks, and wait for the broker to take them."""
        self.offer(records, chunks=chunks, pause_s=pause_s)
        self.await_delivery()

    def offer(self, records: Sequence[Sent], *, chunks: int = 1, pause_s: float = 0.0) -> None:
        """Write records to the topics, without waiting for brokers that may be unable to take them."""
        self.undisturbed.take(records)
        size = -(-len(records) // chunks)
        for start in range(0, len(records), size):
            for sent in records[start : start + size]:
                self._producer.produce(PREFIX + sent.topic, sent.value, sent.key, on_delivery=self._on_delivery)
            if chunks > 1:
                self._producer.flush(pause_s)
                self.supervise()

    def await_delivery(self) -> None:
        """Wait for the broker to take what was offered."""
        self.wait(lambda: self._producer.flush(0.1) == 0, "the broker takes the inputs")
        if self._undelivered:
            raise RuntimeError(f"inputs were not delivered as numbered: {self._undelivered[:3]}")

    def feed_order(self, lane: str) -> None:
        """Order a lane to continue."""
        self.undisturbed.skip("blocks")
        self._producer.produce(
            PREFIX + "blocks", encode_order(lane, frozenset()), lane.encode(), on_delivery=self._on_delivery
        )
        self.wait(lambda: self._producer.flush(0.1) == 0, "the broker takes the order")

    def _on_delivery(self, error: Any, message: Any) -> None:
        topic = message.topic().removeprefix(PREFIX)
        if error is not None or message.offset() != self.delivered[topic]:
            self._undelivered.append(f"{topic}@{message.offset()}: {error}, expected {self.delivered[topic]}")
        self.delivered[topic] += 1

    # --- supervision ---

    def supervise(self) -> None:
        """Restart what has died: brokers on their data and ports, the job on its directory."""
        self.brokers.restart_dead(self.broker_pause_s)
        if self.spark is not None:
            self.spark.restart_dead()
        job = self.job
        if job is not None and job.ended():
            assert job.pid is not None
            self.ended(job.pid)
            try:
                code, reason = job.wait(), job.failure
            except UserError as error:
                code, reason = 2, str(error)
            self.endings.append(Ending(code, reason))
            self.run_job()

    def wait(self, condition: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait for a condition; meanwhile, supervise all processes and compare new output.

        A job that executes a long history again has more time with each batch, up to ten times as much.
        """
        began, batches, deadline = time.monotonic(), self.logged["batch"], time.monotonic() + patience_s
        while not condition():
            if (seen := self.logged["batch"]) != batches:
                batches, deadline = seen, min(time.monotonic() + patience_s, began + 10 * patience_s)
            if time.monotonic() > deadline:
                raise Failure(f"waited {patience_s:.0f} s in vain: {what}; still to come: {self.reader.missing()}")
            self.supervise()
            self.poll(0.1)
            self.check()

    def poll(self, timeout_s: float) -> None:
        """Compare new output."""
        self.reader.poll(timeout_s)
        self.onlooker.poll(0.0)

    def watch(self, seconds: float) -> None:
        """Compare new output for a while, and restart nothing."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.poll(0.1)
            self.check()

    def check(self) -> None:
        """Raise `Failure` if the comparison has found a fault."""
        if self.stuck:
            raise Failure(self.stuck)
        for reader in (self.reader, self.onlooker):
            if not reader.tally.clean:
                raise Failure("; ".join(reader.tally.faults[:3]))

    def settle(self) -> None:
        """Wait until all output for the inputs fed so far has arrived, and compare all of it."""
        self.wait(lambda: self.reader.complete or self._lost(), "all output for the inputs has arrived")
        self.reader.read_to_end(self.supervise)
        self.wait(lambda: self.onlooker.complete, "the reader that was there all the while has all output")

    def read_again(self) -> None:
        """Compare all output once more, as a reader sees it that connects now."""
        reader = Reader(self.kafka, PREFIX, self.undisturbed)
        try:
            reader.read_to_end(self.supervise)
            reader.check_lost()
            if not reader.tally.clean:
                raise Failure("; ".join(reader.tally.faults[:3]))
        finally:
            reader.close()

    def give_up(self, why: str) -> None:
        """End all jobs, from another thread: whatever waits raises `Failure`."""
        self.stuck, self.job = why, None
        for job in self.jobs:
            self.end(job)

    def _lost(self) -> bool:
        """Count missing output once every lane's status says that it has taken everything; a lane commits its status with its output."""
        if not self.taken():
            self._taken_since = None
            return False
        if self._taken_since is None:
            self._taken_since = time.monotonic()
        # the worker of another state partition may still write what belongs to no lane
        if self.state_partitions == 1 or time.monotonic() - self._taken_since > OTHERS_S:
            self.reader.read_to_end(self.supervise)
            if self.taken():
                self.reader.check_lost()
        return False

    def ended(self, session: int) -> None:
        """Remember when the driver of a session ended, normally or not; `check_deaths` waits for its other processes."""
        self.ended_sessions.setdefault(session, time.monotonic())

    def check_deaths(self) -> None:
        """Raise `Failure` if a process of a dead job still lives."""
        for session, died in list(self.ended_sessions.items()):
            deadline = max(died + DEATH_S_MAX, time.monotonic() + GRACE_S)
            while left := of_session(session):
                if time.monotonic() > deadline:
                    send(signal.SIGKILL, *(each.pid for each in left))
                    raise Failure(f"{time.monotonic() - died:.0f} s after their driver these still live: {left}")
                self.supervise()
                self.poll(0.1)
            del self.ended_sessions[session]

    def taken(self) -> bool:
        """Whether every lane has taken all of its inputs, including those that wait for others."""
        fed = {lane: counters["consumed"] for lane, counters in self.undisturbed.counters().items()}
        return all(self.reader.status.get(lane, {}).get("consumed") == count for lane, count in fed.items())

    def check_status(self) -> None:
        """Raise `Failure` if the lanes' counters differ from those of the undisturbed run."""
        for lane, counters in self.undisturbed.counters().items():
            found = {name: self.reader.status.get(lane, {}).get(name) for name in counters}
            if found != counters or counters["consumed"] != sum(counters.values()) - counters["consumed"]:
                raise Failure(f"lane {lane} counts {found}, expected {counters}")

    # --- failpoints ---

    def arm(
        self, step: str, victims: Sequence[str], identity: str, *, countdown: int = 1, delay_s: float = 0.0,
        number: signal.Signals = signal.SIGKILL, role: str = "",
    ) -> None:  # fmt: skip
        """Arm a signal at a step (`Armed` lists the possible victims); it fires once. A broker has ``role``, or a random one."""
        broker = self.brokers.playing(role)
        arm(self.points, broker, step, victims, identity, countdown=countdown, delay_s=delay_s, number=number)

    def fired(self, identity: str) -> bool:
        """Whether the kill with this id has fired."""
        return (self.points / f"fired-{identity}").exists()

    def disarm(self) -> None:
        """Disarm a kill that has not fired."""
        (self.points / "armed").unlink(missing_ok=True)

    def seen(self) -> set[str]:
        """Return the steps that any process has reached."""
        return {path.name for path in (self.points / "seen").iterdir()}

    def keep_evidence(self, target: Path) -> None:
        """Copy logs, failpoints and checkpoints; the broker's data would be too large."""
        target.mkdir(parents=True, exist_ok=True)
        for path in (
            self.folder / "job.log",
            self.directory,
            self.points,
            *self.brokers.logs,
            *(self.spark.logs if self.spark else ()),
        ):
            if path.is_dir():
                # files may vanish during the copy
                with suppress(shutil.Error):
                    shutil.copytree(path, target / path.name, dirs_exist_ok=True)
            elif path.exists():
                shutil.copy(path, target / "-".join(path.relative_to(self.folder).parts))
