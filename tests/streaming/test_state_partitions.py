# SPDX-License-Identifier: Apache-2.0
"""A local job with several state partitions: each lane stays in its worker, and a worker that dies is replaced."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from streaming.logs import OUTPUT_LOG
from streaming.partitions import divided
from streaming.stages import LANES, STAGE_VARIABLE
from tests.streaming.harness import SAME_WHATEVER_ARRIVES, consume, first_difference, last_status, of_lane, produce
from tests.streaming.processes import JobProcess, job, write_configuration
from tests.streaming.reference import IMMEDIATE, ON_INCLUSION, chains, reference
from validator import exit_codes
from validator.kafka.topics import create_topics

pytestmark = [pytest.mark.broker, pytest.mark.spark]

PARTITIONS = 5
PARTS = 6


def lane_workers(job: JobProcess) -> set[int]:
    """Return the processes that execute lanes, without the daemon that has started them."""
    found: dict[int, int] = {}
    variable = f"{STAGE_VARIABLE}={LANES}".encode()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if variable in (entry / "environ").read_bytes().split(b"\0") and _session(entry) == os.getsid(
                job.process.pid
            ):
                found[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    return {pid for pid, parent in found.items() if parent in found}


def _session(entry: Path) -> int:
    return os.getsid(int(entry.name))


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
            workers = lane_workers(running)
            if part == PARTS - 2:
                assert len(workers) >= 2
                if not running.named("restarting"):
                    assert recovered(tmp_path) == 0, "no lane has moved to another worker"
            produce(kafka, prefix, records)
            if part >= PARTS - 2:
                for pid in workers:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            receipts += sum(record.topic == "blocks" for record in records)
            running.wait_for_records(kafka, prefix, "receipts", receipts)
        assert recovered(tmp_path) >= len(both), "killed workers have taken their lanes with them"
        assert running.terminate() == exit_codes.OK

    outputs = consume(kafka, prefix, (*SAME_WHATEVER_ARRIVES, "dead-letters", "lanes"))
    assert outputs["dead-letters"] == []
    for simulated, chain in zip((IMMEDIATE, ON_INCLUSION), both, strict=True):
        assert first_difference(of_lane(outputs, chain.lane), reference(simulated)) is None
        status = last_status(outputs, chain.lane)
        assert (status["consumed"], status["waiting"], status["duplicate"]) == (len(chain.records), 0, 0)
