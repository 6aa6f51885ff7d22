# SPDX-License-Identifier: Apache-2.0
"""The last stage of the plan: it writes to Kafka, inside the same task as the lanes it writes for.

It is a stage, not a Spark sink, because a Python data source's commit or a foreachBatch costs another process or job per batch. The output
guarantees also hold inside a task: each lane's records have one order and are written before the batch counts as done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa

from streaming.packing import unpack_consumed, unpack_outputs
from streaming.transactions import TransactionalWriter
from streaming.workers import tune_garbage_collector
from validator.lanes.sink import Sink, TransactionalSink

WRITTEN_SCHEMA = "lane string, topic string, records long"
"""What the stage returns to the driver: the number of records that each lane wrote to each topic."""


class Output(Protocol):
    """Where the lanes' records go, in the form that is sent to the workers. Equal outputs share a worker's sink."""

    def open(self) -> Sink:
        """Open a sink in a worker."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ExactlyOnceOutput:
    """Kafka, with one transactional producer for each lane."""

    kafka: tuple[tuple[str, Any], ...]
    prefix: str
    job: str
    """Identifies the job among all jobs that ever write these lanes."""

    @classmethod
    def of(cls, kafka: Mapping[str, Any], prefix: str, job: str) -> Self:
        """Return the output of a configuration."""
        return cls(tuple(sorted(kafka.items())), prefix, job)

    def open(self) -> Sink:
        """Open a sink whose writers fence off earlier ones."""
        return TransactionalSink(lambda lane: TransactionalWriter(dict(self.kafka), self.prefix, lane, self.job))


_SINKS: dict[Output, Sink] = {}
"""This worker's sinks by output, so that connections outlive a batch."""


def sink_stage(output: Output) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the stage's function."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # this function is pickled by value, with its own globals in every task; a module's function finds the worker's sinks again
        return write_batches(output, batches)

    return write


def write_batches(output: Output, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the outputs of one task's lanes and yield the record counts."""
    tune_garbage_collector()
    sink = _SINKS.pop(output, None) or output.open()
    written: list[tuple[str, str, int]] = []
    for batch in batches:
        rows = zip(*(batch.column(name).to_pylist() for name in ("lane", "outputs", "consumed")), strict=True)
        for lane, outputs, consumed in rows:
            sink.write(lane, unpack_outputs(outputs))
            if consumed is not None:
                counts = sink.commit(lane, unpack_consumed(consumed))
                written += [(lane, topic, count) for topic, count in counts.items()]
    _SINKS[output] = sink  # reached only if the sink did not fail
    lanes, topics, records = zip(*written, strict=True) if written else ((), (), ())
    yield pa.RecordBatch.from_pydict({
        "lane": pa.array(lanes, pa.string()),
        "topic": pa.array(topics, pa.string()),
        "records": pa.array(records, pa.int64()),
    })  # fmt: skip
