# SPDX-License-Identifier: Apache-2.0
"""A simulator such as chopsticks: blocks without a state root, and downward messages that are taken in the block that sends them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from relay_world import FIRST, GENESIS, LANE, Collected, World, busy_chain, load, source
from typer.testing import CliRunner
from validator_relay_chain import keys
from validator_relay_chain.errors import Simulated
from validator_relay_chain.follow import Follower
from validator_relay_chain.header import to_hex
from validator_relay_chain.metadata import MetadataCache
from validator_relay_chain.pool import NodePool
from validator_relay_chain.position import Position
from validator_relay_chain.source import Chain
from validator_simulators.relay_chain import MockNode, made

from validator.cli.main import app

TAKEN = FIRST + 6
"""The block whose messages are gone in the same block."""
LAST = TAKEN + 4
REAL = FIRST + 2
"""The last block that is not simulated."""


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[MockNode]:
    root_of = made.root_of
    chain = busy_chain(REAL)
    monkeypatch.setattr(made, "root_of", lambda _: bytes(32))
    while chain.number < LAST:
        number = chain.number + 1
        chain.add(downward=[(2000, b"kept %d" % number)] if number > TAKEN else [(2000, b"taken")] * (number == TAKEN))
        if number == TAKEN:
            chain.state.downward.pop(2000)
            block = chain.recording.blocks[to_hex(chain.parent)]
            del block.storage[to_hex(keys.para_key(keys.DMP_QUEUES, 2000))]
    monkeypatch.setattr(made, "root_of", root_of)
    with MockNode(chain.recording) as node:
        yield node


def test_simulated_block_is_refused_with_the_option_that_follows_it(node: MockNode, tmp_path: Path) -> None:
    world, out = World([node.url], tmp_path, to_block=LAST), Collected()
    with pytest.raises(
        Simulated, match=f"block {REAL + 1}: expected a state root, found zeros: a simulator .* --simulator"
    ):
        world.follow(out, world.seed())
    assert out.blocks() == list(range(FIRST, REAL + 1))
    assert not [line for line in world.told if "every node" in line]


def test_simulator_is_followed_with_its_heads_believed(node: MockNode, tmp_path: Path) -> None:
    world, out = World([node.url], tmp_path), Collected()
    seed = world.seed()
    out.commit(seed.records, seed.position)
    pool = NodePool([node.url], world.time, genesis=GENESIS, tell=world.tell)
    chain = Chain(pool, MetadataCache(tmp_path / "metadata"), load)
    where = source(node.url, to_block=LAST, simulator=True)
    Follower(LANE, where, chain, world.time, seed.position, out, world.tell).run()
    pool.close()
    assert out.blocks() == list(range(FIRST, LAST + 1))
    assert out.of("downward-messages", TAKEN) == []
    assert [bytes.fromhex(each["msg"]) for each in out.of("downward-messages", TAKEN + 1)] == [b"kept %d" % (TAKEN + 1)]
    (line,) = [line for line in world.told if "is believed" in line]
    assert line.startswith(f"block {TAKEN}: downward queue of para 2000: expected messages that lead to head 0x")
    assert out.cursor is not None
    assert Position.decode(out.cursor).number == LAST


def test_option_is_asked_for_at_the_start_and_kept_in_the_configuration(
    node: MockNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    begin = ["follow", "--prepare", "--rpc", node.url, "--lane", LANE, "--from-block", str(FIRST + 2)]
    refused = CliRunner().invoke(app, begin)
    assert refused.exit_code == 2
    assert f"validator: block {LAST}: expected a state root, found zeros" in refused.stderr
    taken = CliRunner().invoke(app, [*begin, "--simulator"])
    assert taken.exit_code == 0, taken.stderr
    config = tomllib.loads(Path("validator.toml").read_text())
    assert config["transports"]["relay-chain"]["chains"][LANE]["simulator"] is True
    assert CliRunner().invoke(app, ["follow", "--prepare", "--lane", LANE, "--simulator"]).exit_code == 0
    text = Path("validator.toml").read_text()
    Path("validator.toml").write_text(text.replace("simulator = true\n", ""))
    again = CliRunner().invoke(app, ["follow", "--prepare", "--lane", LANE, "--simulator"])
    assert again.exit_code == 2
    assert "--simulator: expected only without validator.toml: add simulator = true to " in again.stderr
