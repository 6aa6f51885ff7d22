# SPDX-License-Identifier: Apache-2.0
"""Which kills a run makes, and in which order; the seed alone determines both."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from random import Random
from typing import Literal

from tests.crash.brokers import CONTROLLER, GROUP_COORDINATOR, LEADER, ROLES, TRANSACTION_COORDINATOR
from tests.crash.clusters import CLUSTER_EPISODES
from tests.crash.inject.crash_failpoints import STEPS
from tests.crash.processes import STAGES

LOGGED = ("offsets-logged", "state-written", "commit-logged")
"""Steps that show as a new file in the checkpoint. They are Spark's own: before, during and after the batch."""

EPISODES = (
    "sigterm",
    "second-job-on-the-directory",
    "second-job-on-the-checkpoint",
    "second-job-without-checkpoint",
    "second-job-takes-over",
    "stopped-worker-comes-back",
    "stopped-job-comes-back",
    "last-commit-deleted",
    "last-commit-and-offsets-deleted",
    "checkpoint-deleted",
    "disk-full",
    "disk-full-during-a-state-write",
    "bodies",
    "journeys",
    "channel",
    "console",
    "parked-lane",
)

Victim = Literal[
    "worker",
    "lane-process",
    "forker",
    "daemon",
    "planner",
    "driver",
    "jvm",
    "broker",
    "machine",
    "executor",
    "spark-worker",
    "spark-master",
    "episode",
]
"""``daemon`` is what forks the workers of a stage, ``planner`` what decides which offsets a batch has; ``machine`` is driver, JVM
and worker together; the next three are processes of a standalone cluster of Spark; an episode is a scenario (`tests.crash.episodes`)."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, or an episode.

    ``step`` is a named step, "random" or the episode's name; a random worker and a daemon have a ``stage``, and a broker of several may
    have a ``role`` (`tests.crash.brokers.ROLES`).
    """

    victim: Victim
    step: str
    stage: str = ""
    countdown: int = 1
    delay_s: float = 0.0
    chunks: int = 1
    broker_pause_s: float = 0.0
    role: str = ""

    @property
    def name(self) -> str:
        """The kill's name in reports."""
        return " ".join(filter(None, (self.victim, self.stage, self.role, self.step)))


SHORT = (
    ("worker", "head-before"),
    ("worker", "commit-after"),
    ("broker", "commit-during"),
    ("machine", "commit-before"),
)
"""The kills of `make test`, besides an episode, at the critical steps. The death of a machine includes that of the driver."""

DEAR_RANDOM = 6


SPARK_VICTIMS: tuple[Victim, ...] = ("executor", "spark-worker", "spark-master", "driver", "jvm")

SPARK_EPISODES = ("checkpoint-stalls", "driver-moved")

EACH_SPARK_EPISODE = 3
RANDOM_OF_VICTIM = 8


