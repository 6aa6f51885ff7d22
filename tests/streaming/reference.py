# SPDX-License-Identifier: Apache-2.0
"""The output of a lane that gets its records in order, in one batch and in this process: the job must emit the same."""

from __future__ import annotations

from functools import cache

from validator_simulators import SimulationSettings

from tests.streaming.harness import SAME_WHATEVER_ARRIVES, Outputs
from tests.unit.lanes.chains import Chain, chain, definition_of, inputs_of
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor

IMMEDIATE = SimulationSettings(seed=11, blocks=60, violation_share=0.15)
ON_INCLUSION = SimulationSettings(
    seed=12,
    blocks=60,
    lane="kusama",
    topology="kusama",
    violation_share=0.15,
    enactment="on-inclusion",
    notifications=True,
    unlimited_balances=True,
)


@cache
def chains() -> tuple[Chain, Chain]:
    """Return the two relay chains of these tests."""
    return chain(IMMEDIATE), chain(ON_INCLUSION)


@cache
def definition(of: SimulationSettings) -> LaneDefinition:
    """Return the lane of a simulated chain."""
    return definition_of(chain(of))


@cache
def reference(of: SimulationSettings) -> Outputs:
    """Return the output of a simulated chain's lane."""
    return output_alone(definition(of), chain(of))


def output_alone(definition: LaneDefinition, of: Chain) -> Outputs:
    """Return the output of a lane that runs alone."""
    worker = LaneProcessor.create(definition)
    outputs: Outputs = {topic: [] for topic in SAME_WHATEVER_ARRIVES}
    for _, records in worker.process(inputs_of(of.records, of.table["protocol"])):
        for record in records:
            outputs[record.topic].append((record.key, record.value))
    return outputs
