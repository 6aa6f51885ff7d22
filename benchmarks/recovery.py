# SPDX-License-Identifier: Apache-2.0
"""Time from `kill -9` of the job to its next verdict, on a small chain and on a very large one."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from validator_simulators.router.load import SettingsLoad

from benchmarks.core import initial_state
from benchmarks.figures import Figure
from benchmarks.service import configuration, encoded, end_offset, produce, running
from validator.config import Config
from validator.core.rules import LaneRules, pages
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.topics import create_topics
from validator.lanes.configured import chain_runtime
from validator.lanes.definition import genesis_path, keep_genesis
from validator.protocols.router.rules import ROUTER

SIZES = ((100, 1_000), (10_000, 1_000_000))
"""(paras, channels)."""

CANDIDATES_PER_BLOCK = 100
BLOCKS_BEFORE = 200
"""Blocks whose inputs are in the journal when the job is killed."""
RECORDS_PER_TRIGGER = 4_000
PHASES = ("process start", "state rebuild", "rest of the first batch", "kill to verdict")
GOALS_S = {("state rebuild", 1_000_000): 20.0, ("kill to verdict", 1_000): 15.0, ("kill to verdict", 1_000_000): 22.0}
"""By phase and channels."""


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure the phases at each size."""
    figures = []
    for paras, channels in SIZES:
        load = SettingsLoad(
            paras=paras,
            channels=channels,
            candidates_per_block=CANDIDATES_PER_BLOCK,
            blocks=BLOCKS_BEFORE + repeats,
            message_size_bytes=120,
        )
        with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
            kafka = broker.kafka
            phases, state_bytes = _kill_and_recover(load, Path(folder), kafka, repeats, say)
        for name in PHASES:
            goal = GOALS_S.get((name, channels))
            note = f"{state_bytes / 1e6:,.1f} MB of pages" if name == "state rebuild" else ""
            figures.append(
                Figure("recovery", f"{channels:,} channels: {name}", "s", tuple(phases[name]), at_most=goal, note=note)
            )
    return figures


def _kill_and_recover(
    load: SettingsLoad, folder: Path, kafka: dict[str, Any], repeats: int, say: Callable[[str], None]
) -> tuple[dict[str, list[float]], int]:
    prefix = "recovery."
    create_topics(kafka, prefix=prefix)
    config = _prepared(load, folder, kafka, prefix)
    records = encoded(load)
    per_block = CANDIDATES_PER_BLOCK + 1
    before = produce(kafka, prefix, load.lane, islice(records, BLOCKS_BEFORE * per_block))
    say(f"recovery: {load.channels:,} channels, {BLOCKS_BEFORE} blocks before the first kill")
    phases: dict[str, list[float]] = {name: [] for name in PHASES}
    state_bytes = 0
    with running(config) as job:
        job.wait_for_records(before)
        job.kill()
    for turn in range(repeats):
        say(f"recovery: {load.channels:,} channels, kill {turn + 1}/{repeats}")
        produce(kafka, prefix, load.lane, islice(records, per_block))
        verdicts = end_offset(kafka, f"{prefix}verdicts")
        seen = len(_recoveries(folder))
        with running(config) as job:
            ready = job.wait_for("ready")
            while end_offset(kafka, f"{prefix}verdicts") == verdicts:
                time.sleep(0.02)
            verdict = time.monotonic()
            job.wait_for_records(per_block)
            job.kill()
        (recovery,) = _recoveries(folder)[seen:]
        state_bytes = recovery["slots_bytes"]
        spans = (ready - job.began, recovery["seconds"], verdict - ready - recovery["seconds"], verdict - job.began)
        for name, seconds in zip(PHASES, spans, strict=True):
            phases[name].append(seconds)
    return phases, state_bytes


def _prepared(load: SettingsLoad, folder: Path, kafka: dict[str, Any], prefix: str) -> Config:
    """Return the job's configuration, with the lane's genesis already stored as the job stores it after reading the state file.

    The JSON of a million channels has a third of a gigabyte, and a job reads it only once.
    """
    config = configuration(load, folder, kafka, prefix, write_state=False, max_records_per_trigger=RECORDS_PER_TRIGGER)
    runtime = chain_runtime(config.chains[load.lane], load.lane)
    path = genesis_path(folder / "job" / "lanes", load.lane, runtime.digest, runtime.protocol.encoding_version)
    keep_genesis(path, (load.first_block, tuple(pages(LaneRules(ROUTER, initial_state(load))))))
    return config


def _recoveries(folder: Path) -> list[dict[str, Any]]:
    return list(_events(folder / "job" / "logs" / "spark-output.log", "recovered"))


def _events(log: Path, event: str) -> Iterator[dict[str, Any]]:
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if f'"event": "{event}"' in line:
            yield json.loads(line[line.index("{") :])