def spark_schedule(seed: int, kills: int, brokers: int) -> list[Kill]:
    """Return this many kills of a job on a standalone cluster of Spark, and of its brokers.

    What `full_schedule` kills by its place below the driver is left to that one: executors are no processes of the driver.
    """
    random = Random(seed)
    wanted = [_kill(random, victim, "random") for victim in SPARK_VICTIMS for _ in range(RANDOM_OF_VICTIM)]
    wanted += [_kill(random, "worker", step) for step in CLUSTER_STEPS]
    wanted += [_kill(random, "worker", "random", stage) for stage in STAGES for _ in range(RANDOM_OF_VICTIM // 2)]
    wanted += [Kill("episode", name) for name in SPARK_EPISODES for _ in range(EACH_SPARK_EPISODE)]
    wanted += [_kill(random, "broker", "random", role=role) for role in ROLES] if brokers > 1 else []
    random.shuffle(wanted)
    while len(wanted) < kills:
        wanted.append(_kill(random, random.choice(SPARK_VICTIMS), "random"))
    return wanted[:kills]


SHORT_OF_SPARK: tuple[Victim, ...] = ("executor", "spark-worker", "spark-master")


SHORT_OF_CLUSTER = (
    ("random", LEADER + "markers"),
    ("commit-during", TRANSACTION_COORDINATOR),
    ("random", CONTROLLER),
)
"""Brokers that `make test` kills of three."""

SHORT_CLUSTER_EPISODES = ("two-brokers-at-once", "broker-cut-off-from-peers")


def short_schedule(seed: int, brokers: int = 1, *, on_cluster: bool = False) -> list[Kill]:
    """Return the kills of the short form; with several brokers or on a cluster of Spark, of these alone."""
    random = Random(seed)
    if on_cluster:
        spark = [_kill(random, victim, "random") for victim in SHORT_OF_SPARK]
        return [*spark, *(Kill("episode", name) for name in SPARK_EPISODES)]
    if brokers > 1:
        kills = [_kill(random, "broker", step, role=role) for step, role in SHORT_OF_CLUSTER]
        kills += [Kill("episode", name) for name in SHORT_CLUSTER_EPISODES]
        random.shuffle(kills)
        return kills
    kills = [_kill(random, victim, step, random.choice(STAGES)) for victim, step in SHORT]  # type: ignore[arg-type]
    kills.append(_kill(random, "lane-process", "random"))
    random.shuffle(kills)
    # before the final stop of the job, which saves an additional start
    return [*kills, Kill("episode", "last-commit-and-offsets-deleted")]


CLUSTER_STEPS = (
    "open-after",
    "marker-read",
    "begin-after",
    "produced",
    "commit-before",
    "commit-during",
    "commit-after",
)
"""Steps at which each of `CLUSTER_ROLES` is killed."""

CLUSTER_ROLES = (TRANSACTION_COORDINATOR, GROUP_COORDINATOR, CONTROLLER, LEADER + "markers", LEADER + "verdicts")

RANDOM_OF_ROLE = 4
EACH_CLUSTER_EPISODE = 4


def cluster_schedule(random: Random) -> list[Kill]:
    """Return the kills that several brokers add: each role at random, the important ones at the steps of a commit, every episode."""
    wanted = [_kill(random, "broker", "random", role=role) for role in ROLES for _ in range(RANDOM_OF_ROLE)]
    wanted += [_kill(random, "broker", step, role=role) for role in CLUSTER_ROLES for step in CLUSTER_STEPS]
    return wanted + [Kill("episode", name) for name in CLUSTER_EPISODES for _ in range(EACH_CLUSTER_EPISODE)]


def full_schedule(seed: int, kills: int, brokers: int = 1) -> list[Kill]:
    """Return this many kills: every step with worker, broker and either driver, JVM or both; every episode; the rest at random.

    With several brokers, also those of `cluster_schedule`. If ``kills`` is less than all of these, return a sample of them.
    """
    random = Random(seed)
    wanted: list[Kill] = []
    dear: cycle[Victim] = cycle(("driver", "machine", "jvm"))
    for step in STEPS:
        wanted += [_kill(random, "worker", step), _kill(random, "broker", step), _kill(random, "driver", step)]
        wanted += [_kill(random, next(dear), step)] * (random.random() < 0.5)
    wanted += [_kill(random, victim, step) for step in LOGGED for victim in ("driver", "machine")]
    wanted += [_kill(random, next(dear), "random") for _ in range(DEAR_RANDOM)]
    wanted += [_kill(random, "broker", "random") for _ in range(12)]
    wanted += [Kill("episode", name) for name in EPISODES]
    wanted += [_kill(random, "worker", "random", stage) for stage in STAGES for _ in range(6)]
    wanted += [_kill(random, "daemon", "random", stage) for stage in STAGES for _ in range(3)]
    wanted += [_kill(random, "planner", "random") for _ in range(4)]
    wanted += [_kill(random, "lane-process", "random") for _ in range(6)]
    wanted += [_kill(random, "forker", "random") for _ in range(3)]
    wanted += cluster_schedule(random) if brokers > 1 else []
    random.shuffle(wanted)
    steps = cycle(sorted(STEPS))
    while len(wanted) < kills:
        wanted.append(
            _kill(random, "worker", next(steps))
            if random.random() < 0.7
            else _kill(random, "worker", "random", random.choice(STAGES))
        )
    return wanted[:kills]


def _kill(random: Random, victim: Victim, step: str, stage: str = "", role: str = "") -> Kill:
    first = step in STEPS and (STEPS[step].fresh or STEPS[step].rare)
    return Kill(
        victim,
        step,
        stage if step == "random" and victim in ("worker", "daemon") else "",
        countdown=1 if first else random.randint(1, 4),
        delay_s=random.uniform(0, 0.02) if step == "commit-during" else random.uniform(0, 2.5) * (step == "random"),
        chunks=random.choice((1, 1, 4)),
        broker_pause_s=random.choice((0.0, 0.0, 2.0)),
        role=role,
    )
