# SPDX-License-Identifier: Apache-2.0
"""The cost of exactly-once: the same job on the same backlog, with and without transactions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from validator_simulators.router.load import SettingsLoad

from benchmarks.catch_up import CANDIDATES_PER_BLOCK, RECORDS_PER_TRIGGER, job_run
from benchmarks.figures import Figure
from benchmarks.service import configuration, encoded, produce, reset_output
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics

CANDIDATES = 800_000
MODULES = {"exactly once": "streaming", "at least once": "benchmarks.at_least_once"}


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure both on one backlog, in turns."""
    load = SettingsLoad(
        paras=100, channels=1_000, candidates_per_block=CANDIDATES_PER_BLOCK, blocks=CANDIDATES // CANDIDATES_PER_BLOCK
    )
    rates: dict[str, list[float]] = {name: [] for name in MODULES}
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        kafka = broker.kafka
        create_topics(kafka, prefix="bench.")
        say(f"exactly once: producing {CANDIDATES:,} candidates")
        total = produce(kafka, "bench.", load.lane, encoded(load))
        for turn in range(repeats):
            # the later run finds a warmer broker and a fuller log, so the two take turns
            for name in list(MODULES) if turn % 2 == 0 else reversed(list(MODULES)):
                say(f"exactly once {turn + 1}/{repeats}: {name}")
                reset_output(kafka, "bench.", load.lane)
                directory = Path(folder) / f"{turn}-{MODULES[name]}"
                directory.mkdir()
                config = configuration(
                    load,
                    directory,
                    kafka,
                    "bench.",
                    max_records_per_trigger=RECORDS_PER_TRIGGER,
                    root_interval_blocks=0,
                )
                rates[name].append(job_run(config, directory, total, CANDIDATES, MODULES[name]).warm)
    share = tuple(
        exactly / at_least for exactly, at_least in zip(rates["exactly once"], rates["at least once"], strict=True)
    )
    figures = [Figure("exactly_once", f"job, {name}", "candidates/s", tuple(rates[name])) for name in MODULES]
    return [*figures, Figure("exactly_once", "exactly once against at least once", "times", share, at_least=0.85)]
