# SPDX-License-Identifier: Apache-2.0
"""A local job with several state partitions: each lane stays in its worker, and what dies of workers and their daemon is replaced."""

from __future__ import annotations

import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streaming.logs import OUTPUT_LOG
from streaming.stages import LANES, divided
from tests.crash.processes import daemons_of, send, workers_of
from tests.streaming.harness import SAME_WHATEVER_ARRIVES, consume, first_difference, last_status, of_lane, produce
from tests.streaming.processes import job, write_configuration
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, chains, reference
from validator import exit_codes
from validator.kafka.topics import create_topics

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PARTITIONS = 5
PARTS = 6


def recovered(folder: Path) -> int:
    """Return how often a lane was brought back from the state store."""
    log = folder / "job" / "logs" / OUTPUT_LOG
    return log.read_text(encoding="utf-8").count('"event": "recovered"') if log.exists() else 0


def test_lanes_stay_in_their_workers_and_survive_them(kafka: dict[str, Any], tmp_path: Path) -> None:
    prefix = "partitions."
    create_topics(kafka, prefix=prefix)
    both = chains()
    assert all(len(lanes) == 1 for lanes in divided([chain.lane for chain in both], PARTITIONS).values())
    blocks = sorted({record.block for chain in both for record in chain.records})
    borders = [blocks[len(blocks) * at // PARTS] for at in range(PARTS)] + [blocks[-1] + 1]
    settings = write_configuration(tmp_path, both, kafka, prefix, master="local[2]", state_partitions=PARTITIONS)
    receipts = 0
    with job(settings) as running:
        for part, (first, after) in enumerate(pairwise(borders)):
            records = [record for chain in both for record in chain.records if first <= record.block < after]
            workers = workers_of(running.process.pid, LANES)
            if part == PARTS - 2:
                assert len(workers) >= 2
                if not running.named("restarting"):
                    assert recovered(tmp_path) == 0, "no lane has moved to another worker"
            produce(kafka, prefix, records)
            if part == PARTS - 2:
                send(signal.SIGKILL, *workers)
            if part == PARTS - 1:
                assert send(signal.SIGKILL, *daemons_of(running.process.pid, LANES)) == 1
            receipts += sum(record.topic == "blocks" for record in records)
            running.wait_for_records(kafka, prefix, "receipts", receipts)
        assert recovered(tmp_path) >= len(both), "workers that were killed have taken their lanes with them"
        assert running.terminate() == exit_codes.OK

    outputs = consume(kafka, prefix, (*SAME_WHATEVER_ARRIVES, "dead-letters", "lanes"))
    assert outputs["dead-letters"] == []
    for simulated, chain in zip((IMMEDIATE, ON_INCLUSION), both, strict=True):
        assert first_difference(of_lane(outputs, chain.lane), reference(simulated)) is None
        status = last_status(outputs, chain.lane)
        assert (status["consumed"], status["waiting"], status["duplicate"]) == (len(chain.records), 0, 0)
