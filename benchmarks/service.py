# SPDX-License-Identifier: Apache-2.0
"""A broker, topics, a backlog and the job, for the benchmarks that need them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from validator_simulators.router.load import SettingsLoad, initial_state, load, load_chain

from validator.checkpoint.markers import group_of
from validator.codec.json_form import encode_input
from validator.config import Config
from validator.kafka.settings import COMMITS, WHOLE, admin_config, consumer_config, producer_config
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.topics import INPUT_TOPICS

READY_S_MAX = 180.0


def chain_config(settings: SettingsLoad, directory: Path, *, write_state: bool = True) -> dict[str, Any]:
    """Return the `[chains]` entry of a load, and write its state next to it."""
    parameters = load_chain(settings)
    state = directory / "state.json"
    document = {"first_block": settings.first_block, "state": initial_state(settings) if write_state else {}}
    state.write_text(json.dumps(document), encoding="utf-8")
    return {
        "protocol": "router",
        "balances": "unlimited",
        "first_block": settings.first_block,
        "state": str(state),
        "host_configuration": parameters["config"],
        "ump_default_weight": parameters["ump_default_weight"],
    }


def configuration(
    settings: SettingsLoad,
    directory: Path,
    kafka: dict[str, Any],
    prefix: str,
    *,
    write_state: bool = True,
    **job: Any,
) -> Config:
    """Return the configuration of a job that follows the load's chain."""
    return Config.model_validate({
        "topics": {"prefix": prefix},
        "kafka": kafka,
        "job": {"directory": str(directory / "job"), **job},
        "chains": {settings.lane: chain_config(settings, directory, write_state=write_state)},
    })  # fmt: skip


def encoded_blocks(settings: SettingsLoad) -> Iterator[list[tuple[str, bytes]]]:
    """Yield (topic, value) of the records of each block of a load."""
    codec = codec_of([RuntimePlan("router")])
    for block in load(settings):
        yield [(topic, encode_input(codec, INPUT_TOPICS[topic], record, "router")) for topic, record in block.records]


def encoded(settings: SettingsLoad) -> Iterator[tuple[str, bytes]]:
    """Yield (topic, value) of a load's records."""
    return chain.from_iterable(encoded_blocks(settings))


def producer_of(kafka: dict[str, Any]) -> Producer:
    """Return a producer that holds a backlog's worth of records; a new one takes about a second until it may send."""
    return Producer(producer_config(kafka) | {"queue.buffering.max.messages": 1_000_000})


def produce(
    kafka: dict[str, Any],
    prefix: str,
    lane: str,
    records: Iterable[tuple[str, bytes]],
    producer: Producer | None = None,
) -> int:
    """Send records, with a new producer unless one is given, and return their number."""
    producer = producer or producer_of(kafka)
    key, count = lane.encode(), 0
    for topic, value in records:
        while True:
            try:
                producer.produce(prefix + topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        count += 1
    producer.flush()
    return count


def end_offset(kafka: dict[str, Any], topic: str) -> int:
    """Return the end offset of a one-partition topic."""
    consumer = Consumer(consumer_config(kafka, COMMITS, group_id="benchmarks"))
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
    finally:
        consumer.close()


def reset_output(kafka: dict[str, Any], prefix: str, lane: str) -> None:
    """Make the next job on these topics emit everything again."""
    admin = AdminClient(admin_config(kafka))
    group = group_of(prefix, lane)
    if any(each.group_id == group for each in admin.list_consumer_groups().result().valid):
        admin.delete_consumer_groups([group])[group].result()
    producer = Producer(producer_config(kafka))
    producer.produce(f"{prefix}markers", None, lane.encode(), partition=0)
    producer.flush()


def records_since(kafka: dict[str, Any], topic: str, offset: int) -> int:
    """Return the number of committed records in a one-partition topic from an offset on; transaction markers take offsets too."""
    consumer = Consumer(consumer_config(kafka, WHOLE, group_id="benchmarks"))
    consumer.assign([TopicPartition(topic, 0, offset)])
    count = 0
    try:
        while True:
            for message in consumer.consume(100_000, 5.0):
                error = message.error()
                if error is None:
                    count += 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    return count
    finally:
        consumer.close()


class Job:
    """The job's process and its log events, each with the time at which it was read."""

    def __init__(self, config: Config, module: str = "streaming", *arguments: str) -> None:
        self.began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stderr=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        with self._process.stdin as configuration:
            json.dump(config.model_dump(mode="json"), configuration)
        self.events: list[tuple[float, dict[str, Any]]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The id of the job's process."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            try:
                self.events.append((time.monotonic(), json.loads(line)))
            except ValueError:
                self.events.append((time.monotonic(), {"event": "output", "line": line.rstrip()}))

    def wait_for(self, event: str) -> float:
        """Wait until the job has logged an event, and return the time of the event."""
        deadline = time.monotonic() + READY_S_MAX
        while time.monotonic() < deadline:
            for at, logged in self.events:
                if logged["event"] == event:
                    return at
            if self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"the job did not log {event!r}: {self.events[-3:]}")

    def batches(self) -> list[dict[str, Any]]:
        """Return the batches so far."""
        return [logged for _, logged in self.events if logged["event"] == "batch"]

    def ready_at(self) -> float:
        """Return the Unix time, in seconds, at which the query ran."""
        return _unix_time(next(logged["timestamp"] for _, logged in self.events if logged["event"] == "ready"))

    def batch_ends(self) -> list[tuple[float, int]]:
        """Return the Unix time at which each batch ended, and its records. The job's log is up to half a second behind."""
        return [
            (_unix_time(each["began"]) + each["milliseconds"]["triggerExecution"] / 1000, each["records"])
            for each in self.batches()
        ]

    def wait_for_records(self, count: int) -> None:
        """Wait until the job has processed this many records."""
        while sum(batch["records"] for batch in self.batches()) < count:
            if self._process.poll() is not None:
                raise RuntimeError(f"the job ended: {self.events[-3:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """Kill the job."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Stop the job after its current batch."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(90)
        self._reader.join(5)


def _unix_time(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


@contextmanager
def running(config: Config, module: str = "streaming", *arguments: str) -> Iterator[Job]:
    """Run the job while the context lasts."""
    job = Job(config, module, *arguments)
    try:
        yield job
    finally:
        job.stop()
