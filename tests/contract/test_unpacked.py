# SPDX-License-Identifier: Apache-2.0
"""A producer's batch may be a hundred times as large unpacked as librdkafka takes by default."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from validator.kafka.reader import NotUnpacked, TopicReader
from validator.kafka.settings import (
    COMMITS,
    INPUTS,
    SPARING,
    WHOLE,
    Reading,
    admin_config,
    consumer_config,
    producer_config,
)

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
