# SPDX-License-Identifier: Apache-2.0
"""A record that no worker can unpack stops neither its partition, nor a lane, nor the query, and no worker dies of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

from tests.contract.test_passed_over import WRITE
from tests.streaming.harness import Stream, decoded, first_difference, of_lane, python_workers
from tests.streaming.reference import IMMEDIATE, chains, definition, reference

MIB = 1024 * 1024


def test_job_passes_over_what_does_not_fit(stream: Callable[..., Stream]) -> None:
    """600 MiB where a process that reads has 256 MiB, and 192 for its client."""
    chain = chains()[0]
    half = len(chain.records) // 2
    running = stream({IMMEDIATE.lane: definition(IMMEDIATE)}, worker_memory_bytes=256 * MIB)
    running.produce(chain.records[:half])
    query = running.start()
    running.settle()
    workers = set(python_workers(running.spark))
    at = running.produced["candidates"]
    config = {**running.kafka, "compression.type": "lz4", "message.max.bytes": 10**9, "batch.size": 10**9}
    topic = f"{running.prefix}candidates"
    subprocess.run([sys.executable, "-c", WRITE, json.dumps([config, topic, [600 * MIB]])], check=True, timeout=300)
    running.produced["candidates"] += 1
    running.produce(chain.records[half:])
    running.settle()
    assert running.query is query, "it was not started again"
    assert workers <= set(python_workers(running.spark))
    running.stop()
    assert first_difference(of_lane(running.outputs(), chain.lane), reference(IMMEDIATE)) is None
    (letter,) = decoded(running.outputs(), "dead-letters")
    assert (letter["reason"], letter["topic"], letter["offset"]) == ("LIMIT", topic, at)
    assert f"offsets {at} to {at} are a compressed batch" in letter["detail"]
    assert [path.name for path in (running.checkpoint / "passed-over").iterdir()] == [f"{topic}@0@{at}"]
