# SPDX-License-Identifier: Apache-2.0
"""Latency from a block's record to its verdicts, at the rate of a fully used relay chain."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition

from benchmarks.figures import Figure
from benchmarks.service import configuration, encoded, running
from validator.codec.json_form import to_json
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.client import consumer_config, producer_config
from validator.kafka.topics import create_topics
from validator.protocols.router.simulation.load import SettingsLoad

CANDIDATES_PER_BLOCK = 20
BLOCK_S = 1.0
WARM_UP_BLOCKS = 30
BLOCKS = 90


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Send a block each second, its candidates first, and record when each of its verdicts can be read."""
    load = SettingsLoad(
        paras=100, channels=1_000, candidates_per_block=CANDIDATES_PER_BLOCK, blocks=WARM_UP_BLOCKS + BLOCKS
    )
    prefix = "latency."
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        kafka: dict[str, Any] = broker.kafka
        create_topics(kafka, prefix=prefix)
        reader = _Reader(kafka, prefix + "verdicts", CANDIDATES_PER_BLOCK * load.blocks)
        with running(configuration(load, Path(folder), kafka, prefix), Path(folder)) as job:
            job.wait_for("ready")
            say(f"latency: {load.blocks} blocks of {CANDIDATES_PER_BLOCK} candidates, one every {BLOCK_S:.0f} s")
            sent = _send(kafka, prefix, load)
            reader.thread.join(120)
    first = load.first_block + WARM_UP_BLOCKS
    delays = sorted(at - sent[block] for block, at in reader.verdicts if block >= first)
    assert len(delays) == BLOCKS * CANDIDATES_PER_BLOCK, f"{len(delays)} verdicts came"
    p99 = statistics.quantiles(delays, n=100)[98]
    return [
        Figure("latency", "block record to verdict, p50", "s", (statistics.median(delays),), at_most=2.5),
        Figure("latency", "block record to verdict, p99", "s", (p99,)),
    ]


def _send(kafka: dict[str, Any], prefix: str, load: SettingsLoad) -> dict[int, float]:
    """Send the load block by block, the block record last, and return when each block record was sent."""
    producer = Producer(producer_config(kafka) | {"linger.ms": 0})
    key = load.lane.encode()
    sent: dict[int, float] = {}
    number = load.first_block
    following = time.monotonic()
    records = list(encoded(load))
    blocks = [
        list(group) for _, group in groupby(enumerate(records), lambda item: item[0] // (CANDIDATES_PER_BLOCK + 1))
    ]
    for block in blocks:
        for _, (topic, value) in sorted(block, key=lambda item: item[1][0] == "blocks"):
            producer.produce(prefix + topic, value, key)
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
        self._consumer = Consumer(consumer_config(kafka, group_id="latency") | {"fetch.wait.max.ms": 10})
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
