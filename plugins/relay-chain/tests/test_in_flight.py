# SPDX-License-Identifier: Apache-2.0
"""Many blocks in flight: what a block needs is read with it, however long a call takes, and the records are the same."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from paged_world import LAST as PAGED_LAST
from paged_world import paged_chain
from relay_world import FIRST, LAST, SESSION, Collected, World, busy_chain, empty_chain
from validator_relay_chain import follow
from validator_relay_chain.config import ChainSource
from validator_relay_chain.errors import ChainContradiction
from validator_relay_chain.limits import HASHES_PER_CALL, WALK_BLOCKS_MAX
from validator_simulators.relay_chain import Fault, FaultKind, MockNode
from validator_simulators.relay_chain.made import PARACHAIN, MadeChain, MadeState

pytestmark = pytest.mark.usefixtures("speech")


def followed(chain: MadeChain, folder: Path, in_flight: int, *faults: Fault, every: int = 3) -> tuple[Collected, World]:
    with MockNode(chain.recording, faults) as node:
        world = World([node.url], folder, to_block=chain.number, in_flight=in_flight, compare_every_blocks=every)
        out = Collected()
        world.follow(out, world.seed())
    return out, world


@pytest.mark.parametrize("chain", [busy_chain, paged_chain])
def test_records_are_the_same_with_many_in_flight(chain: object, tmp_path: Path) -> None:
    made = busy_chain() if chain is busy_chain else paged_chain()
    assert made.number in (LAST, PAGED_LAST)
    one, _ = followed(made, tmp_path / "one", 1)
    many, _ = followed(made, tmp_path / "many", 64)
    assert many.records == one.records
    assert many.cursor == one.cursor


def long_chain() -> MadeChain:
    """Return a chain longer than one call for hashes, with a para that comes, and downward messages to it."""
    chain = empty_chain()

    def comes(state: MadeState) -> None:
        state.lifecycles[2012] = PARACHAIN

    while chain.number < FIRST + HASHES_PER_CALL + WALK_BLOCKS_MAX + 40:
        number = chain.number + 1
        session = number == SESSION
        para = 2012 if number > SESSION else 2000
        chain.add(
            downward=[(para, b"%d" % number)] if number % 2 else [], new_session=session, hidden=comes if session else lambda _: None
        )  # fmt: skip
    return chain


def test_queues_are_read_ahead_and_hashes_by_the_hundred(tmp_path: Path, speech: str) -> None:
    if speech != "old":
        pytest.skip("the newer methods have no call for several hashes")
    chain = long_chain()
    with MockNode(chain.recording) as node:
        world = World([node.url], tmp_path, to_block=chain.number, in_flight=8, compare_every_blocks=0)
        out, seed = Collected(), world.seed()
        node.requests.clear()
        world.follow(out, seed)
        asked = node.requests
    blocks = chain.number - FIRST
    assert asked["chain_getBlockHash"] < 10
    assert asked["chain_getBlock"] == blocks
    late = 2 * 2 * 8 * 2
    assert asked["state_queryStorageAt"] <= blocks + blocks // 2 + late, (
        "heads with each block, and queues that have moved"
    )
    assert len([topic for topic, _ in out.records if topic == "downward-messages"]) == blocks // 2 + blocks % 2


def test_facts_that_cannot_be_gathered_stop_before_their_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts_of, stop = follow.facts_of, FIRST + 7

    def failing(*given: object, **named: object) -> object:
        step = given[1]
        if step.block.number == stop:  # type: ignore[attr-defined]
            raise ChainContradiction("storage")
        return facts_of(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(follow, "facts_of", failing)
    chain = busy_chain()
    with MockNode(chain.recording) as node:
        world, out = World([node.url], tmp_path, to_block=chain.number), Collected()
        with pytest.raises(ChainContradiction):
            world.follow(out, world.seed())
    assert out.blocks() == list(range(FIRST, stop))


def test_faults_among_many_in_flight_leave_no_gap(tmp_path: Path) -> None:
    made = busy_chain()
    expected, _ = followed(made, tmp_path / "one", 1)
    faults = [Fault(FaultKind.CUT, "chain_getBlock", 9, 2), Fault(FaultKind.ERROR, "state_queryStorageAt", 11, 2)]
    found, world = followed(made, tmp_path / "many", 32, *faults)
    assert found.records == expected.records
    assert world.told


def test_configuration_takes_a_number_in_its_limits() -> None:
    given = {"rpc": ("ws://127.0.0.1:1",), "genesis": "0x" + 64 * "0", "folder": "x"}
    assert ChainSource(**given, in_flight=256).in_flight == 256
    for wrong in (0, 257):
        with pytest.raises(ValueError, match=f"in_flight: expected 1 to 256 blocks, found {wrong}"):
            ChainSource(**given, in_flight=wrong)
    assert threading.active_count() < 64, "threads end with their follower"
