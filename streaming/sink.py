# SPDX-License-Identifier: Apache-2.0
"""The stage that writes to Kafka: the last of the plan, inside the same task as the lanes it writes for.

It is a stage rather than a Spark sink: a Python data source's commit or a foreachBatch costs another process or another job for every
batch, and what makes the output right (a lane's records in one order, written before the batch counts as done) holds inside a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer

from streaming.lane_operator import unpack_records
from streaming.workers import tune_garbage_collector
from validator.codec.encode import OutputRecord
from validator.kafka.client import producer_config

WRITTEN_SCHEMA = "lane string, topic string, records long"
"""What the stage tells the driver: how many records of a lane went to a topic."""

FLUSH_S_MAX = 120.0
"""Seconds for the broker to acknowledge a batch before the batch fails."""


class SinkFailed(Exception):
    """Kafka did not take a record; the batch fails and is done again."""


class Sink(Protocol):
    """Takes a batch's records of one state partition."""

    def write(self, lane: str, records: list[OutputRecord]) -> None:
        """Take records of a lane; a lane's records arrive in order."""

    def commit(self) -> None:
        """Return once everything taken is in Kafka for good; raises `SinkFailed` where it is not."""


class AtLeastOnceSink:
    """Writes records as they come; a batch that is done again is written again."""

    def __init__(self, kafka: dict[str, Any], prefix: str) -> None:
        self._producer = Producer(producer_config(kafka))
        self._prefix = prefix
        self._topics: dict[str, str] = {}
        self._failure: KafkaError | None = None

    def write(self, lane: str, records: list[OutputRecord]) -> None:  # noqa: ARG002 - the interface tells, this sink need not know
        """Hand records to the producer, waiting where its queue is full."""
        producer, topics = self._producer, self._topics
        for topic, key, value, headers in records:
            name = topics.get(topic)
            if name is None:
                name = topics[topic] = self._prefix + topic
            while True:
                try:
                    producer.produce(name, value, key, headers=list(headers) or None, on_delivery=self._delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)

    def commit(self) -> None:
        """Wait for every acknowledgement."""
        left = self._producer.flush(FLUSH_S_MAX)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise SinkFailed(f"Kafka refused a record: {failure.str()}")
        if left:
            raise SinkFailed(f"{left} records were not acknowledged within {FLUSH_S_MAX:.0f} s")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002 - librdkafka's signature
        if error is not None and self._failure is None:
            self._failure = error


_SINKS: dict[tuple[object, ...], Sink] = {}
"""This worker's sinks by configuration: connections outlive a batch."""


def sink_stage(kafka: dict[str, Any], prefix: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of the stage."""
    identity = (prefix, *sorted(kafka.items()))

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_garbage_collector()
        sink = _SINKS.pop(identity, None) or AtLeastOnceSink(kafka, prefix)
        written: dict[tuple[str, str], int] = {}
        for batch in batches:
            for lane, packed in zip(batch.column("lane").to_pylist(), batch.column("records").to_pylist(), strict=True):
                records = unpack_records(packed)
                sink.write(lane, records)
                for record in records:
                    written[lane, record.topic] = written.get((lane, record.topic), 0) + 1
        sink.commit()
        _SINKS[identity] = sink  # only a sink that has committed is used again
        lanes, topics = zip(*written, strict=True) if written else ((), ())
        yield pa.RecordBatch.from_pydict({
            "lane": pa.array(lanes, pa.string()),
            "topic": pa.array(topics, pa.string()),
            "records": pa.array(written.values(), pa.int64()),
        })  # fmt: skip

    return write
