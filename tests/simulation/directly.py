# SPDX-License-Identifier: Apache-2.0
"""Runs a task's lanes and their sink without the job's stages, as most schedules do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tests.simulation.inputs import Item, in_parts
from tests.simulation.spark import Job, SteppedAttempt, Worker
from validator.codec.encode import BlockOutput, encode_dead_letter
from validator.core.inputs import DeadLetter
from validator.lanes.marker import consumed_by
from validator.lanes.parking import LaneBatch
from validator.lanes.sink import TransactionalSink


def run_directly(job: Job, worker: Worker, by_lane: dict[str, list[Item]], states: dict[str, SteppedAttempt]) -> None:
    """Run a task as the job's stages do, without packing and unpacking."""
    # a failed sink is not used again
    sink, worker.sink = worker.sink or TransactionalSink(job.open_writer), None
    for lane, state in states.items():
        items, definition = by_lane[lane], job.inputs.definitions.get(lane)
        batch = None
        if definition is None:
            sink.begin(lane, "")
            output, consumed = _buried(items), partial(consumed_by, items)
        else:
            inputs = in_parts(items, job.schedule.random)
            batch = LaneBatch(
                definition, state, worker.cache, inputs, job.held_inputs, checkpoint=job.checkpoint.id,
                begins=partial(sink.begin, lane), confirms=lambda corrects, lane=lane: sink.confirm(lane, corrects=corrects),
            )  # fmt: skip
            output, consumed = batch.run(), partial(getattr, batch, "consumed")
        if job.schedule.chance(0.3):
            output = iter(list(output))  # the lane's worker is ahead of the sink's, and holds the lane as it will be
        run: list[BlockOutput] = []
        for each in output:
            run.append(each)
            if job.schedule.chance(0.4):
                sink.write(lane, run)
                run = []
                job.between("between blocks")
        sink.write(lane, run)
        job.between("before the last of a lane")
        sink.commit(lane, consumed())
        sink.leave(lane, "" if batch is None else batch.left_at)
        job.between("after the last of a lane")
    worker.sink = sink


def _buried(items: list[Item]) -> Iterator[BlockOutput]:
    yield BlockOutput(None, [encode_dead_letter(item) for item in items if isinstance(item, DeadLetter)])
