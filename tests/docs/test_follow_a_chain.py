# SPDX-License-Identifier: Apache-2.0
"""docs/follow-a-chain.md works: its first command prepares a lane, with a mock node in place of a public one."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Final

import pytest
from validator_simulators.relay_chain import Fault, FaultKind, MockNode, Recording
from validator_simulators.relay_chain.recording import SHIPPED

from tests.docs.pages import AS_ON_A_TERMINAL, DOCS, Block, blocks, commands, run
from tests.docs.test_every_command import NOT_RUN

if TYPE_CHECKING:
    from pathlib import Path

PAGE: Final = DOCS / "follow-a-chain.md"
NODE: Final = "wss://rpc.polkadot.io"
OWN_NODE: Final = "ws://127.0.0.1:9944"
FETCHED: Final = "validator fetch --lane polkadot --to-block 18844552 --in-flight 64 --processes 2"
FOLLOWED: Final = "validator follow --lane polkadot --to-block 18844552 --up"
"""Run elsewhere: tests/streaming/test_relay_chain.py."""


def page() -> str:
    """Return "follow-a-chain.md"."""
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture
def node() -> MockNode:
    return MockNode(Recording.load(SHIPPED), [Fault(FaultKind.RATE_LIMIT, "state_getKeysPaged")], head=17_844_552)


def test_lane_is_prepared_from_a_node(node: MockNode, tmp_path: Path) -> None:
    shown = [each for block in blocks(page()) if block.language == "console" for each in commands(block)]
    (prepare,) = [each.line for each in shown if NODE in each.line]
    with node:
        ran = run([Block("console", f"$ {prepare.replace(NODE, node.url)}\n", None)], tmp_path, AS_ON_A_TERMINAL)
    ran.check()
    assert "the lane begins with block 17844553" in ran.done.stdout
    config = tomllib.loads((tmp_path / "validator.toml").read_text())
    assert config["chains"]["polkadot"]["enactment"] == "on-inclusion"
    assert (tmp_path / "polkadot" / "STATE.json").exists()
    run_elsewhere = {each.plain() for each in shown if OWN_NODE not in each.line} - {prepare, FETCHED}
    assert run_elsewhere <= {
        *NOT_RUN,
        "validator up",
        "validator lanes",
        "validator watch relay-chain.disagreements",
        FOLLOWED,
    }


def test_blocks_are_fetched_as_shown(tmp_path: Path) -> None:
    shown = [each.line for block in blocks(page()) if block.language == "console" for each in commands(block)]
    (prepare,) = [each for each in shown if OWN_NODE in each]
    assert FETCHED in shown
    with MockNode(Recording.load(SHIPPED)) as node:
        lines = (prepare.replace(OWN_NODE, node.url), FETCHED.replace("18844552", "17844556"))
        ran = run([Block("console", "".join(f"$ {line}\n" for line in lines), None)], tmp_path, AS_ON_A_TERMINAL)
    ran.check()
    assert (tmp_path / "polkadot" / "blocks" / "0017844553-0017844556.avro").exists()
