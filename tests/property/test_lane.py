# SPDX-License-Identifier: Apache-2.0
"""A lane emits the same bytes for any order of arrival, any split into batches, redelivery and restarts."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_simulators import accepted

from tests.hypothesis_profile import examples
from tests.property.lanes import Chain, counters_add_up, output_of, simulated
from validator.codec.encode import OutputRecord
from validator.core.execute import Intervals
from validator.core.lane import LaneSettings
from validator.core.outcomes import Executed
from validator.history.audit import ALL, QueueLedger

SMALL = {
    "seed": 3,
    "blocks": 14,
    "preset": "tight",
    "paras": 8,
    "candidates_per_block": 4,
    "session_length_blocks": 4,
}
CHAINS: dict[str, dict[str, Any]] = {
    "immediate": {**SMALL, "notifications": True},
    "on-inclusion": {**SMALL, "seed": 4, "enactment": "on-inclusion", "unlimited_balances": True},
}
# headroom and roots are emitted at heights other than the restarts, so that pending output must survive a restart
SETTINGS = LaneSettings(intervals=Intervals(headroom=3, root=5))


@cache
def in_order(name: str) -> tuple[list[OutputRecord], ...]:
    lane = simulated(**CHAINS[name]).lane(SETTINGS)
    outputs = []
    for item in simulated(**CHAINS[name]).inputs:
        assert lane.add(item) == []
        outputs += [output_of(executed) for executed, _ in lane.execute_ready()]
    assert lane.counters.waiting == 0
    return tuple(outputs)


def play(chain: Chain, deliveries: list[Any], cuts: set[int], restarts: set[int]) -> tuple[list[OutputRecord], ...]:
    lane = chain.lane(SETTINGS)
    outputs = []
    for position, item in enumerate(deliveries):
        assert lane.add(item) == []
        assert counters_add_up(lane)
        if position in cuts:
            outputs += [output_of(executed) for executed, _ in lane.execute_ready()]
            assert counters_add_up(lane)
        if position in restarts:
            lane = chain.restarted(lane)
            assert counters_add_up(lane)
    outputs += [output_of(executed) for executed, _ in lane.execute_ready()]
    assert counters_add_up(lane)
    assert lane.counters.consumed == len(deliveries)
    assert lane.counters.duplicate == len(deliveries) - len(chain.inputs)
    assert (lane.counters.dead, lane.counters.waiting) == (0, 0)
    assert (lane.waiting_blocks, lane.waiting_bytes) == (0, 0)
    return tuple(outputs)


@pytest.mark.parametrize("name", CHAINS)
@examples(40)
@given(
    seed=st.integers(0, 2**32),
    nearly_in_order=st.booleans(),
    cut_share=st.floats(0, 1),
    restart_share=st.floats(0, 0.1),
)
def test_any_arrival_gives_the_same_bytes(
    name: str, seed: int, nearly_in_order: bool, cut_share: float, restart_share: float
) -> None:
    chain = simulated(**CHAINS[name])
    random = Random(seed)
    repeated = random.sample(chain.inputs, random.randrange(len(chain.inputs)))
    deliveries = [*chain.inputs, *repeated]
    if nearly_in_order:
        deliveries.sort(key=lambda item: (item.block + random.choice((0, 0, 0, 1, 2, 9)), random.random()))
    else:
        random.shuffle(deliveries)
    cuts = {at for at in range(len(deliveries)) if random.random() < cut_share}
    restarts = {at for at in range(len(deliveries)) if random.random() < restart_share}
    assert play(chain, deliveries, cuts, restarts) == in_order(name)


@pytest.mark.parametrize("name", CHAINS)
def test_restart_after_every_record_gives_the_same_bytes(name: str) -> None:
    chain = simulated(**CHAINS[name])
    everywhere = set(range(len(chain.inputs)))
    assert play(chain, list(chain.inputs), everywhere, everywhere) == in_order(name)


@pytest.mark.parametrize("name", CHAINS)
def test_one_batch_in_reverse_order_gives_the_same_bytes(name: str) -> None:
    chain = simulated(**CHAINS[name])
    assert play(chain, list(reversed(chain.inputs)), set(), set()) == in_order(name)


# --- verdicts match the naive model ---


def verdicts(executed: Executed) -> list[dict[str, Any]]:
    found = []
    for verdict in executed.verdicts:
        violation = verdict.violation
        result: dict[str, Any] = accepted([each._asdict() for each in verdict.received])
        if violation is not None:
            shown = violation.details() if violation.normative else {}
            result = {"ok": False, "error": {"kind": violation.kind, **shown}}
        head = {"lane": "polkadot", "block": verdict.block, "kind": str(verdict.kind), "index": verdict.index}
        found.append({**head, **result})
    return found


@pytest.mark.parametrize(
    "settings",
    [
        {"seed": 11, "blocks": 60, "preset": "tight", "paras": 9, "session_length_blocks": 6, "violation_share": 0.4},
        {"seed": 12, "blocks": 60, "enactment": "on-inclusion", "violation_share": 0.3, "session_length_blocks": 7},
        {"seed": 13, "blocks": 40, "preset": "tight", "notifications": True, "unlimited_balances": True},
        {"seed": 14, "blocks": 40, "topology": "kusama", "session_length_blocks": 3, "first_block": 4_000_000_000},
    ],
    ids=lambda settings: f"seed-{settings['seed']}",
)
def test_verdicts_match_the_simulation(settings: dict[str, Any]) -> None:
    chain = simulated(**settings)
    lane = chain.lane()
    for item in chain.inputs:
        lane.add(item)
    outcomes = [executed for executed, _ in lane.execute_ready()]
    assert len(outcomes) == len(chain.blocks)
    for block, executed in zip(chain.blocks, outcomes, strict=True):
        assert verdicts(executed) == block.expected
        dispatched = [[dispatch.para_id, dispatch.payload.hex()] for dispatch in executed.dispatches]
        assert dispatched == block.dispatched
    queues = QueueLedger()
    for executed in outcomes:
        queues.observe(executed)
    assert list(queues.findings(lane.rules.levels(chain.blocks[-1].block, ALL))) == []
    assert len(queues.gone) > 5
    receipts = [executed.receipt for executed in outcomes]
    assert sum(receipt.accepted for receipt in receipts) == sum(
        verdict["ok"] for block in chain.blocks for verdict in block.expected
    )
    assert any(receipt.rejected for receipt in receipts)
    assert any(receipt.state_root for receipt in receipts)
