# SPDX-License-Identifier: Apache-2.0
"""The job `journeys`: each stage on one core, the job on Kafka and Spark, and the memory of messages that wait."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import psutil
from confluent_kafka import Producer
from validator_journeys import records
from validator_journeys.content import content_of
from validator_journeys.job import JOB
from validator_journeys.waiting import By, Channels, Queue, Queued, Waiting, pack
from validator_simulators import SimulationSettings
from validator_simulators.installed import chain_table, simulation_of
from validator_simulators.settings import PROFILES

from benchmarks.core import CODEC
from benchmarks.figures import Figure
from benchmarks.service import produce, records_since, running
from streaming.workers import tune_garbage_collector
from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input
from validator.config import Config
from validator.core.inputs import DeadLetter, Source
from validator.job.installed import configured_job, create_job_topics
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics
from validator.lanes.configured import lane_definition
from validator.lanes.keyed import ordered
from validator.lanes.processor import LaneProcessor
from validator.plugin.job_api import JobItem, JobRecord
from validator.topics import INPUT_TOPICS

PREFIX: Final = "bench."
BLOCKS: Final = 64
LANES: Final = ("bench-a", "bench-b")
WARM_BLOCKS: Final = 3
OUTPUTS: Final = (records.VERDICTS, records.DISPATCHES, records.EVENTS, records.RECEIPTS)
RECORDS_PER_MESSAGE: Final = 2
"""One when it is queued, one when it ends."""
START_S_MAX: Final = 60.0
"""Seconds that a step of a transaction may take."""
WAITING: Final = 1_000_000
GOAL: Final = 20_000
"""Messages per second of all lanes."""

XCM: Final = bytes.fromhex(
    "0003100104000100000700f2052a010a13000100000700f2052a01000d01020400010100f2529946850f8dd66c794a795a6b01a911f25df0"
    "07e4cf5f97f38a037380f250"
)
"""A transfer from the relay chain that Kusama has recorded, as a horizontal message."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """A chain full of messages: its configuration, and what its lane reads and writes, by block in order."""

    tables: dict[str, Any]
    blocks: tuple[tuple[tuple[str, bytes], ...], ...]


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure a stage at a time, then the job, then memory."""
    traffic = [_traffic(lane, seed) for seed, lane in enumerate(LANES, 1)]
    condensed, processed, rates, whole = [], [], [], []
    for turn in range(repeats):
        say(f"journeys {turn + 1}/{repeats}: stages")
        for figures, rate in zip((condensed, processed, whole), _stages(traffic[0]), strict=True):
            figures.append(rate)
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        for turn in range(repeats):
            say(f"journeys {turn + 1}/{repeats}: job")
            rates.append(_job_rate(broker.kafka, Path(folder) / f"job-{turn}", f"{PREFIX}{turn}.", traffic))
    say(f"journeys: {WAITING:,} messages that wait")
    sizes = tuple(_waiting_bytes() for _ in range(repeats))
    return [
        Figure("journeys", "condense, one core", "records/s", tuple(condensed), note="a chain full of messages"),
        Figure("journeys", "state of a lane, one core", "messages/s", tuple(processed)),
        Figure("journeys", "both, one core", "messages/s", tuple(whole)),
        Figure("journeys", "job, 2 lanes", "messages/s", tuple(rates), note="batches after the first", at_least=GOAL),
        Figure("journeys", f"{WAITING:,} messages that wait", "GiB", tuple(size / 2**30 for size in sizes), at_most=1),
    ]


def _traffic(lane: str, seed: int) -> Traffic:
    settings = {**PROFILES["ceiling"], "blocks": WARM_BLOCKS + BLOCKS}
    simulation = simulation_of("router", SimulationSettings(seed=seed, lane=lane, **settings))
    tables = {lane: chain_table(simulation.chain())}
    config = Config.model_validate({"chains": tables, "job": {"directory": "nowhere"}})
    processor = LaneProcessor.create(lane_definition(config, lane))
    blocks, offsets = [], Counter[str]()
    for block in simulation.blocks():
        items, history = [], []
        for topic, body in block.records:
            value = encode_input(CODEC, INPUT_TOPICS[topic], _with_transfers(body), "router")
            decoded = decode_record(CODEC, INPUT_TOPICS[topic], value, Source(topic, 0, offsets[topic]), lane.encode())
            assert not isinstance(decoded, DeadLetter), decoded
            items.append(decoded[1])
            offsets[topic] += 1
            history.append((topic, value))
        for output in processor.process(items):
            history += [(record.topic, record.value) for record in output.records if record.topic in OUTPUTS]
        blocks.append(tuple(history))
    return Traffic(tables, tuple(blocks))


