# SPDX-License-Identifier: Apache-2.0
"""What a query's progress says of its batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streaming.range_source import OBSERVED, RECORDS

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


def log_batches(query: StreamingQuery, last_batch: int, log: Any, commit: Callable[[str], None]) -> int:
    """Log the batches after ``last_batch``, pass on the end of their inputs, and return the newest one."""
    before = last_batch
    newest = query.lastProgress
    if newest is None or newest.batchId <= last_batch:  # each of the recent ones is some KiB of JSON
        return last_batch
    for progress in query.recentProgress:
        if progress.batchId > last_batch and (records := records_in(progress)):
            last_batch = progress.batchId
            source = progress.sources[0]
            end = source.endOffset
            log.info(
                "batch",
                batch=last_batch,
                began=progress.timestamp,
                records=records,
                unread=unread_records(end, source.latestOffset),
                milliseconds=dict(progress.durationMs),
            )
    if last_batch > before:
        commit(end)
    return last_batch


def unread_records(end: str, latest: str | None) -> int:
    """Return how many records a batch left in Kafka, from its end and the latest offsets, both by topic and partition."""
    if latest in (None, "", "null"):
        return 0
    ends = json.loads(end)
    return sum(
        max(0, offset - ends.get(topic, {}).get(partition, 0))
        for topic, partitions in json.loads(latest).items()
        for partition, offset in partitions.items()
    )


def records_in(progress: StreamingQueryProgress) -> int:
    """Return how many records a batch had: a row of the source is a chunk, whose records are observed, otherwise a record."""
    observed = progress.observedMetrics.get(OBSERVED)
    return progress.numInputRows if observed is None else observed[RECORDS] or 0
