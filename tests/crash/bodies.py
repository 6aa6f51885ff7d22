# SPDX-License-Identifier: Apache-2.0
"""The operator of bodies, its workers, its broker and a recipient, killed while events, receipts and bodies flow.

Every output topic must hold what an undisturbed process emits for the same batches (`tests.crash.bodies_judge`), and the recipient must
have got each message once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import IO

from confluent_kafka import Producer
from validator_xcmp_bodies import records
from validator_xcmp_bodies.job import JOB

from tests.bodies.history import LANE, Named, hostile
from tests.crash.bodies_judge import OUTPUTS, Emitted, Plan, compare, sequence
from tests.crash.comparison import Tally
from tests.crash.jobs import KILLS, JobEpisode
from tests.crash.world import Failure, World
from validator.config import Config
from validator.config.toml import to_toml
from validator.job.installed import configured_job, of_job
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

FOLLOWER = "follower"


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


class BodiesEpisode(JobEpisode[Named]):
    """One run of the operator on the world's broker, with its own topics."""

    job_name = JOB

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        job = configured_job(self.config, JOB)
        self.plan = Plan(job, self.prefix)
        self.checkpoint = Path(of_job(self.config, JOB).job.directory) / "checkpoint"
        create_topics(world.kafka, prefix=self.prefix)
        create_topics(world.kafka, prefix=self.prefix, topics=job.topics)
        self._producer = Producer(producer_config(world.kafka) | {"reconnect.backoff.max.ms": 500})
        self.history: list[Named] = []
        self.produced: Counter[str] = Counter()
        self._compared = 0
        """Records of all output topics, when they were last compared."""

    def run(self) -> tuple[str, int]:
        """Kill everything in turn; return a note and how many processes were killed."""
        kills = [*KILLS, FOLLOWER]
        self._random.shuffle(kills)
        history = [each for each in hostile_history(self._random) if not _is_acknowledged(each, FOLLOWED)]
        self._recipient = Recipient(self._write_configuration())
        try:
            signals = self._survive(kills, history)
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

    def _look(self) -> None:
        self._recipient.poll()
        self.plan.look(self.checkpoint)

    def _has_taken(self) -> bool:
        return self.plan.covers(self.produced)

    def _strike(self, victim: str) -> int:
        return self._recipient.kill() if victim == FOLLOWER else super()._strike(victim)

    # --- feeding ---

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

    # --- comparing ---

    def _settle(self) -> None:
        """Wait until everything written is taken, and compare every output topic."""
        self._wait(self._has_taken, "the operator takes everything")
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
