# SPDX-License-Identifier: Apache-2.0
"""Latency from a block's record to its verdicts, at the rate of a fully used relay chain and at ten times that, and what a batch costs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from validator_simulators.router.load import SettingsLoad

from benchmarks.figures import Figure
from benchmarks.processes import processor_seconds, used_between
from benchmarks.service import configuration, encoded, running
from validator.codec.json_form import to_json
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.settings import COMMITS, consumer_config, producer_config
from validator.kafka.topics import create_topics

RATES = {20: (0.8, 1.5), 200: (1.0, None)}
"""By candidates of a block, the goals of median and 99th percentile in seconds."""

BLOCK_S = 1.0
WARM_UP_BLOCKS = 30
BLOCKS = 90
PREFIX = "latency."
PARTS = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets", "triggerExecution")
"""What Spark reports of a batch's time; the last one is the whole."""


@dataclass(frozen=True, slots=True)
class Latency:
    """``delays_s`` from a block's record to each verdict; of a batch ``parts_ms`` (medians), and processor time by kind of process."""

    delays_s: list[float]
    parts_ms: dict[str, float]
    processor_ms: dict[str, float]

    @property
    def p50(self) -> float:
        """The median in seconds."""
        return statistics.median(self.delays_s)

    @property
    def p99(self) -> float:
        """The 99th percentile in seconds."""
        return statistics.quantiles(self.delays_s, n=100)[98]


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure at each rate, once."""
    figures = []
    for candidates, (p50_max, p99_max) in RATES.items():
        say(f"latency: {WARM_UP_BLOCKS + BLOCKS} blocks of {candidates} candidates, one every {BLOCK_S:.0f} s")
        found = measured(candidates, WARM_UP_BLOCKS, BLOCKS)
        name = f"{candidates} candidates/s"
        figures += [
            Figure("latency", f"{name}: block record to verdict, p50", "s", (found.p50,), at_most=p50_max),
            Figure("latency", f"{name}: block record to verdict, p99", "s", (found.p99,), at_most=p99_max),
        ]
        figures += [
            Figure("latency", f"{name}: {part} of a batch", "ms", (found.parts_ms[part],), note="median")
            for part in PARTS
        ]
        figures += [
            Figure("latency", f"{name}: processor time of a batch, {kind}", "ms", (each,))
            for kind, each in sorted(found.processor_ms.items())
        ]
    return figures


def measured(candidates_per_block: int, warm_up_blocks: int, blocks: int) -> Latency:
    """Send a block each second, its candidates first, and record when each of its verdicts can be read."""
    load = SettingsLoad(
        paras=max(100, candidates_per_block),
        channels=1_000,
        candidates_per_block=candidates_per_block,
        blocks=warm_up_blocks + blocks,
    )
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        kafka: dict[str, Any] = broker.kafka
        create_topics(kafka, prefix=PREFIX)
        reader = _Reader(kafka, PREFIX + "verdicts", candidates_per_block * load.blocks)
        with running(configuration(load, Path(folder), kafka, PREFIX)) as job:
            job.wait_for("ready")
            records = list(encoded(load))
            warm = warm_up_blocks * (candidates_per_block + 1)
            sent = _send(kafka, load, 0, records[:warm])
            before, warm_batches = processor_seconds(job.pid), len(job.batches())
            sent |= _send(kafka, load, warm_up_blocks, records[warm:])
            reader.thread.join(120)
            used = used_between(before, processor_seconds(job.pid))
            batches = job.batches()[warm_batches:]
    delays = sorted(at - sent[block] for block, at in reader.verdicts if block >= load.first_block + warm_up_blocks)
    assert len(delays) == blocks * candidates_per_block, f"{len(delays)} verdicts came"
    parts = {part: statistics.median(batch["milliseconds"].get(part, 0) for batch in batches) for part in PARTS}
    return Latency(delays, parts, {kind: 1_000 * seconds / len(batches) for kind, seconds in used.items()})


def _send(kafka: dict[str, Any], load: SettingsLoad, first: int, records: list[tuple[str, bytes]]) -> dict[int, float]:
    """Send the load's blocks from the ``first`` on, one every `BLOCK_S`, their block records last; return when those were sent."""
    producer = Producer(producer_config(kafka) | {"linger.ms": 0})
    key = load.lane.encode()
    sent: dict[int, float] = {}
    number = load.first_block + first
    following = time.monotonic()
    per_block = load.candidates_per_block + 1
    for _, block in groupby(enumerate(records), lambda item: item[0] // per_block):
        for _, (topic, value) in sorted(block, key=lambda item: item[1][0] == "blocks"):
            producer.produce(PREFIX + topic, value, key)
        sent[number] = time.monotonic()
        producer.flush()
        number += 1
        following += BLOCK_S
        time.sleep(max(0.0, following - time.monotonic()))
    return sent


class _Reader:
    """Reads verdicts as they arrive, in a separate thread."""

    def __init__(self, kafka: dict[str, Any], topic: str, expected: int) -> None:
        self.verdicts: list[tuple[int, float]] = []
        self._expected = expected
        self._consumer = Consumer(consumer_config(kafka, COMMITS, group_id="latency") | {"fetch.wait.max.ms": 10})
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
        self.thread = threading.Thread(target=self._read, args=(time.monotonic() + 600,), daemon=True)
        self.thread.start()

    def _read(self, deadline: float) -> None:
        while len(self.verdicts) < self._expected and time.monotonic() < deadline:
            message = self._consumer.poll(0.5)
            if message is not None and not message.error():
                at = time.monotonic()
                self.verdicts.append((to_json("verdicts", message.value())["block"], at))
        self._consumer.close()
