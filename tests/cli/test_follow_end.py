# SPDX-License-Identifier: Apache-2.0
"""`validator follow --to-block M` ends after block M, whether or not the lane has begun before, and at once if it has block M already."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "relay-chain" / "tests"))

from relay_world import LANE, shipped
from validator_relay_chain import command
from validator_simulators.relay_chain import MockNode

from validator.cli.main import app
from validator.config.toml import to_toml
from validator.kafka.topics import create_topics

PREFIX: Final = "follow-end."
FIRST: Final = 17_844_553


@pytest.mark.broker
def test_lane_that_has_begun_ends_at_the_block_of_each_command(
    kafka: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topics(kafka, prefix=PREFIX)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "STANDS_S_MAX", 0.0)  # no job executes the blocks here

    def follow(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["follow", "--lane", LANE, "--no-judge", *arguments])
        assert result.exit_code == 0, result.stderr
        return result.stderr

    with MockNode(shipped()) as node:
        follow("--prepare", "--rpc", node.url, "--from-block", str(FIRST))
        config = Path("validator.toml")
        config.write_text(f"{config.read_text()}\n{to_toml({'kafka': dict(kafka), 'topics': {'prefix': PREFIX}})}")
        written = config.read_text()
        for end in (FIRST + 1, FIRST + 2):
            assert f"lane {LANE}: block {end} is followed, the last one wanted" in follow("--to-block", str(end))
        nothing = f"lane {LANE}: nothing to follow: block {FIRST} is the last one wanted, and block {FIRST + 2} is followed already"
        asked = node.requests.total()
        assert nothing in follow("--to-block", str(FIRST))
        assert node.requests.total() == asked
        assert config.read_text() == written
