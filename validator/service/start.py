# SPDX-License-Identifier: Apache-2.0
"""Broker, topics and job: started side by side, since broker and Spark are both slow, and stopped in reverse order."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from validator.errors import UserError
from validator.kafka.topics import create_topics
from validator.service.job import JobProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from validator.config import Config
    from validator.kafka.broker import EmbeddedBroker
    from validator.service.job import Event


class Service:
    """A job and, where the configuration names no Kafka, the embedded broker under it.

    ``config`` has the broker's address once `start` has returned. ``on_event`` gets the job's log lines and two of our own: ``broker`` (it
    answers; ``bootstrap_servers``, ``started_here``) and ``topics`` (they are there; ``created``).
    """

    def __init__(self, config: Config, broker: EmbeddedBroker | None, on_event: Callable[[Event], None]) -> None:
        self.config = config
        self.broker = broker
        self._on_event = on_event
        self._starting: _BrokerStart | None = None
        self._job: JobProcess | None = None

    @property
    def job(self) -> JobProcess:
        """The job, once it is started."""
        assert self._job is not None
        return self._job

    def start(self) -> None:
        """Start everything and return when the topics are there; the job is then still at its start. Raises `UserError`."""
        if self.broker is None:
            self._create_topics()
            self._start_job()
            return
        self._starting = _BrokerStart(self.broker)
        self._starting.start()
        address = self._starting.wait_for_address()
        self.config = self.config.model_copy(update={"kafka": {**self.config.kafka, "bootstrap.servers": address}})
        self._start_job()  # it looks for the topics only when Spark is up
        self._starting.wait()
        self._on_event({
            "event": "broker", "bootstrap_servers": address, "started_here": self.broker.started_here,
            "pid": self.broker.status().pid,
        })  # fmt: skip
        self._create_topics()

    def stop(self) -> None:
        """Stop the job, then the broker if it was started here."""
        try:
            if self._job is not None:
                self._job.stop()
        finally:
            if self._starting is not None and self.broker is not None:
                self._starting.join()
                if self.broker.started_here:
                    self.broker.stop()

    def kill_job(self) -> None:
        """End the job at once, for a user who does not want to wait."""
        if self._job is not None:
            self._job.kill()

    def _start_job(self) -> None:
        self._job = JobProcess(self.config, self._on_event)
        self._job.start()

    def _create_topics(self) -> None:
        topics = self.config.topics
        made = create_topics(
            self.config.kafka,
            prefix=topics.prefix,
            partitions=topics.input_partitions,
            output_partitions=topics.output_partitions,
            replication_factor=topics.replication_factor,
            retention_ms=topics.retention_ms,
        )
        self._on_event(
            {"event": "topics", "created": [name for name, new in made.items() if new], "topics": list(made)}
        )


class _BrokerStart(threading.Thread):
    """Starts the broker, and tells its address before it answers there."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        super().__init__(name="broker-start", daemon=True)
        self._broker = broker
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._broker.start()
        except BaseException as error:  # noqa: BLE001 - told to whoever waits
            self._failure = error

    def wait_for_address(self) -> str:
        while self.is_alive():
            found = self._broker.status().bootstrap_servers
            if found is not None:
                return found
            time.sleep(0.05)
        return self.wait()

    def wait(self) -> str:
        self.join()
        if isinstance(self._failure, UserError):
            raise self._failure
        if self._failure is not None:
            raise RuntimeError("the broker's start failed") from self._failure
        return self._broker.bootstrap_servers
