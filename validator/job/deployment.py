# SPDX-License-Identifier: Apache-2.0
"""Starts broker, topics and jobs, and stops them in reverse order. Broker and Spark are both slow, so they start in parallel."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from validator import exit_codes
from validator.errors import UserError
from validator.job.beside import JobsBeside
from validator.job.process import JobProcess
from validator.job.spark_master import check_secret
from validator.job.start_check import look_offline, note_executed
from validator.kafka.topics import create_topics
from validator.lanes.configured import lane_definitions
from validator.waiting import RESTART, Patience, wait_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from validator.config import Config
    from validator.job.process import Event
    from validator.kafka.broker import EmbeddedBroker


T = TypeVar("T")

JOB_RESTARTS_MAX: Final = 5
"""Restarts of the job in a row without a completed batch, after which `validator up --restart` gives up."""

POLL_S: Final = 1.0
"""Seconds between two looks at the broker while the job runs."""


def check_job(config: Config) -> None:
    """Check, before anything is started or written for it, what can be known of a job without Kafka.

    Errors, in order: a standalone cluster's secret is missing, pyspark is not installed, another job is using the directory, the checkpoint
    belongs to other topics, a state file is not usable.
    """
    check_secret(config.job.master)
    JobProcess(config, lambda _: None).check()
    look_offline(config)
    lane_definitions(config)


class Service:
    """A job, the jobs of plugins next to it and, if the configuration names no Kafka, its embedded broker.

    ``config`` has the broker's address once `start` has returned. ``on_event`` gets the job's log lines and further events: ``broker``
    when the broker answers (``bootstrap_servers``, ``started_here``), ``starting`` before that if it did not run (``broker``, its folder),
    ``topics`` when the topics exist (``created``), and ``waiting`` before each pause in which Kafka is away.
    """

    def __init__(
        self,
        config: Config,
        broker: EmbeddedBroker | None,
        on_event: Callable[[Event], None],
        accepted: Sequence[str] = (),
    ) -> None:
        self.config = config
        self.broker = broker
        self._on_event = on_event
        self._accepted = accepted
        self._starting: _BrokerStart | None = None
        self._awaits_broker = False
        """Whether a broker that was started here does not answer yet."""
        self._broker_pid: int | None = None
        self._job: JobProcess | None = None
        self._beside = JobsBeside(on_event)

    @property
    def job(self) -> JobProcess:
        """The job, after its start."""
        assert self._job is not None
        return self._job

    def start(self) -> None:
        """Start everything and return when the topics exist; the job is still starting then. Raises `UserError`, `GivenUp`."""
        self._beside.check(self.config)
        if self.broker is None:
            self._create_topics()
            self._start_job()
            self._start_beside()
            return
        address = self._begin_broker(self.broker)
        self.config = self.config.model_copy(update={"kafka": {**self.config.kafka, **self.broker.with_login(address)}})
        self._start_job()  # it needs the topics only once Spark is up
        self._finish_broker(self.broker)
        self._create_topics()
        self._start_beside()

    def run(self, restarts_max: int = 0) -> int:
        """Wait for the job's end and return its exit code. A job that was killed, or stopped by itself, is started again if asked.

        ``restarts_max`` bounds the restarts in a row without a completed batch, and those of the broker. Raises `UserError`.
        """
        failures = broker_starts = 0
        while True:
            while not self.job.ended():
                if self._has_lost_broker() and broker_starts < restarts_max:
                    broker_starts += 1
                    self._start_broker()  # on the same port, where the job's clients wait for it
                self._beside.look(self.config, restarts_max)
                self.job.await_end(POLL_S)
            self._has_lost_broker()
            code = self.job.wait()
            if code != exit_codes.STOPPED or not restarts_max:
                return code
            failures = 1 if self.job.batches else failures + 1
            if failures > restarts_max:
                return code
            pause_s = RESTART.after(failures)
            self._on_event({"event": "restart", "attempt": failures, "attempts_max": restarts_max, "seconds": pause_s})
            time.sleep(pause_s)
            if self.job.has_kept_changes:
                self._accepted = ()
            self.start()

    def _start_broker(self) -> None:
        assert self.broker is not None
        self._begin_broker(self.broker)
        self._finish_broker(self.broker)

    def _begin_broker(self, broker: EmbeddedBroker) -> str:
        """Begin to start the broker, and return the address at which it will answer."""
        self._awaits_broker = not broker.status().running
        self._starting = _BrokerStart(broker)
        self._starting.start()
        address = self._starting.wait_for_address()
        if self._awaits_broker:
            self._on_event({"event": "starting", "broker": str(broker.directory), "bootstrap_servers": address})
        return address

    def _finish_broker(self, broker: EmbeddedBroker) -> None:
        """Return when the broker answers."""
        assert self._starting is not None
        address = self._starting.wait()
        self._awaits_broker = False
        self._broker_pid = broker.status().pid
        self._on_event({
            "event": "broker", "bootstrap_servers": address, "started_here": broker.started_here, "pid": self._broker_pid,
            "moved_from": broker.moved_from, "stopped_in": broker.stopped_in,
        })  # fmt: skip

    def _has_lost_broker(self) -> bool:
        """Return, once for each process of the broker, whether it has ended, and say so; anybody may have started it again.

        One that has ended for want of space would only end again: whoever frees some starts it, and meanwhile the job waits.
        """
        if self.broker is None:
            return False
        status = self.broker.status()
        if status.running:
            self._broker_pid = status.pid
        if status.running or self._broker_pid is None:
            return False
        full = self.broker.has_full_disk()
        self._on_event({"event": "broker ended", "pid": self._broker_pid, "log": status.log, "disk_full": full})
        self._broker_pid = None
        return not full

    def stop(self, *, keep_broker: bool = False) -> None:
        """Stop the jobs, then the broker if it was started here and is not to be kept."""
        try:
            try:
                self._beside.stop()
            finally:
                if self._job is not None:
                    self._job.stop()
        finally:
            if self._starting is not None and self.broker is not None:
                self._starting.join()
                if self.broker.started_here and not keep_broker:
                    try:
                        if self._job is not None and self.broker.status().running:
                            with suppress(UserError, OSError):
                                note_executed(self.config)
                    finally:
                        self.broker.stop()

    def kill_job(self) -> None:
        """Kill the jobs at once, for a user who does not want to wait."""
        self._beside.kill()
        if self._job is not None:
            self._job.kill()

    def _start_job(self) -> None:
        self._job = JobProcess(self.config, self._of_job, self._accepted)
        self._job.start()

    def _of_job(self, event: Event) -> None:
        """Pass on what the job logs; while its broker starts it waits for nothing that a person could start."""
        if event["event"] == "waiting" and self._awaits_broker and not event["reason"].startswith("[job] directory"):
            event = {**event, "reason": f"the broker at {self.config.kafka['bootstrap.servers']} is still starting"}
        self._on_event(event)

    def _start_beside(self) -> None:
        self._wait_out(lambda: self._beside.start(self.config))

    def _create_topics(self) -> None:
        topics = self.config.topics

        def create() -> dict[str, bool]:
            return create_topics(
                self.config.kafka,
                prefix=topics.prefix,
                partitions=topics.input_partitions,
                output_partitions=topics.output_partitions,
                replication_factor=topics.replication_factor,
                retention_ms=topics.retention_ms,
            )

        made = self._wait_out(create)
        self._on_event(
            {"event": "topics", "created": [name for name, new in made.items() if new], "topics": list(made)}
        )

    def _wait_out(self, act: Callable[[], T]) -> T:
        """Do what needs Kafka, and say before each pause that Kafka is away. Raises `UserError`, `GivenUp`."""
        patience = Patience(self.config.job.give_up_after)
        return wait_out(act, patience, lambda pause: self._on_event({"event": "waiting", **pause.event()}))


class _BrokerStart(threading.Thread):
    """Starts the broker. Its address is known before the broker answers there."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        super().__init__(name="broker-start", daemon=True)
        self._broker = broker
        self._failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._broker.start()
        except BaseException as error:  # noqa: BLE001 - `wait` raises it
            self._failure = error

    def wait_for_address(self) -> str:
        while self.is_alive():
            found = self._broker.address or self._broker.status().bootstrap_servers
            if found is not None:
                return found
            time.sleep(0.05)
        return self.wait()

    def wait(self) -> str:
        self.join()
        if isinstance(self._failure, UserError | OSError):  # a folder that may not be written is the user's to change
            raise self._failure
        if self._failure is not None:
            raise RuntimeError("the broker failed to start") from self._failure
        return self._broker.bootstrap_servers
