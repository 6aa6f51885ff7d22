# SPDX-License-Identifier: Apache-2.0
"""Runs the job's own stages, from Kafka's rows to the sink, in place of the direct form that most schedules use.

This module does what Spark does between the stages. It decodes pieces of partitions separately, shuffles their chunks, and gives the
operator each lane's frames.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pandas as pd
import pyarrow as pa

from streaming import decode_stage, lane_operator, options, transactions, workers
from streaming.lane_operator import JobSettings, LaneOperator
from streaming.options import CHUNK_BYTES
from tests.simulation.inputs import Item
from tests.simulation.schedule import Schedule
from tests.simulation.spark import Job, SteppedAttempt, Worker
from tests.unit.lanes.chains import PREFIX
from validator.codec.encode import BlockOutput
from validator.codec.orders import LaneOrder, encode_order
from validator.core.inputs import DeadLetter
from validator.lanes.marker import Consumed
from validator.lanes.sink import TransactionalSink
from validator.topics import INPUT_TOPICS

COLUMNS = ("topic", "partition", "offset", "key", "value", "size")


@dataclass(frozen=True, slots=True, eq=False)
class WorkerOutput:
    """The output of a worker's lanes; no two workers share one, so none shares a sink."""

    job: Job

    def open(self) -> SteppedSink:
        """Open a sink on the fake log."""
        return SteppedSink(self.job)


class SteppedSink:
    """A sink on the fake log; anything may happen before and after what it is given."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._sink = TransactionalSink(job.open_writer)

    def begin(self, lane: str, point: str) -> None:
        """Begin a lane's batch."""
        self._sink.begin(lane, point)

    def leave(self, lane: str, point: str) -> None:
        """Note where a batch leaves a lane."""
        self._sink.leave(lane, point)

    def confirm(self, lane: str, *, corrects: bool) -> None:
        """Check the lane's marker."""
        self._sink.confirm(lane, corrects=corrects)

    def write(self, lane: str, output: list[BlockOutput]) -> None:
        """Write a run of a lane's output."""
        self._sink.write(lane, output)
        self._job.between("between blocks")

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Commit a lane's batch."""
        self._job.between("before the last of a lane")
        counts = self._sink.commit(lane, consumed)
        self._job.between("after the last of a lane")
        return counts


_RUNNING = threading.local()
"""The checkpoint of the job that runs in this thread."""


class Handle:
    """The state of one lane after another, as `StatefulProcessorHandle` gives it."""

    def __init__(self) -> None:
        self.lane = SteppedAttempt()

    def getValueState(self, *_: str) -> Head:  # noqa: N802
        return Head(self)

    def getMapState(self, *_: str) -> Slots:  # noqa: N802
        return Slots(self)

    def getListState(self, *_: str) -> Journal:  # noqa: N802
        return Journal(self)


@dataclass(frozen=True, slots=True)
class Head:
    handle: Handle

    def get(self) -> tuple[bytes] | None:
        head = self.handle.lane.load_head()
        return None if head is None else (head,)

    def update(self, row: tuple[bytes]) -> None:
        self.handle.lane.save_head(*row)


@dataclass(frozen=True, slots=True)
class Slots:
    handle: Handle

    def iterator(self) -> Iterator[tuple[tuple[int], tuple[bytes]]]:
        return iter([((number,), (data,)) for number, data in self.handle.lane.load_slots().items()])

    def updateValue(self, key: tuple[int], value: tuple[bytes]) -> None:  # noqa: N802
        self.handle.lane.save_slot(*key, *value)

    def removeKey(self, key: tuple[int]) -> None:  # noqa: N802
        self.handle.lane.remove_slot(*key)


@dataclass(frozen=True, slots=True)
class Journal:
    handle: Handle

    def get(self) -> Iterator[tuple[bytes]]:
        return iter([(entry,) for entry in self.handle.lane.load_journal()])

    def appendValue(self, row: tuple[bytes]) -> None:  # noqa: N802
        self.handle.lane.append_journal(*row)

    def clear(self) -> None:
        self.handle.lane.clear_journal()


def run_stages(job: Job, worker: Worker, by_lane: dict[str, list[Item]], states: dict[str, SteppedAttempt]) -> None:
    """Run a task: ``states`` has the states of its lanes in Spark's order."""
    chunks = _decoded(job, by_lane)
    job.schedule.random.shuffle(chunks)
    handle = Handle()
    _RUNNING.checkpoint = job.checkpoint.id
    if not isinstance(worker.output, WorkerOutput):
        worker.output = WorkerOutput(job)
    settings = JobSettings(job.inputs.definitions, {}, PREFIX, "/dev/null/checkpoint", 0, 0, worker_memory_bytes=None)
    operator = LaneOperator(settings, worker.output, cache=worker.cache, held_inputs=job.held_inputs)
    operator.init(handle)  # type: ignore[arg-type]
    for lane, state in states.items():
        handle.lane = state
        frames = _frames(job.schedule, [chunk for chunk in chunks if chunk["lane"] == lane])
        assert list(operator.handleInputRows((lane,), frames, None)) == []


def _decoded(job: Job, by_lane: dict[str, list[Item]]) -> list[dict[str, Any]]:
    kinds = {PREFIX + topic: kind for topic, kind in INPUT_TOPICS.items()}
    opened = decode_stage.DecodeSettings(
        kinds, job.inputs.definitions, lane_bytes_max=options.batch_bytes_max(None)
    ).opened()
    rows = sorted(
        (*item.source, (item.lane if isinstance(item, DeadLetter) else lane).encode(), *_sized(_value(item)))
        for lane, items in by_lane.items()
        for item in items
    )
    decoder, chunks = opened(), list[pa.RecordBatch | None]()
    before: tuple[Any, ...] | None = None
    for row in rows:
        if before is not None and (before[:2] != row[:2] or job.schedule.chance(0.2)):
            chunks.append(decoder.take())
        chunks.append(decoder.add(*row))
        before = row
    return [each for chunk in (*chunks, decoder.take()) if chunk is not None for each in chunk.to_pylist()]


def _sized(value: bytes) -> tuple[bytes, int]:
    return value, len(value)


def _value(item: Item) -> bytes:
    if isinstance(item, LaneOrder):
        return encode_order(item.lane, item.skips, item.inputs, item.checkpoint)
    return item.raw


def _frames(schedule: Schedule, chunks: list[dict[str, Any]]) -> Iterator[pd.DataFrame]:
    at = 0
    while at < len(chunks):
        size = schedule.choose((1, 2, len(chunks)))
        yield pd.DataFrame(chunks[at : at + size])
        at += size


@contextmanager
def short_runs(schedule: Schedule) -> Iterator[None]:
    """Make the stages hand over as little at a time as they do under load, or find a batch too large; restore this process afterwards."""
    with (
        patch.multiple(decode_stage, CHUNK_BYTES=schedule.choose((1, 1000, CHUNK_BYTES))),
        patch.multiple(transactions, RUN_BYTES=schedule.choose((1, 1000, CHUNK_BYTES))),
        patch.multiple(options, BATCH_BYTES_MAX=schedule.choose((2000, *[options.BATCH_BYTES_MAX] * 5))),
        patch.multiple(workers, _tuned=True),
        patch.multiple(lane_operator, _query=lambda: _RUNNING.checkpoint),
        patch.multiple(transactions, _SINKS={}),
    ):
        yield