def _with_transfers(body: dict[str, Any]) -> dict[str, Any]:
    """Return a record whose horizontal messages are transfers, if they may be as long."""
    if "horizontal_messages" not in body:
        return body
    messages = [
        {**each, "data": XCM.hex()} if len(each["data"]) >= 2 * len(XCM) else each
        for each in body["horizontal_messages"]
    ]
    return {**body, "horizontal_messages": messages}


def _job(traffic: list[Traffic], kafka: dict[str, Any], directory: Path, prefix: str) -> Config:
    tables = {lane: table for each in traffic for lane, table in each.tables.items()}
    job = {"directory": str(directory)}
    return Config.model_validate(
        {"topics": {"prefix": prefix}, "kafka": kafka, "job": job, "chains": tables, "jobs": {JOB: {}}}
    )


def _stages(traffic: Traffic) -> tuple[float, float, float]:
    """Return the records/s of the stateless stage, the messages/s of the stateful one, and those of both on one core."""
    job = configured_job(_job([traffic], {}, Path("nowhere"), PREFIX), JOB)
    history = [each for block in traffic.blocks for each in block]
    read = [
        JobRecord(topic, 0, at, None, value)
        for at, (topic, value) in enumerate(history)
        if topic in (*job.causes, *job.effects)
    ]
    gc.collect()
    gc.freeze()
    tune_garbage_collector()
    began = time.process_time()
    items = [JobItem(*record[:3], content) for record in read for _, content in job.condense(record)]
    condensed = time.process_time() - began
    state, batch = job.restore(job.keys[0], {}), ordered(job, items)
    began = time.process_time()
    output = state.process(batch)
    stored = sum(1 for _ in state.changes())
    processed = time.process_time() - began
    gc.unfreeze()
    messages = len({record.key for record in output})
    assert stored
    return len(read) / condensed, messages / processed, messages / (condensed + processed)


def _job_rate(kafka: dict[str, Any], directory: Path, prefix: str, traffic: list[Traffic]) -> float:
    """Return messages/s from the moment at which a backlog of all lanes is visible; the job has had some blocks before."""
    config = _job(traffic, kafka, directory, prefix)
    create_topics(kafka, prefix=prefix)
    create_job_topics(config, configured_job(config, JOB))
    settings = {"transactional.id": f"{prefix}lanes", "queue.buffering.max.messages": 1_000_000}
    producer = Producer(producer_config(kafka) | settings)
    producer.init_transactions(START_S_MAX)
    read = 0

    def write(first: int, end: int) -> None:
        nonlocal read
        producer.begin_transaction()
        for each in traffic:
            lane = next(iter(each.tables))
            part = [record for block in each.blocks[first:end] for record in block if record[0] != "channel-requests"]
            read += produce(kafka, prefix, lane, part, producer)
        producer.commit_transaction(START_S_MAX)

    with running(config, "streaming", "--job", JOB) as job:
        write(0, WARM_BLOCKS)
        job.wait_for_records(read)
        before, written = len(job.batch_ends()), records_since(kafka, prefix + records.JOURNEYS, 0)
        began = time.time()
        write(WARM_BLOCKS, WARM_BLOCKS + BLOCKS)
        began = time.time()
        job.wait_for_records(read)
        ended = job.batch_ends()[-1][0]
        assert len(job.batch_ends()) > before
    return (records_since(kafka, prefix + records.JOURNEYS, 0) - written) / RECORDS_PER_MESSAGE / (ended - began)


def _waiting_bytes() -> float:
    """Return the memory of messages that wait, each with the summary of a transfer, over a thousand channels."""
    gc.collect()
    process = psutil.Process()
    before = process.memory_info().rss
    waiting = Waiting("polkadot", Channels.OWN_QUEUES)
    summary = content_of("horizontal", XCM)
    channels = 1_000
    for number in range(WAITING):
        queue = waiting.queues.setdefault((number % channels, 10_000), Queue(17))
        head, payload_hash, candidate = (
            blake2b(bytes([side]) + number.to_bytes(8), digest_size=32).digest() for side in range(3)
        )
        content = summary._replace(hash=payload_hash)
        by = By("candidate", number % 100, candidate)
        queue.waiting[1 + number // channels] = pack(Queued(20_000_000 + number, by, number % channels, head, content))
    return process.memory_info().rss - before
