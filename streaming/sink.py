# SPDX-License-Identifier: Apache-2.0
"""Writes what lanes emit to Kafka, in the worker that executes them.

It is neither a Spark sink nor a stage of the plan: a Python data source's commit or a foreachBatch costs another process or job per batch,
and a stage costs another worker and copies of every output. The output guarantees also hold inside a task: each lane's records have one
order and are written before the batch counts as done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from streaming.transactions import NO_FRAMES, TransactionalWriter
from validator.checkpoint.markers import LaneOnKafka
from validator.codec.encode import BlockOutput
from validator.lanes.marker import Consumed
from validator.lanes.sink import LaneSink, Sink, TransactionalSink, in_runs

NO_ROWS: Final = "lane string"
"""Schema of a stage that writes its output itself, and returns no row."""

RUN_BYTES: Final = 1024 * 1024
"""Bytes of record values that are handed to the producer at once."""


S_co = TypeVar("S_co", bound=Sink, covariant=True)


class Output(Protocol, Generic[S_co]):
    """Where the lanes' records go, in the form that is sent to the workers. Equal outputs share a worker's sink."""

    def open(self) -> S_co:
        """Open a sink in a worker."""

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class KafkaOutput:
    """Kafka, with one transactional producer for each lane."""

    kafka: tuple[tuple[str, Any], ...]
    prefix: str
    job: str
    """Identifies the job among all jobs that ever write these lanes."""
    frames: tuple[tuple[tuple[str, bytes], bytes], ...] = ()
    """By topic and header of a record, the header that it is sent with."""

    @classmethod
    def of(
        cls, kafka: Mapping[str, Any], prefix: str, job: str, frames: Mapping[tuple[str, bytes], bytes] = NO_FRAMES
    ) -> Self:
        """Return the output of a configuration."""
        return cls(tuple(sorted(kafka.items())), prefix, job, tuple(sorted(frames.items())))

    def writer(self, key: str) -> TransactionalWriter:
        """Open the writer of a lane, which fences off earlier ones."""
        return TransactionalWriter(LaneOnKafka(dict(self.kafka), self.prefix, key), self.job, dict(self.frames))


@dataclass(frozen=True, slots=True)
class ExactlyOnceOutput(KafkaOutput):
    """Kafka, with one transactional producer for each lane."""

    def open(self) -> LaneSink:
        """Open a sink of lanes."""
        return TransactionalSink(self.writer)


_SINKS: dict[Any, Any] = {}
"""This worker's sinks by output, so that connections outlive a batch."""


@contextmanager
def opened(output: Output[S_co]) -> Iterator[S_co]:
    """Give this worker's sink of an output for a batch; if anything fails, it is not used again."""
    sink = _SINKS.pop(output, None) or output.open()
    yield sink
    _SINKS[output] = sink  # reached only if nothing failed


def write_batch(
    sink: Sink, lane: str, outputs: Iterable[BlockOutput], consumed: Callable[[], Consumed]
) -> dict[str, int]:
    """Write one lane's batch and commit it; ``consumed`` is called after the last output. Returns how many records went to each topic.

    Raises what the sink raises.
    """
    for run in in_runs(outputs, RUN_BYTES):
        sink.write(lane, run)
    return sink.commit(lane, consumed())
