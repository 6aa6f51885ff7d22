# SPDX-License-Identifier: Apache-2.0
"""The stage that writes to Kafka: the last of the plan, inside the same task as the lanes it writes for.

It is a stage rather than a Spark sink: a Python data source's commit or a foreachBatch costs another process or another job for every
batch, and what makes the output right (a lane's records in one order, written before the batch counts as done) holds inside a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from streaming.lane_operator import unpack_consumed, unpack_told
from streaming.transactions import LaneWriter
from streaming.workers import tune_garbage_collector
from validator.codec.encode import OutputRecord, Told
from validator.core.types import BlockNumber
from validator.lanes.marker import Consumed

WRITTEN_SCHEMA = "lane string, topic string, records long"
"""What the stage tells the driver: how many records of a lane went to a topic."""


class Sink(Protocol):
    """Takes what the lanes of one state partition tell in a batch."""

    def write(self, lane: str, told: list[Told]) -> None:
        """Take a part of what a lane told; a lane's parts arrive in order."""

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Make a lane's batch, which took inputs up to ``consumed``, true for good, and return how many records went to each topic."""


class TransactionalSink:
    """Tells everything exactly once: a lane's batch and its marker are one transaction (`streaming.transactions`).

    Raises `WriteFailed`, `WriterFenced`, and is of no more use then.
    """

    def __init__(self, kafka: dict[str, Any], prefix: str) -> None:
        self._kafka = kafka
        self._prefix = prefix
        self._writers: dict[str, LaneWriter] = {}
        self._batches: dict[str, _Batch] = {}

    def write(self, lane: str, told: list[Told]) -> None:
        """Write what belongs to blocks at once; the rest waits for `commit`, which knows what the batch took."""
        writer, batch = self._writer(lane), self._batches.setdefault(lane, _Batch())
        marker = writer.marker(())
        for each in told:
            if each.block is None:
                batch.beside_blocks.append(each)
            elif records := marker.untold(each):
                writer.write(records)
                batch.count(records)
                batch.last_block = each.block

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Commit a lane's batch; one that took nothing new has been told already, and nothing is written."""
        writer, batch = self._writer(lane), self._batches.pop(lane, _Batch())
        marker = writer.marker(consumed)
        if batch.last_block is None and not marker.is_news(consumed):
            return {}
        for each in batch.beside_blocks:
            records = marker.untold(each)
            writer.write(records)
            batch.count(records)
        writer.commit(marker.after(batch.last_block, consumed))
        return batch.written

    def _writer(self, lane: str) -> LaneWriter:
        writer = self._writers.get(lane)
        if writer is None:
            writer = self._writers[lane] = LaneWriter(self._kafka, self._prefix, lane)
        return writer


@dataclass(slots=True)
class _Batch:
    """A lane's batch so far."""

    beside_blocks: list[Told] = field(default_factory=list)
    last_block: BlockNumber | None = None
    written: dict[str, int] = field(default_factory=dict)

    def count(self, records: list[OutputRecord]) -> None:
        for record in records:
            self.written[record.topic] = self.written.get(record.topic, 0) + 1


_SINKS: dict[tuple[object, ...], Sink] = {}
"""This worker's sinks by configuration: connections outlive a batch."""


def sink_stage(kafka: dict[str, Any], prefix: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of the stage."""
    identity = (prefix, *sorted(kafka.items()))

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tune_garbage_collector()
        sink = _SINKS.pop(identity, None) or TransactionalSink(kafka, prefix)
        written: list[tuple[str, str, int]] = []
        for batch in batches:
            rows = zip(*(batch.column(name).to_pylist() for name in ("lane", "told", "consumed")), strict=True)
            for lane, told, consumed in rows:
                sink.write(lane, unpack_told(told))
                if consumed is not None:
                    written += [
                        (lane, topic, count) for topic, count in sink.commit(lane, unpack_consumed(consumed)).items()
                    ]
        _SINKS[identity] = sink  # only a sink that has not failed is used again
        lanes, topics, counts = zip(*written, strict=True) if written else ((), (), ())
        yield pa.RecordBatch.from_pydict({
            "lane": pa.array(lanes, pa.string()),
            "topic": pa.array(topics, pa.string()),
            "records": pa.array(counts, pa.int64()),
        })  # fmt: skip

    return write
