# SPDX-License-Identifier: Apache-2.0
"""Consecutive Polkadot blocks through Kafka and Spark: every accepted candidate is accepted, and the bytes match the core."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.realdata.convert import encoded
from tests.realdata.recorded import EVERYTHING
from tests.realdata.runs import LONG, SHIPPED
from tests.streaming.harness import (
    SAME_WHATEVER_ARRIVES,
    Outputs,
    Stream,
    decoded,
    first_difference,
    last_status,
    of_lane,
)
from tests.unit.lanes.chains import inputs_of
from validator.lanes.processor import LaneProcessor

RUN = LONG if EVERYTHING.exists() else SHIPPED


def test_job_accepts_a_run_of_polkadot_blocks(stream: Callable[..., Stream], tmp_path: Path) -> None:
    definition = RUN.definition(tmp_path)
    records = encoded(RUN.conversion().records)
    expected: Outputs = {topic: [] for topic in SAME_WHATEVER_ARRIVES}
    for output in LaneProcessor.create(definition).process(inputs_of(records)):
        for record in output.records:
            expected[record.topic].append((record.key, record.value))

    running = stream({"polkadot": definition})
    shuffled = list(records)
    Random(17).shuffle(shuffled)
    half = len(shuffled) // 2
    running.produce(shuffled[:half])
    running.start()
    running.settle()
    running.produce(shuffled[half:])
    running.settle()
    assert running.batches() >= 2
    running.stop()

    outputs = running.outputs()
    assert decoded(outputs, "dead-letters") == []
    assert first_difference(of_lane(outputs, "polkadot"), expected) is None
    verdicts = decoded(outputs, "verdicts")
    assert all(verdict["ok"] for verdict in verdicts)
    assert sum(verdict["kind"] == "candidate" for verdict in verdicts) == RUN.candidates
    assert sum(verdict["kind"] == "inclusion" for verdict in verdicts) == RUN.candidates - RUN.pending
    assert len(decoded(outputs, "receipts")) == len(RUN.blocks)
    status = last_status(outputs, "polkadot")
    assert (status["executed_block"], status["consumed"], status["waiting"]) == (RUN.blocks.stop - 1, len(records), 0)
