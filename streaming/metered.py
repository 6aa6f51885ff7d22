# SPDX-License-Identifier: Apache-2.0
"""Serves the job's metrics: those of the driver itself, and what workers and transports report on Kafka."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from validator.checkpoint.files import consumed_by_batch, last_committed_batch
from validator.config import Config
from validator.core.types import BlockNumber
from validator.errors import UserError
from validator.job.figures import JobFigures
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
