# SPDX-License-Identifier: Apache-2.0
"""Thousands of blocks from a node that keeps going wrong: no gap, no block twice, and memory that does not grow with the chain."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import pytest
from relay_world import FIRST, LANE, World, busy_chain, source
from validator_relay_chain.channels import JsonRecord
from validator_relay_chain.convert import Step
from validator_relay_chain.follow import Follower
from validator_relay_chain.position import Position
from validator_simulators.relay_chain import Fault, FaultKind, MockNode

BLOCKS = 3_000
GROWTH_KIB_MAX = 48 * 1024
"""More memory at the end than after a third of the chain; a list of all records alone takes more."""
FAULTS = (
    Fault(FaultKind.CUT, "chain_getBlock", after=3),
    Fault(FaultKind.TRUNCATED, "state_getReadProof", after=2),
    Fault(FaultKind.RATE_LIMIT, "state_queryStorageAt", count=2),
    Fault(FaultKind.WRONG_ANSWER, "chain_getBlockHash", after=1),
    Fault(FaultKind.NULL, "chain_getBlock", after=1),
    Fault(FaultKind.WRONG_HEADER, "chain_getHeader"),
    Fault(FaultKind.ERROR, "chain_getBlockHash", after=4),
    Fault(FaultKind.REORDER, "state_getReadProof", after=5, count=2),
)


class Counted:
    """Where a lane's records go: counted, not kept."""

    def __init__(self, *nodes: MockNode) -> None:
        self.blocks = 0
        self.position: Position | None = None
        self.records: Counter[str] = Counter()
        self.kib_after_a_third = 0
        self._nodes, self._faults = nodes, cycle(FAULTS)

    def commit(self, records: Sequence[tuple[str, JsonRecord]], position: Position) -> None:
        """Check that blocks follow each other; order the next fault."""
        for topic, record in records:
            self.records[topic] += 1
            if topic == "blocks":
                assert record["block"] == FIRST + 1 + self.blocks
                self.blocks += 1
        assert position.number == FIRST + self.blocks
        self.position = position
        if not self.kib_after_a_third and self.blocks > BLOCKS // 3:
            self.kib_after_a_third = peak_kib()
        fault = next(self._faults)
        for node in self._nodes:
            node.order(fault)

    def show(self, step: Step, target: int, head: int) -> None:
        """Ignore it."""


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.long
def test_thousands_of_blocks_with_faults_leave_no_gap_and_bounded_memory(tmp_path: Path) -> None:
    last = FIRST + BLOCKS
    with MockNode(busy_chain(last).recording) as node, MockNode(node.recording) as spare:
        world = World([node.url, spare.url], tmp_path, to_block=last)
        world.time = type(world.time)(pauses_max=1_000_000)
        seed, chain, out = world.seed(), world.chain(), Counted(node, spare)
        where = source(node.url, to_block=last)
        Follower(LANE, where, chain, world.time, seed.position, out, world.told.append).run()
        chain.pool.close()
    assert (out.records["blocks"], out.records["relay-chain.facts"]) == (BLOCKS, BLOCKS)
    assert out.records["candidates"] > BLOCKS
    assert chain.pool.failures.total() > 20
    assert peak_kib() - out.kib_after_a_third < GROWTH_KIB_MAX
