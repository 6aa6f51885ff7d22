# SPDX-License-Identifier: Apache-2.0
"""Contexts of transports on a real broker and in memory, behind one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import Event, Timer
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.sending import send
from validator.config import Config
from validator.job.installed import configured_job
from validator.kafka.reader import TopicReader
from validator.kafka.settings import admin_config
from validator.kafka.topics import create_topics
from validator.plugin.api import Manifest, Record, Transport, TransportContext, hookimpl
from validator.plugin.job_api import OwnTopic
from validator.testing.transport import MemoryTransport
from validator.topics import CURSORS_TOPIC
from validator.topics import TOPICS as TOPICS_OF_LANES
from validator.transports.lease import Lease
from validator.transports.meter import MeasuredContext, TransportMeter
from validator.transports.runner import KafkaTransportContext, TransportGroup, record_forms

TOPICS = ("verdicts", "lanes")
CONFIG = SimpleNamespace(peer="x")
JOB = "xcmp-bodies"
LANE = "polkadot"
PROTOCOL = "xcmp-network"
"""Of the only chain, where transports use a job."""


def acquire(lease: Lease) -> None:
    """Wait until this process is the active one; a transport itself would wait without end."""
    stop = Event()
    timer = Timer(60, stop.set)
    timer.daemon = True
    timer.start()
    try:
        assert lease.acquire(stop, lambda _: None)
    finally:
        timer.cancel()


class OnKafka:
    """Contexts on topics with a separate prefix."""

    def __init__(
        self, kafka: dict[str, Any], prefix: str, jobs: tuple[str, ...] = (), own: tuple[OwnTopic, ...] = ()
    ) -> None:
        self.kafka, self.prefix = kafka, prefix
        create_topics(kafka, prefix=prefix, topics=[*TOPICS_OF_LANES, CURSORS_TOPIC])
        config = Config.model_validate({"chains": {LANE: {"protocol": PROTOCOL}}} if jobs else {})
        made = [configured_job(config, job) for job in jobs]
        for job in made:
            create_topics(kafka, prefix=prefix, topics=job.topics)
        if own:
            create_topics(kafka, prefix=prefix, topics=[each.topic for each in own])
        self.forms = record_forms(config, made, own)
        self.open = ExitStack()

    def send(self, *records: Record) -> None:
        send(self.kafka, self.prefix, records)

    def start(self) -> TransportContext:
        """Start the transport again, in place of the running one."""
        self.stop = Event()
        self.open.close()
        group = TransportGroup(self.kafka, self.prefix, "t")
        lease = self.lease = self.open.enter_context(group.lease(TOPICS))
        acquire(lease)
        return self.open.enter_context(
            KafkaTransportContext(group, TOPICS, CONFIG, self.stop, self.forms, lease, cursors=True)
        )

    def submitted(self) -> list[Record]:
        with TopicReader(self.kafka, self.prefix, ["blocks", "candidates"]) as reader:
            return [(record.topic, record.key or b"", record.value) for record in reader.read_to_end()]

    def close(self) -> None:
        self.open.close()

    def expire(self, topic: str, offset: int) -> None:
        """Remove the records before an offset, as retention does."""
        admin = AdminClient(admin_config(self.kafka))
        for future in admin.delete_records([TopicPartition(self.prefix + topic, 0, offset)]).values():
            future.result()

    def lose_lease(self) -> None:
        self.lease._lose("the test says so")


class InMemory:
    """The same with `MemoryTransport`."""

    def __init__(self, jobs: tuple[str, ...] = (), *, cursors: bool = True, own: tuple[OwnTopic, ...] = ()) -> None:
        class Plugin:
            @hookimpl
            def validator_manifest(self) -> Manifest:
                return Manifest("t", "1.0", (2, 0))

            @hookimpl
            def validator_transports(self, config: Any) -> Iterator[Transport]:
                yield Transport("t", print, TOPICS, jobs, cursors=cursors, own=own)

        self.memory = MemoryTransport(Plugin(), protocols={LANE: PROTOCOL} if jobs else None)
        self.memory.config = CONFIG
        self.open = ExitStack()

    def send(self, *records: Record) -> None:
        self.memory.outputs += records

    def start(self) -> TransportContext:
        self.open.close()
        return self.open.enter_context(self.memory.open())

    def submitted(self) -> list[Record]:
        return self.memory.submitted

    def close(self) -> None:
        self.open.close()

    def expire(self, topic: str, offset: int) -> None:
        self.memory.begins[topic] = offset

    def lose_lease(self) -> None:
        self.memory.lose_lease()


class Measured(InMemory):
    """The same with a context that counts what passes it."""

    def start(self) -> TransportContext:
        self.meter = TransportMeter("t")
        return MeasuredContext(super().start(), self.meter)

    def figure(self, name: str, *labels: str) -> float:
        """Return a value of the meter."""
        return self.meter.report().set[f"validator_transport_{name}"][labels]


Backend = OnKafka | InMemory


def wait(context: TransportContext, of: Backend) -> Record | None:
    """Wait for a record: joining a group takes time, memory answers immediately."""
    return context.receive(60 if isinstance(of, OnKafka) else 0)


Mistakes = list[tuple["Callable[[TransportContext], Any]", str]]
"""Calls with a wrong argument, and the beginning of the error of each."""


def assert_refused(context: TransportContext, mistakes: Mistakes) -> None:
    """Make each call; it raises a `ValueError` of one line."""
    for call, text in mistakes:
        with pytest.raises(ValueError, match=r"expected|no such") as caught:
            call(context)
        assert str(caught.value).startswith(text), f"{text}\n{caught.value}"
        assert "\n" not in str(caught.value)
