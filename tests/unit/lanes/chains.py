# SPDX-License-Identifier: Apache-2.0
"""Simulated chains as the job sees them: configurations, lane definitions, and records decoded to inputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from validator_simulators import SimulatedBlock, SimulationSettings
from validator_simulators.installed import chain_table, simulation_of

from tests.codecs import decoded, encoded
from validator.config import DEFAULT_PROTOCOL, Config
from validator.core.inputs import DeadLetter, Input, Source
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition

PREFIX = "test."


@dataclass(frozen=True, slots=True)
class Record:
    """A record to be written to Kafka; its topic has no prefix."""

    lane: str
    topic: str
    block: int
    value: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Chain:
    """A simulated chain with all its blocks."""

    lane: str
    table: dict[str, Any]
    blocks: tuple[SimulatedBlock, ...]
    records: tuple[Record, ...]

    @property
    def expected(self) -> list[dict[str, Any]]:
        """The verdicts that the simulator's own model gives, in order."""
        return [verdict for block in self.blocks for verdict in block.expected]


@cache
def chain(settings: SimulationSettings, protocol: str = DEFAULT_PROTOCOL) -> Chain:
    """Simulate a chain."""
    simulation = simulation_of(protocol, settings)
    described = simulation.chain()
    blocks = tuple(simulation.blocks())
    records = (record(topic, body, protocol) for block in blocks for topic, body in block.records)
    return Chain(described["lane"], chain_table(described), blocks, tuple(records))


def record(topic: str, body: dict[str, Any], protocol: str = DEFAULT_PROTOCOL) -> Record:
    """Encode a record given as JSON."""
    return Record(body["lane"], topic, body["block"], encoded(topic, body, protocol))


def config_of(*chains: Chain, job: dict[str, Any] | None = None, **tables: Any) -> Config:
    """Return the configuration of a job that runs chains."""
    return Config.model_validate({"chains": {each.lane: each.table for each in chains}, "job": job or {}, **tables})


def definition_of(of: Chain, job: dict[str, Any] | None = None, **changes: Any) -> LaneDefinition:
    """Return the lane's definition as the job makes it, with keys of its table changed."""
    changed = Chain(of.lane, {**of.table, **changes}, of.blocks, of.records)
    return lane_definition(config_of(changed, job={"directory": "nowhere", **(job or {})}), of.lane)


def inputs_of(records: Iterable[Record], protocol: str = DEFAULT_PROTOCOL) -> list[Input | DeadLetter]:
    """Decode records as a job with lanes of a protocol does; each topic counts its own offsets."""
    offsets: dict[str, int] = {}
    items: list[Input | DeadLetter] = []
    for each in records:
        offset = offsets[each.topic] = offsets.get(each.topic, -1) + 1
        item = decoded(each.topic, each.value, Source(PREFIX + each.topic, 0, offset), each.lane.encode(), protocol)
        items.append(item if isinstance(item, DeadLetter) else item[1])
    return items
