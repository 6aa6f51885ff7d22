# SPDX-License-Identifier: Apache-2.0
"""Plays simulated chains of the Router through lanes, and compares what comes out with what the model expects."""

from __future__ import annotations

from collections import Counter
from typing import Any

from validator_simulators.contract import disagreement, open_kinds_of, refusals
from validator_simulators.installed import chain_table
from validator_simulators.router.traffic import RouterSimulation

from validator.protocols.router.traces import view
from validator.testing import ChainPlayer


def assert_lane_agrees(simulation: RouterSimulation) -> Counter[str]:
    """Compare every verdict, every dispatch and the state at the end; return how often each error occurred."""
    chain = simulation.chain()
    player = ChainPlayer(chain["lane"], chain_table(chain))
    open_kinds = open_kinds_of("validator")
    met: Counter[str] = Counter()
    for block in simulation.blocks():
        outputs = player.play(block.records)
        assert disagreement(block.expected, outputs["verdicts"], open_kinds) is None
        assert [[each["para_id"], each["payload"]] for each in outputs["dispatches"]] == block.dispatched
        met += refusals([block])
    rules: Any = player.rules
    assert view(rules.state) == simulation.router.state()
    return met
