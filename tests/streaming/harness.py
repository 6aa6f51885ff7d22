# SPDX-License-Identifier: Apache-2.0
"""Helpers of the streaming tests: write inputs, wait for a condition, read outputs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.job import start_query
from streaming.lane_operator import JobSettings
from streaming.session import SPARK_LOG
from streaming.spark_internals import WORKER_LATE
from tests.crash.processes import workers_below
from tests.sending import send
from tests.unit.lanes.chains import Record
from validator.codec.json_form import to_json
from validator.kafka.reader import available
from validator.kafka.settings import WHOLE, consumer_config
from validator.kafka.topics import create_topics, list_topics
from validator.lanes.definition import LaneDefinition
from validator.lanes.meter import MeterSettings
from validator.lanes.parking import Suspect
from validator.topics import INPUT_TOPICS

Outputs: TypeAlias = dict[str, list[tuple[bytes, bytes]]]
"""Key and value of every record, by topic without the prefix, in order."""

SAME_WHATEVER_ARRIVES = ("verdicts", "dispatches", "channel-events", "ingress-events", "headroom", "receipts")
"""Output topics whose content does not depend on how records arrived."""

PATIENCE_S = 300.0
"""A condition that takes longer counts as never met; this is many times what a busy machine needs."""


def wait_until(condition: Callable[[], bool], what: str, log: Path) -> None:
    """Return when a condition holds; fail with the end of a log."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            tail = log.read_text(errors="replace")[-4000:] if log.exists() else "(no log)"
            raise AssertionError(f"waited {PATIENCE_S:.0f} s in vain: {what}; {log} ends with:\n{tail}")
        time.sleep(0.05)


def produce(
    kafka: Mapping[str, Any], prefix: str, records: Iterable[Record | tuple[str, bytes | None, bytes | None]]
) -> None:
    """Write records, or raw (topic, key, value), in order."""
    flat = ((each.topic, each.lane.encode(), each.value) if isinstance(each, Record) else each for each in records)
    send(kafka, prefix, flat)


def consume(kafka: Mapping[str, Any], prefix: str, topics: Sequence[str]) -> Outputs:
    """Read topics of one partition from their beginning to their current end."""
    consumer = Consumer(consumer_config(kafka, WHOLE, group_id="tests"))
    outputs: Outputs = {topic: [] for topic in topics}
    try:
        consumer.assign([TopicPartition(prefix + topic, 0, OFFSET_BEGINNING) for topic in topics])
        open_topics = set(topics)
        while open_topics:
            for message in available(consumer, 500, 1.0):
                topic = message.topic().removeprefix(prefix)
                if (error := message.error()) is None:
                    outputs[topic].append((message.key() or b"", message.value() or b""))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    open_topics.discard(topic)
    finally:
        consumer.close()
    return outputs


def decoded(outputs: Outputs, topic: str) -> list[dict[str, Any]]:
    """Return a topic's records as JSON."""
    return [to_json(topic, value) for _, value in outputs[topic]]


def of_lane(outputs: Outputs, lane: str, topics: Sequence[str] = SAME_WHATEVER_ARRIVES) -> Outputs:
    """Return the records of one lane; their keys begin with its name."""
    return {topic: [item for item in outputs[topic] if item[0].split(b"/")[0] == lane.encode()] for topic in topics}


def last_status(outputs: Outputs, lane: str) -> dict[str, Any]:
    """Return a lane's last status, after checking its counts against each other."""
    status = [each for each in decoded(outputs, "lanes") if each["lane"] == lane and "consumed" in each][-1]
    ends = ("accepted", "rejected", "duplicate", "dead", "waiting")
    assert status["consumed"] == sum(status[name] for name in ends), status
    return status


def first_difference(got: Outputs, expected: Outputs) -> str | None:
    """Return where outputs differ, decoded, or None; raw bytes of thousands of records would not help."""
    for topic, records in expected.items():
        for at, (one, other) in enumerate(zip(got[topic], records, strict=False)):
            if one != other:
                return f"{topic}[{at}]: got {one[0]!r} {to_json(topic, one[1])}, expected {other[0]!r} {to_json(topic, other[1])}"
        if len(got[topic]) != len(records):
            return f"{topic}: got {len(got[topic])} records, expected {len(records)}"
    return None


