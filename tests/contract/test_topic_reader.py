# SPDX-License-Identifier: Apache-2.0
"""Topic readers on a real broker: restarts at any moment, records that compress well, and batches that are large unpacked."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from validator.kafka.reader import NotUnpacked, TopicReader
from validator.kafka.settings import (
    COMMITS,
    INPUTS,
    MESSAGE_BYTES_MAX,
    SPARING,
    WHOLE,
    Reading,
    admin_config,
    consumer_config,
    producer_config,
)
from validator.kafka.topics import create_topics

PREFIX = "restart."
RECORDS, FIRST = 4, 1


@pytest.fixture(scope="module")
def filled(kafka: dict[str, Any]) -> dict[str, Any]:
    create_topics(kafka, prefix=PREFIX)
    producer = Producer(kafka)
    for number in range(RECORDS):
        producer.produce(f"{PREFIX}candidates", b"%d" % number, b"a", partition=0)
    producer.flush()
    return kafka


@pytest.mark.parametrize("gap_ms", [None, 0, 1, 2, 4, 8, 16])
def test_restart_while_first_offset_is_being_looked_up(filled: dict[str, Any], gap_ms: int | None) -> None:
    with TopicReader(filled, PREFIX, ["candidates"]) as reader:
        spans = reader.spans()
        if gap_ms is not None:
            reader.poll(0.0)
            time.sleep(gap_ms / 1000)
        reader.start_at({place: FIRST if place == ("candidates", 0) else low for place, (low, _) in spans.items()})
        offsets = [record.offset for record in reader.read_to_end()]
        offsets += [record.offset for _ in range(3) for record in reader.poll(0.1)]
    assert offsets == list(range(FIRST, RECORDS))


SPARING_PREFIX = "sparing."
LARGE_RECORDS, MIB = 60, 1024 * 1024
SIZE = 7 * MIB

READ = """
import json, resource, sys
from validator.kafka.settings import SPARING
from validator.kafka.reader import TopicReader
with TopicReader(json.loads(sys.argv[1]), sys.argv[2], ["candidates"], reading=SPARING) as reader:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    sizes = [len(record.value) for record in reader.read_to_end()]
print(json.dumps([sizes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024]))
"""


def test_reader_holds_a_small_part_of_what_a_fetch_decompresses_to(kafka: dict[str, Any]) -> None:
    create_topics(kafka, prefix=SPARING_PREFIX)
    producer = Producer({**kafka, "compression.type": "zstd", "message.max.bytes": 2 * MESSAGE_BYTES_MAX})
    for _ in range(LARGE_RECORDS):
        producer.produce(f"{SPARING_PREFIX}candidates", bytes(SIZE), b"a", partition=0)
        producer.flush()
    read = subprocess.run(
        [sys.executable, "-c", READ, json.dumps(kafka), SPARING_PREFIX], capture_output=True, text=True, check=True
    )
    sizes, grown_mib = json.loads(read.stdout)
    assert sizes == [SIZE] * LARGE_RECORDS
    assert grown_mib < LARGE_RECORDS * SIZE / MIB / 2, "all of them are 420 MiB"


NUMBER = count()
VALUE_BYTES, VALUES = 4 * 1024 * 1024, 30


@pytest.fixture(scope="module")
def topic(kafka: dict[str, Any]) -> str:
    """A topic with one batch of 120 MiB, which is some kilobytes compressed."""
    name = f"unpacked-{next(NUMBER)}"
    admin = AdminClient(admin_config(kafka))
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    settings = {"compression.type": "zstd", "message.max.bytes": 10**9, "batch.size": 10**9, "linger.ms": 2_000}
    producer = Producer(producer_config(kafka) | settings | {"queue.buffering.max.kbytes": 10**6})
    for _ in range(VALUES):
        producer.produce(name, bytes(VALUE_BYTES), b"a")
    assert producer.flush(60) == 0
    return name


def test_worker_reads_a_large_batch(kafka: dict[str, Any], topic: str) -> None:
    consumer = Consumer(consumer_config(kafka, INPUTS, group_id="inputs"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    sizes = [len(value) for message in consumer.consume(VALUES, 30.0) if (value := message.value()) is not None]
    consumer.close()
    assert sizes == [VALUE_BYTES] * VALUES


@pytest.mark.parametrize("reading", [SPARING, WHOLE])
def test_whoever_reads_what_a_worker_reads_does_it_too(kafka: dict[str, Any], topic: str, reading: Reading) -> None:
    """A lane that continues is sparing; audits, exports and whoever executes the inputs again are not."""
    with TopicReader(kafka, "", [topic], reading=reading) as reader:
        assert [len(record.value) for record in reader.read_to_end()] == [VALUE_BYTES] * VALUES


def test_batch_that_is_larger_still_is_named(kafka: dict[str, Any], topic: str) -> None:
    """With librdkafka's own limit."""
    kafka = kafka | {"receive.message.max.bytes": 100_000_000}
    with (
        TopicReader(kafka, "", [topic]) as reader,
        pytest.raises(NotUnpacked, match=rf"records of {topic}\[0\] cannot be unpacked: .*BAD_COMPRESSION"),
    ):
        list(reader.read_to_end())
    consumer = Consumer(consumer_config(kafka, COMMITS, group_id="unpacked"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    (message, *_) = consumer.consume(1, 30.0)
    consumer.close()
    assert message.error().code() == KafkaError._BAD_COMPRESSION
