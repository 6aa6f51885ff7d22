# SPDX-License-Identifier: Apache-2.0
"""`validator up` with a table `[jobs.journeys]` runs the job next to the lanes; what a reader sees is what the lane's output says."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from validator_simulators import SimulationSettings

from tests.bodies.processes import PATIENCE_S, Running
from tests.cli.follower import invoke, lines
from tests.journeys import judge
from tests.sending import send
from tests.unit.lanes.chains import chain
from validator.config.toml import to_toml

pytestmark = pytest.mark.spark

PREFIX = "journeys."
SETTINGS = SimulationSettings(
    seed=31,
    blocks=40,
    preset="tight",
    paras=8,
    candidates_per_block=5,
    session_length_blocks=5,
    requests_per_100_blocks=400,
)


@pytest.mark.long
def test_reader_sees_what_became_of_each_message(tmp_path: Path, kafka: dict[str, Any]) -> None:
    of = chain(SETTINGS)
    config = tmp_path / "validator.toml"
    config.write_text(
        to_toml({
            "kafka": kafka,
            "topics": {"prefix": PREFIX},
            "job": {"directory": str(tmp_path / "job"), "master": "local[2]", "driver_memory": "1g"},
            "chains": {of.lane: of.table},
            "jobs": {"journeys": {}},
        })
    )  # fmt: skip
    up = Running("up", "--json", "--config", str(config))
    try:
        up.wait_for(lambda: len(up.events("ready")) == 2)
        half = of.blocks[len(of.blocks) // 2].block
        send_blocks(kafka, of, 0, half)
        wait_until_judged(config, half)
        record = json.loads((tmp_path / "job" / "jobs" / "journeys" / "job.json").read_text(encoding="utf-8"))
        os.kill(record["pid"], signal.SIGKILL)
        ended = up.wait_for_event("job ended")
        assert (ended["job"], ended["exit_code"]) == ("journeys", 3)
        again = Running("run", "--job", "journeys", "--json", "--config", str(config))
        try:
            send_blocks(kafka, of, half + 1, of.blocks[-1].block)
            messages = wait_until_judged(config, of.blocks[-1].block)
            assert again.stop() == 0
        finally:
            again.kill()
        assert {message.ended and message.ended[1] for message in messages} >= {None, "received", "dropped requested"}
        assert up.stop() == 0
    finally:
        up.kill()


def send_blocks(kafka: dict[str, Any], of: Any, first: int, last: int) -> None:
    records = [each for each in of.records if first <= each.block <= last]
    send(kafka, PREFIX, [(each.topic, each.lane.encode(), each.value) for each in records])


def wait_until_judged(config: Path, block: int) -> Any:
    """Return what the lane says about messages, once it has executed a block and the topic says the same."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        receipts = watched("receipts", config)
        if receipts and receipts[-1]["block"] >= block:
            break
        assert time.monotonic() < deadline, receipts[-1:]
    verdicts, dispatches, events = (watched(topic, config) for topic in ("verdicts", "dispatches", "channel-events"))
    expected = judge.numbered(verdicts, dispatches, events), judge.dispatched(dispatches)
    while True:
        records = watched("journeys", config)
        newest = judge.newest(records)
        found = judge.numbered_journeys(newest), judge.dispatched_journeys(newest)
        if found == expected:
            break
        assert time.monotonic() < deadline, [each - other for each, other in zip(found, expected, strict=True)]
    steps = [(record["id"], record["status"]) for record in records]
    assert len(steps) == len(set(steps)), "a step was emitted twice"
    return expected[0]


def watched(topic: str, config: Path) -> list[dict[str, Any]]:
    done = invoke("watch", topic, "--json", f"--config={config}")
    assert done.exit_code == 0, done.stderr
    return lines(done.stdout)
