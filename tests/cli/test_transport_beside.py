# SPDX-License-Identifier: Apache-2.0
"""`validator follow` judges, too: a transport that runs next to another one compares a lane with its chain and says where they differ."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "relay-chain" / "tests"))

from oracle_world import LANE, facts, receipt, refusal, verdict
from validator_relay_chain import command
from validator_relay_chain.oracle import records

from tests.sending import send
from validator.cli.command_api import load_config, transport_beside
from validator.config.toml import to_toml
from validator.kafka.topics import create_topics

PREFIX: Final = "next-to."
WAIT_S_MAX: Final = 60.0


def written(kafka: dict[str, object], folder: Path) -> Path:
    source = {"rpc": ["ws://127.0.0.1:1"], "genesis": "0x" + "00" * 32, "folder": str(folder)}
    tables: dict[str, Any] = {
        "topics": {"prefix": PREFIX}, "kafka": dict(kafka), "transports": {"relay-chain": {"chains": {LANE: source}}},
    }  # fmt: skip
    path = folder / "validator.toml"
    path.write_text(to_toml(tables), encoding="utf-8")
    return path


@pytest.mark.broker
def test_judge_beside_a_follower_says_where_lane_and_chain_differ(
    kafka: dict[str, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    create_topics(kafka, prefix=PREFIX)
    path = written(kafka, tmp_path)
    blocks = range(5, 12)
    refused = verdict(6, error=refusal("OutboundHrmp/NoSuchChannel", idx=0))
    with transport_beside(command.JUDGE, path) as ended:
        for number in blocks:
            own = [refused] if number == 6 else []
            given = facts(number, backed=len(own)).to_json()
            value = records.formats()[records.FACTS].encode({**given, "block_hash": bytes.fromhex(given["block_hash"])})
            lane = [(records.VERDICTS, each) for each in own] + [(records.RECEIPTS, receipt(number, len(own)))]
            outputs = [(topic, records.formats_of_lanes()[topic][0].encode(each)) for topic, each in lane]
            key = LANE.encode()
            send(kafka, PREFIX, [(topic, key, each) for topic, each in [(records.FACTS, value), *outputs]])
            _await(path, number if number < 6 else 5)
        assert _await(path, blocks[-1])["disagreements"] == {"ours": 1}
        assert not ended.is_set()
    assert ended.is_set()
    line = f"lane {LANE}: the chain disagrees: block 6, para 2000: CandidateRefused: the lane says "
    assert line in capfd.readouterr().err


def _await(path: Path, block: int) -> dict[str, Any]:
    """Wait until the judge has compared a block; return what it says."""
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        found = command._agreement(load_config(path), LANE)
        if found is not None and found["block"] >= block:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.broker
def test_transport_that_cannot_run_says_so_and_leaves_the_other_alone(
    kafka: dict[str, object], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = written(kafka, tmp_path)
    path.write_text(path.read_text().replace(PREFIX, "beside-nothing."), encoding="utf-8")
    with transport_beside(command.JUDGE, path) as ended:
        assert ended.wait(WAIT_S_MAX)
    assert "transport relay-chain.judge has ended: " in capfd.readouterr().err
