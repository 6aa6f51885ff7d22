# SPDX-License-Identifier: Apache-2.0
"""Catching up with the backlog of one chain: the job against the same codec and core without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from validator_simulators.router.load import SettingsLoad

from benchmarks.figures import Figure
from benchmarks.processes import processor_seconds, used_between
from benchmarks.service import configuration, encoded, end_offset, produce, records_since, reset_output, running
from validator.config import Config
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics

CANDIDATES = 500_000
CANDIDATES_PER_BLOCK = 100
RECORDS_PER_TRIGGER = 200_000


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure all three on one backlog, one after another, several times."""
    load = SettingsLoad(
        paras=100, channels=1_000, candidates_per_block=CANDIDATES_PER_BLOCK, blocks=CANDIDATES // CANDIDATES_PER_BLOCK
    )
    rates: dict[str, list[float]] = {"plain": [], "quix": [], "warm": [], "cold": []}
    processor: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        directory = Path(folder)
        kafka = broker.kafka
        create_topics(kafka, prefix="bench.")
        say(f"catch-up: producing {CANDIDATES:,} candidates")
        total = produce(kafka, "bench.", load.lane, encoded(load))
        for turn in range(repeats):
            config = configuration(
                load, directory, kafka, "bench.", max_records_per_trigger=RECORDS_PER_TRIGGER, root_interval_blocks=0
            )
            config = config.model_copy(
                update={"job": config.job.model_copy(update={"directory": str(directory / f"job-{turn}")})}
            )
            for peer in ("plain", "quix"):
                say(f"catch-up {turn + 1}/{repeats}: {peer}")
                with _writes_all_verdicts(kafka, peer):
                    rates[peer].append(CANDIDATES / _peer(peer, config, directory, total))
            say(f"catch-up {turn + 1}/{repeats}: the job")
            reset_output(kafka, "bench.", load.lane)
            with _writes_all_verdicts(kafka, "the job"):
                job = job_run(config, directory, total, CANDIDATES)
            rates["warm"].append(job.warm)
            rates["cold"].append(job.cold)
            for kind, microseconds in job.processor_us.items():
                processor.setdefault(kind, []).append(microseconds)
    return [*_figures(rates), *processor_figures("catch_up", processor)]


@contextmanager
def _writes_all_verdicts(kafka: dict[str, Any], who: str) -> Iterator[None]:
    """Check that a verdict for every candidate has been written."""
    before = end_offset(kafka, "bench.verdicts")
    yield
    verdicts = records_since(kafka, "bench.verdicts", before)
    if verdicts != CANDIDATES:
        raise RuntimeError(f"{who} wrote {verdicts} verdicts, expected {CANDIDATES}")


def _figures(rates: dict[str, list[float]]) -> list[Figure]:
    against_plain, whole_against_plain, against_quix = (
        tuple(job / peer for job, peer in zip(rates[job_rate], rates[peer_rate], strict=True))
        for job_rate, peer_rate in (("warm", "plain"), ("cold", "plain"), ("warm", "quix"))
    )
    warm_note = "batches after the first, in which Spark and its workers load their code"
    return [
        Figure("catch_up", "plain loop", "candidates/s", tuple(rates["plain"])),
        Figure("catch_up", "Quix Streams", "candidates/s", tuple(rates["quix"])),
        Figure("catch_up", "job", "candidates/s", tuple(rates["warm"]), note=warm_note),
        Figure("catch_up", "job, first batch included", "candidates/s", tuple(rates["cold"])),
        Figure("catch_up", "job against plain loop", "times", against_plain, at_least=1.0),
        Figure("catch_up", "job, first batch included, against plain loop", "times", whole_against_plain, at_least=0.8),
        Figure("catch_up", "job against Quix Streams", "times", against_quix, at_least=1.6),
    ]


def _peer(peer: str, config: Config, directory: Path, total: int) -> float:
    path = directory / "peer.json"
    path.write_text(json.dumps(config.model_dump(mode="json")), encoding="utf-8")
    command = [sys.executable, "-m", f"benchmarks.peers.{peer}", str(path), str(total)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{peer} failed: {done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of the job: candidates/s without and with the first batch, in which the time between two batches counts.

    ``processor_us`` is the processor time of a candidate after the first batch, in us, by kind of process (`benchmarks.processes`).
    """

    warm: float
    cold: float
    processor_us: dict[str, float]


def job_run(config: Config, directory: Path, total: int, candidates: int, module: str = "streaming") -> JobRun:
    """Run the job over a backlog of ``total`` records."""
    with running(config, module) as job:
        job.wait_for("batch")
        before, taken = processor_seconds(job.pid), sum(batch["records"] for batch in job.batches())
        job.wait_for_records(total)
        used = used_between(before, processor_seconds(job.pid))
        ready, ended = job.ready_at(), job.batch_ends()
    share = candidates / total
    (first_end, first_records), (last_end, _) = ended[0], ended[-1]
    return JobRun(
        share * (total - first_records) / (last_end - first_end),
        candidates / (last_end - ready),
        {kind: seconds / (share * (total - taken)) * 1e6 for kind, seconds in used.items()},
    )


def processor_figures(benchmark: str, by_kind: dict[str, list[float]]) -> list[Figure]:
    """Return the processor time of a candidate in each kind of the job's processes, and in all."""
    runs = [sum(each) for each in zip(*by_kind.values(), strict=True)]
    return [
        Figure(benchmark, f"processor time of a candidate, {kind}", "us", tuple(each))
        for kind, each in {**dict(sorted(by_kind.items())), "all processes of the job": runs}.items()
    ]
