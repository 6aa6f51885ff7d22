# SPDX-License-Identifier: Apache-2.0
"""The stage that writes to Kafka: the last of the plan, inside the same task as the lanes it writes for.

It is a stage rather than a Spark sink: a Python data source's commit or a foreachBatch costs another process or another job for every
batch, and what makes the output right (a lane's records in one order, written before the batch counts as done) holds inside a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa

from streaming.lane_operator import unpack_consumed, unpack_told
from streaming.transactions import TransactionalWriter
from streaming.workers import tune_garbage_collector
from validator.lanes.sink import Sink, TransactionalSink

WRITTEN_SCHEMA = "lane string, topic string, records long"
"""What the stage tells the driver: how many records of a lane went to a topic."""


class Output(Protocol):
    """Where the lanes' records go, as it travels to the workers; equal outputs share a worker's sink."""

    def open(self) -> Sink:
        """Open a sink in a worker."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ExactlyOnceOutput:
    """Kafka, with one transactional producer for each lane."""

    kafka: tuple[tuple[str, Any], ...]
    prefix: str
    job: str
    """Names the job among all that may ever write these lanes."""

    @classmethod
    def of(cls, kafka: Mapping[str, Any], prefix: str, job: str) -> Self:
        """Return the output of a configuration."""
        return cls(tuple(sorted(kafka.items())), prefix, job)

    def open(self) -> Sink:
        """Open a sink, whose writers fence off those of before."""
        return TransactionalSink(lambda lane: TransactionalWriter(dict(self.kafka), self.prefix, lane, self.job))


_SINKS: dict[Output, Sink] = {}
"""This worker's sinks by output: connections outlive a batch."""


def sink_stage(output: Output) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function of the stage."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # a function that is made here travels by value, with globals of its own in every task; one of the module finds its sinks again
        return write_batches(output, batches)

    return write


def write_batches(output: Output, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write what one task's lanes tell, and yield how much that was."""
    tune_garbage_collector()
    sink = _SINKS.pop(output, None) or output.open()
    written: list[tuple[str, str, int]] = []
    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in ("lane", "told", "consumed")), strict=True)
        for lane, told, consumed in rows:
            sink.write(lane, unpack_told(told))
            if consumed is not None:
                counts = sink.commit(lane, unpack_consumed(consumed))
                written += [(lane, topic, count) for topic, count in counts.items()]
    _SINKS[output] = sink  # only a sink that has not failed is used again
    lanes, topics, records = zip(*written, strict=True) if written else ((), (), ())
    yield pa.RecordBatch.from_pydict({
        "lane": pa.array(lanes, pa.string()),
        "topic": pa.array(topics, pa.string()),
        "records": pa.array(records, pa.int64()),
    })  # fmt: skip
