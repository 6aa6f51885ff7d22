# SPDX-License-Identifier: Apache-2.0
"""The operator of bodies, its workers, its broker and a recipient, killed while events, receipts and bodies flow.

Every output topic must hold what an undisturbed process emits for the same batches (`tests.crash.bodies_judge`), and the recipient must
have got each message once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import IO, Any

from confluent_kafka import Producer
from validator_xcmp_bodies import records
from validator_xcmp_bodies.job import JOB

from tests.bodies.history import LANE, Named, hostile
from tests.crash.bodies_judge import OUTPUTS, Emitted, Plan, compare, sequence
from tests.crash.comparison import Tally
from tests.crash.injected import arm, injected
from tests.crash.processes import jvm_of, of_session, send, workers_of
from tests.crash.world import PATIENCE_S, Failure, World
from validator.config import Config
from validator.config.toml import to_toml
from validator.job.installed import configured_job, of_job
from validator.job.process import JobProcess
from validator.kafka.reader import TopicReader
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics

BLOCKS = 28
BUCKETS = 2
EFFECTS_PER_BATCH = 25
FOLLOWED = 2
"""The recipient whose messages a process follows; it acknowledges none, so the sequence is all of them."""

READ_S_MAX = 300.0
"""Seconds without progress in which the open transaction of a dead writer must have ended."""

KILLS = (
    "worker condense", "worker keyed", "broker", "driver", "jvm", "machine", "follower",
    "worker@commit-before", "worker@commit-after", "broker@commit-during", "machine@commit-before", "driver@commit-after",
)  # fmt: skip
"""At a random moment, or at a named step of the sink."""


class Recipient:
    """`validator messages follow`, killed and started again after the last message that it has handed over."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._errors = config.parent / "recipient-errors"
        self.positions: list[str] = []
        self.starts = 0
        self._start()

    def _start(self) -> None:
        after = ["--after", self.positions[-1]] if self.positions else []
        arguments = ["messages", "follow", "--chain", LANE, "--para", str(FOLLOWED), "--json", *after]
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "validator", *arguments, f"--config={self._config}"],
                stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip
        assert self._process.stdout is not None
        self._out: IO[bytes] = self._process.stdout
        os.set_blocking(self._out.fileno(), False)
        self._rest = b""
        self.starts += 1

    def poll(self) -> None:
        """Take what it has written; start it again if it has ended."""
        has_ended = self._process.poll() is not None
        *whole, self._rest = (self._rest + (self._out.read() or b"")).split(b"\n")
        self.positions += [json.loads(line)["position"] for line in whole]
        if has_ended:
            self._out.close()
            self._start()

    @property
    def last_error(self) -> str:
        """The last line that any of its processes has written on standard error."""
        return self._errors.read_text(encoding="utf-8").strip().rpartition("\n")[2]

    def kill(self) -> int:
        """Kill it; what it has written before is taken, and it starts again with the next `poll`."""
        self._process.kill()
        self._process.wait()
        return 1

    def close(self) -> None:
        """End it."""
        self.kill()
        self._out.close()


