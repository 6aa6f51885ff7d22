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
from validator.client import connect
from validator.config.toml import to_toml

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
@pytest.mark.spark
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


TOPIC = "ab" * 32
SMALL = {
    "host_configuration": {"preset": "polkadot-2023"},
    "genesis_paras": [{"para_id": para, "balance": 10**12} for para in (2000, 2004)],
}


@pytest.mark.long
@pytest.mark.spark
def test_journey_is_closed_when_its_message_is_received(tmp_path: Path, kafka: dict[str, Any]) -> None:
    """An XCM of version 3, ClearOrigin and SetTopic, goes from 2000 to 2004."""
    config = tmp_path / "validator.toml"
    config.write_text(
        to_toml({
            "kafka": kafka,
            "topics": {"prefix": "closed."},
            "job": {"directory": str(tmp_path / "job"), "master": "local[2]", "driver_memory": "1g"},
            "chains": {"polkadot": SMALL},
            "jobs": {"journeys": {}, "journeys-closed": {}},
        })
    )  # fmt: skip
    up = Running("up", "--json", "--config", str(config))
    try:
        up.wait_for(lambda: len(up.events("ready")) == 3)
        with connect(config) as client:
            producer = client.producer("polkadot")
            with producer.block(1) as block:
                block.request("init_open_channel", origin=2000, recipient=2004, max_places=8, max_message_size=1024)
                block.request("accept_open_channel", origin=2004, sender=2000)
                block.change_session()
            with producer.block(2) as block:
                sent = {"recipient": 2004, "data": bytes.fromhex("0003080a2c" + TOPIC)}
                block.candidate(2000, hrmp_watermark=1, horizontal_messages=[sent])
            with producer.block(3) as block:
                block.candidate(2004, hrmp_watermark=2)
            (closed,) = client.plugin_records("journeys-closed", follow=True).take(1, PATIENCE_S)
            (waiting, received) = client.plugin_records("journeys", para=2004)
        assert (closed.fields["id"], closed.fields["status"], closed.fields["blocks"]) == (TOPIC, "complete", 1)
        assert [leg["message"] for leg in closed.fields["legs"]] == ["polkadot.horizontal.2000.2004.1.1"]
        assert (waiting.fields["status"], received.fields["status"]) == ("waiting", "received")
        assert received.fields["journey"] == TOPIC
        assert up.stop() == 0
    finally:
        up.kill()


def test_changes_of_lanes_are_not_for_jobs_of_plugins() -> None:
    done = invoke("run", "--job", "journeys", "--accept-change", "polkadot:5")
    assert done.exit_code == 2
    assert done.stderr == "validator: --accept-change: expected only without --job: it is for changes of lanes\n"


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