def python_workers(spark: SparkSession) -> list[int]:
    """Return the process ids of the session's Python workers: children of the daemons that its JVM started."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return workers_below(gateway.proc.pid)


@dataclass
class Stream:
    """One query of the job, with separate topics."""

    spark: SparkSession
    kafka: Mapping[str, Any]
    prefix: str
    directory: Path
    definitions: dict[str, LaneDefinition]
    records_per_trigger: int = 100_000
    produced: dict[str, int] = field(default_factory=lambda: dict.fromkeys(INPUT_TOPICS, 0))
    query: StreamingQuery | None = None
    suspects: dict[str, Suspect] = field(default_factory=dict)
    meter: MeterSettings | None = None
    worker_memory_bytes: int = 4 * 1024**3

    def __post_init__(self) -> None:
        create_topics(self.kafka, prefix=self.prefix)

    @property
    def log(self) -> Path:
        """Spark's log."""
        return self.directory.parent / "logs" / SPARK_LOG

    @property
    def checkpoint(self) -> Path:
        """The folder in which the query keeps offsets and state."""
        return self.directory / self.prefix / "checkpoint"

    def produce(self, records: Sequence[Record | tuple[str, bytes | None, bytes | None]]) -> None:
        """Write inputs."""
        produce(self.kafka, self.prefix, records)
        for each in records:
            self.produced[each.topic if isinstance(each, Record) else each[0]] += 1

    def start(self) -> StreamingQuery:
        """Start the query, or restart it on its checkpoint."""
        assert self.query is None or not self.query.isActive
        settings = JobSettings(
            self.definitions,
            dict(self.kafka),
            self.prefix,
            self.checkpoint,
            self.records_per_trigger,
            trigger_interval_ms=0,
            worker_memory_bytes=self.worker_memory_bytes,
            suspects=self.suspects,
            meter=self.meter,
            cores=2,
        )
        self.query = start_query(self.spark, settings)
        return self.query

    def taken(self) -> dict[str, int]:
        """Return how many records of each topic the query has processed."""
        assert self.query is not None
        progress = self.query.lastProgress
        end = progress.sources[0].endOffset if progress is not None else None
        offsets = json.loads(end) if end else {}
        return {topic: offsets.get(self.prefix + topic, {}).get("0", 0) for topic in INPUT_TOPICS}

    def settle(self) -> None:
        """Wait until the query has processed everything produced."""
        self.wait_for(lambda: self.taken() == self.produced, f"{self.prefix}: every record produced is processed")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds. A worker that started too late is retried, as the job does; another failure is raised."""

        def holds() -> bool:
            assert self.query is not None
            if (failure := self.query.exception()) is not None:
                if WORKER_LATE not in str(failure):
                    raise failure
                self.start()
            return condition()

        wait_until(holds, what, self.log)

    def batches(self) -> int:
        """Return how many batches this run of the query has finished."""
        assert self.query is not None
        return sum(progress.numInputRows > 0 for progress in self.query.recentProgress)

    def stop(self) -> None:
        """Stop the query."""
        assert self.query is not None
        self.query.stop()

    def written(self) -> int:
        """Return the number of verdicts."""
        return next(
            state.records or 0
            for state in list_topics(self.kafka, prefix=self.prefix)
            if state.name.endswith("verdicts")
        )

    def outputs(self) -> Outputs:
        """Read everything that the query wrote."""
        return consume(self.kafka, self.prefix, (*SAME_WHATEVER_ARRIVES, "dead-letters", "lanes"))

    def inputs(self) -> Outputs:
        """Read everything that was written for the query."""
        return consume(self.kafka, self.prefix, tuple(INPUT_TOPICS))

    def state(self, variable: str) -> Iterator[Any]:
        """Read a state variable of all lanes from the store with Spark's reader."""
        reader = (
            self.spark.read.format("statestore").option("path", str(self.checkpoint)).option("stateVarName", variable)
        )
        yield from reader.load().collect()
