# SPDX-License-Identifier: Apache-2.0
"""The operator and the lane agree on queues and watermarks in every scenario of the protocol's suite."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from validator_xcmp_bodies.bodies import Bodies
from validator_xcmp_bodies.outcomes import EventKind, IngressEvent, Settings, Watermark

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "xcmp-network" / "tests"))

from network_suite import all_scenarios
from network_trace import as_record

from validator.testing.lane_suite import SuitePlayer, blocks_of, fits_into_blocks

SCENARIOS = [each for each in all_scenarios() if fits_into_blocks(each)]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["id"])
def test_operator_and_lane_agree(scenario: dict[str, Any]) -> None:
    player, bodies = SuitePlayer(scenario, as_record), Bodies(Settings())
    for block, steps in blocks_of(scenario):
        for topic, value in player.execute(block, steps):
            if topic == "ingress-events":
                names = value["recipient"], value["sender"], value["sent_at"]
                root = bytes.fromhex(value["root"])
                bodies.apply(IngressEvent(value["block"], EventKind(value["event"]), *names, root, value["size"]))
        bodies.finish()
    state = player._view(player.lane.rules.state)
    queues = {recipient: queue for recipient, queue in bodies.queues.items() if queue.order}
    assert {str(recipient): [list(name) for name in queue.order] for recipient, queue in queues.items()} == state[
        "ingress"
    ]
    for recipient, watermark in state["watermarks"].items():  # the chain forgets that of a para that leaves
        assert bodies.queues[int(recipient)].watermark == Watermark(watermark["block"], tuple(watermark["acked"]))