class BodiesEpisode:
    """One run of the operator on the world's broker, with its own topics."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._random = world, Random(world.random.random())
        self.folder = world.folder / name
        self.prefix = f"{name}."
        self.points = self.folder / "points"
        (self.points / "seen").mkdir(parents=True)
        self.config = self._configuration()
        job = configured_job(self.config, JOB)
        self.plan = Plan(job, self.prefix)
        self.checkpoint = Path(of_job(self.config, JOB).job.directory) / "checkpoint"
        create_topics(world.kafka, prefix=self.prefix)
        create_topics(world.kafka, prefix=self.prefix, topics=job.topics)
        self._producer = Producer(producer_config(world.kafka) | {"reconnect.backoff.max.ms": 500})
        self.history: list[Named] = []
        self.produced: Counter[str] = Counter()
        self.ends: list[int] = []
        self._expects_end = False
        self._compared = 0
        """Records of all output topics, when they were last compared."""
        self._process: JobProcess | None = None

    def run(self) -> tuple[str, int]:
        """Kill everything in turn; return a note and how many processes were killed."""
        kills = list(KILLS)
        self._random.shuffle(kills)
        history = [each for each in hostile_history(self._random) if not _is_acknowledged(each, FOLLOWED)]
        size = -(-len(history) // (len(kills) + 2))
        slices = [history[at : at + size] for at in range(0, len(history), size)]
        self._recipient = Recipient(self._write_configuration())
        signals = 0
        try:
            self._start()
            self._feed(slices[0])
            self._settle()
            for kill, part in zip(kills, slices[1:], strict=False):
                signals += self._kill(kill, part)
                self._settle()
            self._feed([each for part in slices[len(kills) + 1 :] for each in part])
            self._settle()
            self._check_sequence()
            self._stop()
        finally:
            self._recipient.close()
        counts = f"{len(self.plan.committed)} batches, {self._compared} records, {self._recipient.starts} followers"
        return f"{len(kills)} kills, {counts}", signals

    # --- the job ---

    def _configuration(self) -> Config:
        return Config.model_validate(
            {
                "kafka": self._world.kafka,
                "topics": {"prefix": self.prefix},
                "chains": {LANE: {"protocol": "xcmp-network"}},
                "jobs": {JOB: {"buckets": BUCKETS, "unlisted_bytes": 2_000}},
                "job": {
                    "directory": str(self.folder / "job"),
                    "master": "local[2]",
                    "driver_memory": "768m",
                    "max_records_per_trigger": EFFECTS_PER_BATCH,
                },
            }
        )

    def _write_configuration(self) -> Path:
        path = self.folder / "validator.toml"
        tables = {
            "kafka": self._world.kafka,
            "topics": {"prefix": self.prefix},
            "chains": {LANE: {"protocol": "xcmp-network"}},
        }
        path.write_text(to_toml(tables), encoding="utf-8")
        return path

    def _start(self) -> None:
        log = (self.folder / "job.log").open("a", encoding="utf-8")

        def on_event(event: dict[str, Any]) -> None:
            log.write(json.dumps({"at": round(time.time(), 2)} | event) + "\n")
            log.flush()

        self._process = JobProcess(of_job(self.config, JOB), on_event, plugin=JOB)
        with injected(self.points):
            self._process.start()
        self._world.jobs.append(self._process)

    def _stop(self) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        process.stop()
        if code := process.wait():
            raise Failure(f"asked to stop, the operator ended with code {code}")
        assert process.pid is not None
        self._world.ended(process.pid)
        self._world.check_deaths()

    def _supervise(self) -> None:
        self._world.supervise()
        self._recipient.poll()
        self.plan.look(self.checkpoint)
        process = self._process
        if process is not None and process.ended():
            assert process.pid is not None
            self._world.ended(process.pid)
            code = process.wait()
            self.ends.append(code)
            if not self._expects_end:
                raise Failure(f"the operator did not outlive it: code {code}, {process.failure}")
            self._start()

    # --- feeding and killing ---

    def _feed(self, part: Sequence[Named]) -> None:
        """Write records in the order of cause and effect: a body only once what lists it is written."""
        causes, previous = self.plan.job.causes, True
        for topic, value in part:
            if (topic in causes) != previous:
                self._flush()
                previous = topic in causes
            self._producer.produce(self.prefix + topic, value, LANE.encode())
            self.history.append((topic, value))
            self.produced[topic] += 1
        self._flush()

    def _flush(self) -> None:
        self._wait(lambda: self._producer.flush(0.2) == 0, "the broker takes the inputs")

    def _kill(self, kill: str, part: Sequence[Named]) -> int:
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
            self._wait(lambda: len(self.ends) > before, "the operator ends")
        return signals

    def _at_step(self, victim: str, step: str, part: Sequence[Named]) -> int:
        victims = ("driver", "jvm", "worker") if victim == "machine" else (victim,)
        identity = f"{victim}-{step}"
        arm(self.points, self._world.brokers.playing(), step, victims, identity)
        self._feed(part)
        fired = self.points / f"fired-{identity}"
        self._wait(fired.exists, f"step {step} is reached")
        return len(victims)

    def _strike_worker(self, stage: str, part: Sequence[Named]) -> int:
        """Kill the workers of a stage as soon as there are any: Spark ends those that have had no work for a minute."""
        for at, record in enumerate(part):
            self._feed([record])
            self._wait(lambda: bool(self._workers(stage)) or self.plan.covers(self.produced), "a worker takes a record")
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
            case "follower":
                return self._recipient.kill()
        return send(signal.SIGKILL, *(each.pid for each in of_session(pid)))

    # --- comparing ---

    def _wait(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"waited {PATIENCE_S:.0f} s in vain: {what}")
            self._supervise()
            time.sleep(0.05)

    def _settle(self) -> None:
        """Wait until everything written is taken, and compare every output topic."""
        self._wait(lambda: self.plan.covers(self.produced), "the operator takes everything")
        tally = Tally()
        expected = self.plan.expected(self.history)
        found = self._emitted()
        for place in sorted(expected.keys() | found.keys()):
            compare(expected.get(place, []), found.get(place, []), " of ".join(place), tally)
        self._compared = tally.records
        if not tally.clean:
            for name in ("lost", "duplicated", "out_of_order", "differing"):
                setattr(self._world.reader.tally, name, getattr(self._world.reader.tally, name) + getattr(tally, name))
            raise Failure("; ".join(tally.faults[:3]))

    def _emitted(self) -> dict[tuple[str, str], list[Emitted]]:
        found: defaultdict[tuple[str, str], list[Emitted]] = defaultdict(list)
        with TopicReader(self._world.kafka, self.prefix, OUTPUTS) as reader:
            for record in reader.read_past_transactions(READ_S_MAX):
                recipient = records.decode(record.topic, record.value)["recipient"] or 0
                found[record.topic, self.plan.job.keys[recipient % BUCKETS]].append((record.key or b"", record.value))
        return found

    def _check_sequence(self) -> None:
        """Wait for the last message of the recipient, and compare the whole sequence."""
        expected = sequence(self.history, FOLLOWED)
        recipient = self._recipient
        try:
            self._wait(lambda: len(recipient.positions) >= len(expected), "the recipient gets its last message")
        except Failure as failure:
            had = f"it has had {len(recipient.positions)} of {len(expected)}"
            raise Failure(f"{failure}; {had}, and its last error is: {recipient.last_error or 'none'}") from failure
        compare(
            [(each.encode(), b"") for each in expected],
            [(each.encode(), b"") for each in self._recipient.positions],
            "the recipient",
            self._world.reader.tally,
        )
        self._world.check()


def hostile_history(random: Random) -> list[Named]:
    """Return a chain's events, receipts and bodies, and records in between that nobody should write."""
    return hostile(random.randrange(1 << 30), BLOCKS)


def _is_acknowledged(record: Named, recipient: int) -> bool:
    if record[0] != records.INGRESS:
        return False
    event = records.decode(*record)
    return event["recipient"] == recipient and event["event"] != "queued"
