# SPDX-License-Identifier: Apache-2.0
"""A process that emits the same batches as any other of its kind, through the job's sink: `python -m tests.crash.writer_process`.

It reads a `Work` as JSON from its standard input. A failed batch is repeated from its beginning, as Spark repeats a task. Exit codes: 0 all
committed, 3 another job has taken over, 4 a batch failed too often.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TypedDict

from streaming.transactions import KafkaOutput, opened
from streaming.transactions import write_batch as write_output
from validator.codec.encode import BlockOutput, OutputRecord, encode_dead_letter
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.kafka.transaction import WriteFailed, WriterFenced
from validator.lanes.sink import TransactionalSink

LANE = "polkadot"
BLOCKS_PER_BATCH = 3
ATTEMPTS_MAX = 4
FENCED, FAILED = 3, 4


class Work(TypedDict):
    """What a process does: batches ``first`` to ``end``, exclusive; ``job`` is the job in whose name it writes."""

    kafka: dict[str, Any]
    prefix: str
    job: str
    first: int
    end: int


def outputs(prefix: str, batch: int) -> list[BlockOutput]:
    """Return a batch's output: some blocks with a verdict each, and a dead letter."""
    first = batch * BLOCKS_PER_BATCH + 1
    blocks = [
        BlockOutput(number, [OutputRecord("verdicts", LANE.encode(), b"%d" % number)])
        for number in range(first, first + BLOCKS_PER_BATCH)
    ]
    letter = DeadLetter(LANE, DeadReason.LATE, "late", Source(prefix + "candidates", 0, batch), b"raw %d" % batch)
    return [*blocks, BlockOutput(None, [encode_dead_letter(letter)])]


def write_batch(work: Work, batch: int) -> None:
    """Write one batch as the job does. Raises what the sink raises."""
    output = KafkaOutput.of(TransactionalSink, work["kafka"], work["prefix"], work["job"])
    consumed = {(work["prefix"] + "candidates", 0): batch + 1}
    with opened(output) as sink:
        sink.begin(LANE, f"batch {batch}")
        write_output(sink, LANE, outputs(work["prefix"], batch), lambda: consumed)
        sink.leave(LANE, f"batch {batch + 1}")


def run(work: Work) -> int:
    """Write all batches, and return the exit code."""
    for batch in range(work["first"], work["end"]):
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                write_batch(work, batch)
                break
            except WriterFenced:
                return FENCED
            except WriteFailed as error:
                print(f"batch {batch}, attempt {attempt}: {error}", file=sys.stderr)
        else:
            return FAILED
    return 0


if __name__ == "__main__":
    code = run(json.load(sys.stdin))
    sys.stderr.flush()
    os._exit(code)  # as Spark's workers do: librdkafka's threads may crash while the libraries below them are closed
