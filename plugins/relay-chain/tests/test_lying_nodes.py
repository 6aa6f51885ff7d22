# SPDX-License-Identifier: Apache-2.0
"""A lane is prepared although a node lies, as long as an honest spare is there; without one there is an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from answers_world import A_MINUTE_S, prepared, waited_s
from relay_world import LAST, Collected, World, busy_chain
from validator_relay_chain import keys
from validator_relay_chain.errors import BadAnswer, FollowError
from validator_relay_chain.header import to_hex
from validator_relay_chain.seeding import Seed
from validator_simulators.relay_chain import Fault, FaultKind, MockNode


def lie_about_a_value(node: MockNode) -> None:
    node.order(Fault(FaultKind.WRONG_ANSWER, "state_queryStorageAt", count=None))


def lie_in_proofs(node: MockNode) -> None:
    node.order(Fault(FaultKind.WRONG_ANSWER, "state_getReadProof", count=None))


def lie_about_headers(node: MockNode) -> None:
    node.order(Fault(FaultKind.WRONG_HEADER, "chain_getHeader", after=2, count=None))


def lie_about_metadata(node: MockNode) -> None:
    node.recording.metadata["9430"] = node.recording.metadata["9430"][:-9]


def leave_channels_out(node: MockNode) -> None:
    for hash_, block in node.recording.blocks.items():
        kept = {key: value for key, value in block.storage.items() if not key.startswith(to_hex(keys.HRMP_CHANNELS))}
        node.recording.blocks[hash_] = replace(block, storage=kept)


@pytest.mark.usefixtures("speech")
@pytest.mark.parametrize(
    "lie", [lie_about_a_value, lie_in_proofs, lie_about_headers, lie_about_metadata, leave_channels_out]
)
def test_preparing_passes_over_a_node_that_lies(
    lie: Callable[[MockNode], None], speech: str, spare: MockNode, seed: Seed, tmp_path: Path
) -> None:
    if lie is lie_about_a_value and speech != "old":
        pytest.skip("nothing proves what such a node says")
    with MockNode(busy_chain().recording) as liar:
        lie(liar)
        world = World([liar.url, spare.url], tmp_path)
        assert prepared(world, tmp_path).seed == seed
        if lie not in (lie_about_a_value, lie_in_proofs if speech != "old" else None):
            with pytest.raises(FollowError):
                prepared(World([liar.url], tmp_path / "alone"), tmp_path)


@pytest.mark.usefixtures("speech")
def test_wrong_answers_of_every_node_have_an_end(node: MockNode, seed: Seed, tmp_path: Path) -> None:
    node.order(Fault(FaultKind.WRONG_HEADER, "chain_getHeader", after=1, count=None))
    world = World([node.url], tmp_path)
    with pytest.raises(BadAnswer, match="header"):
        prepared(world, tmp_path)
    assert waited_s(world) <= A_MINUTE_S


def test_events_that_a_node_makes_up_are_not_believed(seed: Seed, tmp_path: Path) -> None:
    lying = busy_chain()
    block = lying.recording.blocks[lying.recording.canonical[LAST - 5]]
    others = lying.recording.blocks[lying.recording.canonical[LAST - 4]]
    events = to_hex(keys.SYSTEM_EVENTS)
    block.storage[events] = others.storage[events]
    with MockNode(lying.recording) as liar, MockNode(busy_chain().recording) as spare:
        world, out, expected = World([liar.url, spare.url], tmp_path), Collected(), Collected()
        world.follow(out, seed)
        World([spare.url], tmp_path).follow(expected, seed)
    assert out.records == expected.records
    assert any(f"{liar.url}: block {LAST - 5}: proof: " in line for line in world.told), world.told
