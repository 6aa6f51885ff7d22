# SPDX-License-Identifier: Apache-2.0
"""One local job with 1, 4, 20 and 100 chains: rate of a backlog, memory, and how long a block of every chain takes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.chains import CANDIDATES_PER_BLOCK, LOCAL, configuration_of, load_of, prefix_of
from benchmarks.figures import Figure
from benchmarks.processes import processor_seconds, resident_mib, used_between
from benchmarks.service import Job, encoded_blocks, produce, producer_of, running
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics

COUNTS = (1, 4, 20, 100)
CANDIDATES = 100_000
"""Candidates of the backlog, of all chains together."""

ROUNDS = 5
"""How often each chain brings another block after the backlog, all of them at the same time."""

LANES = "lanes workers"


@dataclass(frozen=True, slots=True)
class LanesRun:
    """What one run has measured: candidates/s after the first batch; MiB by kind of process; the median of `ROUNDS` rounds in seconds of
    batches, and seconds of processor time for one."""

    rate: float
    memory: dict[str, float]
    round_s: float
    round_processor_s: float


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure each number of chains, in turns, several times; each has the same number of candidates."""
    found: dict[int, list[LanesRun]] = {count: [] for count in COUNTS}
    for turn in range(repeats):
        for count in COUNTS:
            say(f"lanes {turn + 1}/{repeats}: {count}")
            with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
                found[count].append(_measured(count, Path(folder), broker.kafka))
    return [figure for count, runs in found.items() for figure in _figures(count, runs)]


def _measured(count: int, folder: Path, kafka: dict[str, object]) -> LanesRun:
    lanes = tuple(f"chain-{number}" for number in range(count))
    prefix = prefix_of(lanes)
    create_topics(kafka, prefix=prefix)
    blocks = CANDIDATES // count // CANDIDATES_PER_BLOCK
    left = {lane: encoded_blocks(load_of(lane, blocks + ROUNDS)) for lane in lanes}
    producer = producer_of(kafka)

    def produce_block() -> int:
        """Send the next block of every chain, and return how many records that are."""
        return sum(produce(kafka, prefix, lane, next(each), producer) for lane, each in left.items())

    total = sum(produce_block() for _ in range(blocks))
    config = configuration_of(lanes, LOCAL, folder, kafka)
    with running(config) as job:
        job.wait_for("batch")
        job.wait_for_records(total)
        rate, memory = _rate(job, CANDIDATES / total), resident_mib(job.pid)
        rounds, before = [], processor_seconds(job.pid)
        for _ in range(ROUNDS):
            done = len(job.batches())
            total += produce_block()
            job.wait_for_records(total)
            rounds.append(sum(each["milliseconds"]["triggerExecution"] for each in job.batches()[done:]) / 1000)
        used = used_between(before, processor_seconds(job.pid))
    return LanesRun(rate, memory, statistics.median(rounds), sum(used.values()) / ROUNDS)


def _rate(job: Job, candidates_per_record: float) -> float:
    (first_end, _), *others = job.batch_ends()
    return candidates_per_record * sum(records for _, records in others) / (others[-1][0] - first_end)


def _figures(count: int, runs: list[LanesRun]) -> list[Figure]:
    name = "1 chain" if count == 1 else f"{count} chains"

    def figure(what: str, unit: str, of: Callable[[LanesRun], float], note: str = "") -> Figure:
        return Figure("lanes", f"{name}: {what}", unit, tuple(map(of, runs)), note=note)

    return [
        figure("backlog, after the first batch", "candidates/s", lambda run: run.rate),
        figure("memory of all processes", "MiB", lambda run: sum(run.memory.values())),
        figure("memory of the lanes' workers", "MiB", lambda run: run.memory[LANES]),
        figure("a block of every chain", "s", lambda run: run.round_s, f"{CANDIDATES_PER_BLOCK} candidates each"),
        figure("... processor time", "s", lambda run: run.round_processor_s),
    ]
