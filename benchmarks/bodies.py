# SPDX-License-Identifier: Apache-2.0
"""Bodies of XCMP messages: verification against the hash function alone, and the job against a consumer that only verifies."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from validator_xcmp_bodies import records
from validator_xcmp_bodies.parts import Part, condense, join, measure

from benchmarks.figures import Figure
from benchmarks.service import end_offset, produce, records_since, running
from streaming.workers import tune_garbage_collector
from validator.codec.encode import write
from validator.codec.schemas import schemas
from validator.config import Config
from validator.job.installed import configured_job, create_job_topics
from validator.kafka.broker import EmbeddedBroker
from validator.kafka.settings import COMMITS, consumer_config
from validator.kafka.topics import create_topics

LANE, PREFIX = "bench", "bench."
PAYLOAD_BYTES = 64 * 1024
BODIES = 9_000
RECIPIENTS = 16
BODIES_PER_TRIGGER = 3_000
HASHED_BODIES = 2_000
MEGABYTE = 1e6


def run(say: Callable[[str], None], repeats: int) -> list[Figure]:
    """Measure both pairs, one after the other in each turn."""
    alone, verified = [], []
    for turn in range(repeats):
        say(f"bodies {turn + 1}/{repeats}: verification")
        one, other = _hash_rates()
        alone.append(one)
        verified.append(other)
    plain, warm = _job_rates(say, repeats)
    return [
        Figure("bodies", "BLAKE2b alone, one core", "MB/s", tuple(alone)),
        Figure(
            "bodies", "verification, one core", "MB/s", tuple(verified), note="payloads of 64 KiB: condense and join"
        ),
        Figure("bodies", "verification against BLAKE2b", "times", _ratios(verified, alone), at_least=0.8),
        Figure("bodies", "consumer that only verifies", "MB/s", tuple(plain), note="bodies of 64 KiB"),
        Figure("bodies", "job", "MB/s", tuple(warm), note="batches after the first"),
        Figure("bodies", "job against the consumer", "times", _ratios(warm, plain), at_least=0.5),
    ]


def _ratios(ones: list[float], others: list[float]) -> tuple[float, ...]:
    return tuple(one / other for one, other in zip(ones, others, strict=True))


def _hash_rates() -> tuple[float, float]:
    """Return MB/s of the hash alone and of a body's verification, over the same payloads in turns, so that both see the same machine."""
    payloads = [os.urandom(PAYLOAD_BYTES) for _ in range(4)]
    alone = verified = 0.0
    for _ in range(HASHED_BODIES):
        began = time.perf_counter()
        for payload in payloads:
            blake2b(payload, digest_size=32).digest()
        between = time.perf_counter()
        join([condense(Part(tuple(payloads[:3]))), condense(Part(tuple(payloads[3:])))])
        alone += between - began
        verified += time.perf_counter() - between
    size = HASHED_BODIES * len(payloads) * PAYLOAD_BYTES / MEGABYTE
    return size / alone, size / verified


def _backlog() -> Iterator[tuple[str, bytes]]:
    """Yield (topic, value): events that list the bodies, a receipt is not needed, then the bodies."""
    for number in range(BODIES):
        payloads = [os.urandom(PAYLOAD_BYTES)]
        name = (number % 7, 100 + number % RECIPIENTS, 1 + number // RECIPIENTS)
        found = measure(payloads)
        sender, recipient, sent_at = name
        event: dict[str, Any] = {
            "lane": LANE,
            "block": sent_at,
            "index": number % RECIPIENTS,
            "event": "queued",
            "recipient": recipient,
            "sender": sender,
            "sent_at": sent_at,
            "root": found.root,
            "size": found.size,
            "runtime_digest": bytes(32),
        }
        yield records.INGRESS, write(schemas()["validator.IngressEvent"], event)
        for record in records.encode_body(LANE, name, payloads, found.root):
            yield record.topic, record.value


def _job_rates(say: Callable[[str], None], repeats: int) -> tuple[list[float], list[float]]:
    size = BODIES * PAYLOAD_BYTES / MEGABYTE
    plain, warm = [], []
    with TemporaryDirectory() as folder, EmbeddedBroker(Path(folder) / "broker") as broker:
        kafka: dict[str, Any] = broker.kafka
        for turn in range(repeats):
            prefix = f"{PREFIX}{turn}."
            config = _configuration(Path(folder) / f"job-{turn}", kafka, prefix)
            create_topics(kafka, prefix=prefix)
            create_job_topics(config, configured_job(config, "xcmp-bodies"))
            say(f"bodies {turn + 1}/{repeats}: producing {size:,.0f} MB")
            produce(kafka, prefix, LANE, _backlog())
            say(f"bodies {turn + 1}/{repeats}: consumer")
            plain.append(size / _consume(kafka, prefix))
            say(f"bodies {turn + 1}/{repeats}: job")
            before = end_offset(kafka, f"{prefix}{records.HELD}")
            warm.append(_run_job(config, Path(folder)))
            held = records_since(kafka, f"{prefix}{records.HELD}", before)
            if held != BODIES:
                raise RuntimeError(f"the job holds {held} bodies, expected {BODIES}")
    return plain, warm


def _configuration(directory: Path, kafka: dict[str, Any], prefix: str) -> Config:
    return Config.model_validate(
        {
            "topics": {"prefix": prefix},
            "kafka": kafka,
            "job": {"directory": str(directory), "max_records_per_trigger": BODIES_PER_TRIGGER},
            "chains": {LANE: {}},
            "jobs": {"xcmp-bodies": {"chains": [LANE]}},
        }
    )


def _consume(kafka: dict[str, Any], prefix: str) -> float:
    """Return the seconds that one process takes to read and verify every body; the first fetch is not counted."""
    consumer = Consumer(consumer_config(kafka, COMMITS, group_id="plain-consumer"))
    consumer.assign([TopicPartition(prefix + records.BODIES, 0, OFFSET_BEGINNING)])
    tune_garbage_collector()
    began, seen = 0.0, 0
    try:
        while seen < BODIES:
            for message in consumer.consume(1_000, 1.0):
                began = began or time.perf_counter()
                value = message.value()
                assert value is not None
                _, part, _ = records.decode_body(value)
                found = join([part.content])
                assert found is not None
                assert found.root == part.root
                seen += 1
    finally:
        consumer.close()
    return time.perf_counter() - began


def _run_job(config: Config, directory: Path) -> float:
    """Return the job's MB/s without its first batch; the time between two batches counts."""
    with running(config, "streaming", "--job", "xcmp-bodies") as job:
        job.wait_for_records(2 * BODIES)
        ended = job.batch_ends()
    (first_end, first), (last_end, _) = ended[0], ended[-1]
    bodies_of_first = first - BODIES  # the first batch takes every event
    return (BODIES - bodies_of_first) * PAYLOAD_BYTES / MEGABYTE / (last_end - first_end)
