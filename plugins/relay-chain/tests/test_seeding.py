# SPDX-License-Identifier: Apache-2.0
"""A lane that joins in mid-chain: its state is read at one block, proven, and its transport continues from there."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from relay_world import FIRST, GENESIS, LANE, SPEC, World, busy_chain, configuration, empty_chain, runtime
from validator_relay_chain import keys
from validator_relay_chain.errors import FollowError, SeedError
from validator_relay_chain.header import Header, to_hex
from validator_relay_chain.metadata import MetadataCache
from validator_relay_chain.oracle.records import FACTS
from validator_relay_chain.position import Position
from validator_relay_chain.prepare import configuration as tables
from validator_relay_chain.prepare import prepare
from validator_relay_chain.seeding import Snapshot, make_seed, seed_document, take_snapshot
from validator_relay_chain.transport import read_start
from validator_simulators.relay_chain import Fault, FaultKind, MockNode
from validator_simulators.relay_chain.made import MadeChain

from validator.config import Config
from validator.lanes.configured import lane_definition
from validator.plugin.api import LeaseLost
from validator.testing.transport import MemoryTransport

JOINED = 108
"""The block after which the lane joins: channels, messages, requests and digests are there."""


@pytest.fixture(scope="module")
def chain() -> MadeChain:
    return busy_chain(JOINED + 6)


@pytest.fixture
def node(chain: MadeChain) -> Iterator[MockNode]:
    with MockNode(chain.recording) as node:
        yield node


def snapshot(world: World, number: int = JOINED) -> Snapshot:
    chain = world.chain()
    header = chain.header(chain.hash_at(number))
    found = take_snapshot(chain, header, chain.runtime(header.hash), lambda *_: None)
    chain.pool.close()
    return found


def test_state_is_proven_and_kept(node: MockNode, tmp_path: Path) -> None:
    found = snapshot(World([node.url], tmp_path))
    assert found.is_proven
    found.write(tmp_path / "seed.jsonl.gz")
    with gzip.open(tmp_path / "seed.jsonl.gz", "rt") as lines:
        first, *values = map(json.loads, lines)
    assert Header.from_json(first["header"]) == found.header
    assert {each["key"]: each["value"] for each in values} == {
        to_hex(key): to_hex(value) for key, value in found.values.items()
    }
    seed = make_seed(LANE, found, runtime(), GENESIS)
    state = seed.state["state"]
    assert [each["para_id"] for each in state["valid_paras"]] == [1000, 2000, 2004]
    assert list(state["channels"]) == ["2000->2004"]
    assert state["open_requests"]["1000->2000"]["confirmed"] is True
    assert state["dmq"]["2004"][0] == {"sent_at": FIRST, "msg": b"early".hex()}
    assert seed.position.number == JOINED
    assert Position.decode(seed.position.encode()) == seed.position


def test_job_takes_the_state(node: MockNode, tmp_path: Path) -> None:
    world = World([node.url], tmp_path)
    prepared = prepare(world.chain(), LANE, tmp_path / LANE, from_block=JOINED + 1, tell=world.told.append)
    config = Config.model_validate(
        tables(prepared, [node.url], str(tmp_path / LANE), None) | {"job": {"directory": str(tmp_path)}}
    )
    assert lane_definition(config, LANE).first_block == JOINED
    assert world.told == []
    records, cursor = read_start(tmp_path / LANE / "start.json")
    assert Position.decode(cursor).recent[-1] == prepared.header.hash
    assert [topic for topic, _ in records if topic != FACTS] == [*["candidates"] * 3, "blocks"]


def test_value_that_is_not_the_proven_one_is_refused(node: MockNode, tmp_path: Path) -> None:
    node.order(Fault(FaultKind.WRONG_ANSWER, "state_queryStorageAt", after=3, count=None))
    with pytest.raises((SeedError, FollowError)):
        World([node.url], tmp_path, time=World([node.url], tmp_path).time).seed(JOINED)


def test_node_without_proofs_is_told_apart(node: MockNode, tmp_path: Path) -> None:
    node.order(Fault(FaultKind.NO_METHOD, "state_getReadProof", count=None))
    assert not snapshot(World([node.url], tmp_path)).is_proven


def test_channel_that_an_index_does_not_name_is_refused(node: MockNode, tmp_path: Path) -> None:
    found = snapshot(World([node.url], tmp_path))
    for prefix in (keys.HRMP_CHANNELS, keys.HRMP_INGRESS, keys.HRMP_EGRESS):
        values = {key: value for key, value in found.values.items() if not key.startswith(prefix)}
        lacking = Snapshot(found.header, found.spec_name, found.spec_version, values)
        with pytest.raises(SeedError, match="expected the same channels, found 2000->2004 in one of them only"):
            make_seed(LANE, lacking, runtime(), GENESIS)


@pytest.mark.usefixtures("speech")
def test_rules_begin_with_the_block_after_an_upgrade(tmp_path: Path) -> None:
    chain = empty_chain()
    for number in range(FIRST, FIRST + 20):
        chain.add(upgrade_to={FIRST + 7: SPEC + 1, FIRST + 11: 1_000_000}.get(number))
    for version in (SPEC + 1, 1_000_000):
        chain.recording.put_metadata(str(version), chain.recording.metadata[str(SPEC)])
    with MockNode(chain.recording) as node:
        world = World([node.url], tmp_path)
        prepared = prepare(world.chain(), LANE, tmp_path / LANE, from_block=FIRST + 1, tell=world.told.append)
    assert [each["from_block"] for each in prepared.rules] == [0, FIRST + 12]
    assert "dmp_by_relay_parent" in prepared.rules[1]["features"]


@pytest.mark.usefixtures("speech")
def test_blocks_that_are_not_there_are_refused_in_one_line(node: MockNode, tmp_path: Path) -> None:
    world = World([node.url], tmp_path)

    def joined(from_block: int, to_block: int | None) -> Any:
        return prepare(world.chain(), LANE, tmp_path, from_block=from_block, to_block=to_block, tell=world.told.append)

    with pytest.raises(FollowError, match=f"--from-block: expected at most {JOINED + 7}, .* found 500"):
        joined(500, None)
    with pytest.raises(FollowError, match="--to-block: expected a block after 104, found 103"):
        joined(105, 103)


# --- the transport ---


def transport(node: MockNode, folder: Path, to_block: int) -> MemoryTransport:
    source = {"rpc": [node.url], "genesis": to_hex(GENESIS), "folder": str(folder), "to_block": to_block}
    return MemoryTransport("relay-chain", {"chains": {LANE: source}}, transport="relay-chain")


@pytest.mark.usefixtures("speech")
def test_transport_begins_with_the_seed_and_continues_after_a_kill(node: MockNode, tmp_path: Path) -> None:
    seed = World([node.url], tmp_path).seed(JOINED)
    (tmp_path / "start.json").write_text(json.dumps(seed_document(seed)))
    undisturbed = transport(node, tmp_path, JOINED + 6)
    undisturbed.run()
    blocks = [
        undisturbed.forms.decode("blocks", value)["block"]
        for topic, _, value in undisturbed.submitted
        if topic == "blocks"
    ]
    assert blocks == list(range(JOINED, JOINED + 7))

    memory = transport(node, tmp_path, JOINED + 3)
    memory.on_commit = lambda *_: memory.lose_lease()
    with pytest.raises(LeaseLost):
        memory.run()
    assert (memory.submitted, memory.cursors) == ([], {})
    memory.on_commit = lambda *_: None
    memory.run()
    later = transport(node, tmp_path, JOINED + 6)
    later.submitted, later.cursors = memory.submitted, memory.cursors
    later.run()
    assert len(later.submitted) == len(undisturbed.submitted)
    differing = [each[0] for each, other in zip(later.submitted, undisturbed.submitted, strict=True) if each != other]
    assert differing == ["relay-chain.facts"], "the last block that was wanted first has been compared"
    assert later.cursors == undisturbed.cursors


def test_lane_without_a_beginning_is_an_error(node: MockNode, tmp_path: Path) -> None:
    with pytest.raises(
        FollowError, match=r"start.json: expected what a lane begins with, found no file: `validator follow` writes it"
    ):
        transport(node, tmp_path, JOINED).run()
    (tmp_path / "start.json").write_text("[]")
    with pytest.raises(FollowError, match=r"start.json: expected what a lane begins with, found "):
        transport(node, tmp_path, JOINED).run()


# --- positions and metadata on disk ---


@pytest.mark.parametrize("cursor", [b"", b"x", bytes(40), b"\x78\x9c"])
def test_bytes_that_are_no_cursor_are_refused(cursor: bytes) -> None:
    with pytest.raises(ValueError, match="cursor: "):
        Position.decode(cursor)


def test_damaged_metadata_on_disk_is_as_good_as_none(tmp_path: Path) -> None:
    cache = MetadataCache(tmp_path)
    assert cache.read(GENESIS, "polkadot", 1) is None
    cache.write(GENESIS, "polkadot", 1, configuration())
    assert cache.read(GENESIS, "polkadot", 1) == configuration()
    (path,) = tmp_path.rglob("*.metadata")
    raw = path.read_bytes()
    for damaged in (b"", raw[:40], raw[:-1], bytes(32) + raw[32:], raw[:50] + b"\0" + raw[51:]):
        path.write_bytes(damaged)
        assert cache.read(GENESIS, "polkadot", 1) is None
