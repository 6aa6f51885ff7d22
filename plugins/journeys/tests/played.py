# SPDX-License-Identifier: Apache-2.0
"""Simulated chains as a job of the product sees them: the records that a lane reads and emits, block by block, and its state after them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from validator_journeys import records
from validator_simulators import SimulationSettings
from validator_simulators.settings import PROFILES

from tests.unit.lanes.chains import Chain, chain, definition_of, inputs_of
from validator.core.levels import LevelChoice, Levels
from validator.core.limits import U32_MAX
from validator.lanes.processor import LaneProcessor

OUTPUTS = (records.VERDICTS, records.DISPATCHES, records.EVENTS, records.RECEIPTS)
INPUTS = (records.BLOCKS, records.CANDIDATES, records.DOWNWARD)

SMALL = {"preset": "tight", "paras": 8, "candidates_per_block": 5, "session_length_blocks": 5}
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "router": ("router", {**SMALL, "seed": 21, "blocks": 60, "notifications": True, "requests_per_100_blocks": 400}),
    "router-loose": ("router", {"seed": 22, "blocks": 60, "session_length_blocks": 6}),
    "router-on-inclusion": (
        "router",
        {**SMALL, "seed": 23, "blocks": 60, "enactment": "on-inclusion", "violation_share": 0.2},
    ),
    "router-history": ("router", {**PROFILES["history"], "seed": 24}),
    "early-hrmp": ("early-hrmp", {"seed": 25, "blocks": 80, "session_length_blocks": 5}),
    "early-hrmp-on-inclusion": (
        "early-hrmp",
        {"seed": 26, "blocks": 80, "session_length_blocks": 5, "enactment": "on-inclusion"},
    ),
    "xcmp": ("xcmp", {"seed": 27, "blocks": 60, "session_length_blocks": 5}),
    "xcmp-network": ("xcmp-network", {"seed": 28, "blocks": 60, "session_length_blocks": 5}),
}


@dataclass(frozen=True, slots=True)
class Played:
    """A chain with the records of each block, by topic in order, those that the lane reads first, and the levels after the last block."""

    protocol: str
    chain: Chain
    blocks: tuple[tuple[tuple[str, bytes], ...], ...]
    levels: Levels


@cache
def played(name: str) -> Played:
    """Execute a chain, whose state is read after its last block."""
    protocol, settings = SETTINGS[name]
    of = chain(SimulationSettings(**settings), protocol)
    processor = LaneProcessor.create(definition_of(of))
    emitted = {
        each.block: each.records
        for each in processor.process(inputs_of(of.records, protocol))
        if each.block is not None
    }
    blocks = []
    for block, given in groupby(of.records, lambda each: each.block):
        read = [(each.topic, each.value) for each in given if each.topic in INPUTS]
        written = [(each.topic, each.value) for each in emitted[block] if each.topic in OUTPUTS]
        blocks.append((*read, *written))
    levels = processor.lane.rules.levels(of.blocks[-1].block, LevelChoice(None, U32_MAX, U32_MAX))
    return Played(protocol, of, tuple(blocks), levels)
