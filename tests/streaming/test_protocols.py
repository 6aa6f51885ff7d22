# SPDX-License-Identifier: Apache-2.0
"""Chains of four protocols in one job: each emits what it emits alone, and what its naive model expects."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from validator_simulators import SimulationSettings

from tests.streaming.harness import Stream, decoded, first_difference, last_status, of_lane
from tests.streaming.reference import output_alone
from tests.unit.lanes.chains import chain, definition_of

BLOCKS: Final = 60
PROTOCOLS: Final = {"polkadot": "router", "rococo": "early-hrmp", "westend": "xcmp", "paseo": "xcmp-network"}


def test_four_protocols_in_one_job_match_their_models(stream: Callable[..., Stream]) -> None:
    chains = {
        lane: chain(SimulationSettings(seed=31, blocks=BLOCKS, lane=lane, violation_share=0.15), protocol)
        for lane, protocol in PROTOCOLS.items()
    }
    definitions = {lane: definition_of(each) for lane, each in chains.items()}
    assert {lane: each.plan.protocol for lane, each in definitions.items()} == PROTOCOLS
    records = [record for each in chains.values() for record in each.records]
    Random(6).shuffle(records)
    running = stream(definitions, records_per_trigger=1_500)
    running.produce(records[::2])
    running.start()
    running.settle()
    running.produce(records[1::2])
    running.settle()
    running.stop()

    outputs = running.outputs()
    assert decoded(outputs, "dead-letters") == []
    verdicts = decoded(outputs, "verdicts")
    for lane, each in chains.items():
        assert first_difference(of_lane(outputs, lane), output_alone(definitions[lane], each)) is None
        status = last_status(outputs, lane)
        assert (status["executed_block"], status["waiting"]) == (each.blocks[-1].block, 0)
        by_place = {
            (verdict["block"], verdict["kind"], verdict["index"]): verdict
            for verdict in verdicts
            if verdict["lane"] == lane
        }
        assert len(by_place) == len(each.expected)
        for expected in each.expected:
            verdict = by_place[expected["block"], expected["kind"], expected["index"]]
            assert verdict["ok"] == expected["ok"], (verdict, expected)
            assert expected["ok"] or verdict["error"]["kind"] == expected["error"]["kind"], (verdict, expected)
