# SPDX-License-Identifier: Apache-2.0
"""`validator follow`: its end at a block, and the judge that runs next to it."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "relay-chain" / "tests"))

from oracle_world import LANE, facts, receipt, refusal, verdict
from relay_world import shipped
from validator_relay_chain import command
from validator_relay_chain.oracle import records
from validator_simulators.relay_chain import MockNode

from tests.sending import send
from validator.cli.command_api import load_config, transport_beside
from validator.cli.main import app
from validator.config.toml import to_toml
from validator.kafka.topics import create_topics

PREFIX: Final = "next-to."
"""Of the topics of the judge."""
FIRST: Final = 17_844_553
WAIT_S_MAX: Final = 60.0


@pytest.mark.broker
def test_lane_that_has_begun_ends_at_the_block_of_each_command(
    kafka: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(kafka, prefix="follow-end.")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "STANDS_S_MAX", 0.0)  # no job executes the blocks here

    def follow(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["follow", "--lane", LANE, "--no-judge", *arguments])
        assert result.exit_code == 0, result.stderr
        return result.stderr

    with MockNode(shipped()) as node:
        follow("--prepare", "--rpc", node.url, "--from-block", str(FIRST))
        config = Path("validator.toml")
        config.write_text(
            f"{config.read_text()}\n{to_toml({'kafka': dict(kafka), 'topics': {'prefix': 'follow-end.'}})}"
        )
        written = config.read_text()
        for end in (FIRST + 1, FIRST + 2):
            assert f"lane {LANE}: block {end} is followed, the last one wanted" in follow("--to-block", str(end))
        nothing = f"lane {LANE}: nothing to follow: block {FIRST} is the last one wanted, and block {FIRST + 2} is followed already"
        asked = node.requests.total()
        assert nothing in follow("--to-block", str(FIRST))
        assert node.requests.total() == asked
        assert config.read_text() == written


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
