# SPDX-License-Identifier: Apache-2.0
"""Serves the job's metrics: those of the driver itself, and what workers and transports report on Kafka."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final

from validator.checkpoint.files import consumed_by_batch, last_committed_batch
from validator.config import Config
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.job.health import HEALTH
from validator.job.metric_feed import Feed, FeedThread
from validator.job.start_check import checkpoint_of
from validator.kafka.topics import create_topics
from validator.lanes.configured import configured_codec
from validator.lanes.meter import MeterSettings
from validator.metrics.endpoint import endpoint
from validator.metrics.store import MetricStore
from validator.topics import METRICS_TOPIC
from validator.transports.lines import fed_lanes

if TYPE_CHECKING:
    from streaming.run import Outages


class JobMetrics:
    """Metrics of a job. Without an ``address`` nobody asks for them, and nothing is read from Kafka."""

    def __init__(self, config: Config, lanes: Mapping[str, BlockNumber], store: MetricStore) -> None:
        self.address: str | None = None
        self._log: Any = None
        self._config, self._lanes, self._store = config, lanes, store
        self._figures = JobFigures(store, lanes)
        self.note = self._figures.note
        if config.metrics.listen is not None:
            silent_after_s = {lane: fed.silent_after_s for lane, fed in fed_lanes(config).items()}
            self._feed = Feed(store, lanes, configured_codec(config), silent_after_s=silent_after_s)

    def begin(self, outages: Outages) -> None:
        """Create the topic of reports, and say where the metrics are. Raises `UserError`."""
        self._log = outages.log
        if self.address is not None:
            outages.wait_out(lambda: create_metrics_topic(self._config))
            outages.log.info("metrics", address=self.address)

    def following(self) -> AbstractContextManager[object]:
        """Return a context in which reports are read, beginning with the blocks that may not be executed."""
        if self.address is None:
            return nullcontext()
        config, feed = self._config, self._feed
        checkpoint = checkpoint_of(config)
        consumed = {}
        try:
            last = last_committed_batch(checkpoint)
        except UserError:  # there is none yet
            feed.starts(self._lanes)
        else:
            with suppress(UserError, OSError):
                consumed = consumed_by_batch(checkpoint, last)
        answers = self._figures.kafka_answers
        return FeedThread(config.kafka, config.topics.prefix, feed, self._store, consumed, answers, self._tell)

    def _tell(self, line: str) -> None:
        self._log.warning("metrics", reason=line)


def create_metrics_topic(config: Config) -> None:
    """Create the topic of reports unless it exists. Raises `UserError`."""
    topics = config.topics
    create_topics(
        config.kafka, prefix=topics.prefix, replication_factor=topics.replication_factor, topics=[METRICS_TOPIC]
    )


def meter_settings(config: Config) -> MeterSettings | None:
    """Return what workers measure; None if nobody asks."""
    metrics = config.metrics
    if metrics.listen is None:
        return None
    return MeterSettings(tuple(metrics.paras), metrics.paras_max, metrics.channels_max)


@contextmanager
def serving(config: Config, lanes: Mapping[str, BlockNumber]) -> Iterator[JobMetrics]:
    """Serve the metrics of a job, if it has an address for them; ``lanes`` has the first block of each lane.

    Raises `UserError` if the address cannot be used.
    """
    listen, store = config.metrics.listen, MetricStore(lanes)
    metrics = JobMetrics(config, lanes, store)
    if listen is None:
        yield metrics
        return
    with endpoint(listen, "[metrics] listen", store, HEALTH) as metrics.address:
        yield metrics


RUNNING: Final = "running"

_NAMED_LANE: Final = re.compile(r"\blane ([a-z0-9][a-z0-9._-]*)")
"""The lane that a failed batch's reason names; all reasons that do are about its transaction or its worker."""


class JobFigures:
    """The figures of one job; ``lanes`` are the configured ones."""

    def __init__(self, store: MetricStore, lanes: Collection[str], wall_clock: Callable[[], float] = time.time) -> None:
        self._store, self._lanes, self._wall_clock = store, lanes, wall_clock
        self._is_ready = self._lacks_executors = False
        self._set_ready(value=False)
        store.set("validator_job_outage", 0)
        for name in ("restarts", "batches", "records"):
            store.add(f"validator_job_{name}_total", 0)
        for lane in lanes:
            store.choose("validator_lane_state", RUNNING, lane)
            store.add("validator_lane_transaction_aborts_total", 0, lane)

    def note(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "ready":
                self._set_ready(value=True)
                self._end_outage()
            case "executor added" | "executor lost":
                self._executors(event["executors"])
            case "batch":
                self._batch(event)
            case "restarting" | "failed":
                self._set_ready(value=False)
                self._store.add("validator_job_restarts_total", event["event"] == "restarting")
                self._abort(str(event.get("reason", "")))
            case "waiting":
                self._store.set("validator_job_outage", 1)
                if "master" in event:
                    self._lacks_executors = True
                    self._store.set("validator_job_executors", 0)
                    self._store.set("validator_job_without_executor_timestamp_seconds", event["since"], event["master"])
                self._abort(str(event.get("reason", "")))
            case "parked":
                self._state(event["lane"], "parked", event["fault"])
            case "resuming" | "resumed":
                self._state(event["lane"], "resuming" if event["event"] == "resuming" else RUNNING, None)
            case "audit fault":
                self._store.set("validator_lane_audit_fault_block", event["block"], event["lane"])
            case "stopped":
                self._set_ready(value=False)

    def kafka_answers(self) -> None:
        """Note that Kafka answers: an outage that no batch has met is over."""
        if self._is_ready:
            self._end_outage()

    def _executors(self, count: int) -> None:
        self._store.set("validator_job_executors", count)
        if count and self._lacks_executors:
            self._lacks_executors = False
            self._store.remove("validator_job_without_executor_timestamp_seconds")
            self.kafka_answers()

    def _end_outage(self) -> None:
        """Note that what was away is back, unless the job has no executor either."""
        if not self._lacks_executors:
            self._store.set("validator_job_outage", 0)

    def _batch(self, event: Mapping[str, Any]) -> None:
        store = self._store
        self._set_ready(value=True)
        self._end_outage()
        store.add("validator_job_batches_total", 1)
        store.add("validator_job_records_total", event["records"])
        store.set("validator_job_unread_records", event["unread"])
        store.set("validator_job_last_batch_timestamp_seconds", self._wall_clock())
        for part, milliseconds in event["milliseconds"].items():
            if part == "triggerExecution":
                store.observe("validator_job_batch_duration_seconds", milliseconds / 1000)
            else:
                store.add("validator_job_batch_part_seconds_total", milliseconds / 1000, part)

    def _abort(self, reason: str) -> None:
        found = _NAMED_LANE.search(reason)
        if found is not None and found[1] in self._lanes:
            self._store.add("validator_lane_transaction_aborts_total", 1, found[1])

    def _state(self, lane: str, state: str, fault: str | None) -> None:
        self._store.choose("validator_lane_state", state, lane)
        self._store.choose("validator_lane_parked", fault, lane)

    def _set_ready(self, *, value: bool) -> None:
        self._is_ready = value
        self._store.set("validator_job_ready", value)
