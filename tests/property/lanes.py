# SPDX-License-Identifier: Apache-2.0
"""Simulated chains as inputs of a lane, and the output of a lane as bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from validator_simulators import SimulatedBlock, SimulationSettings
from validator_simulators.router.traffic import RouterSimulation

from tests.codecs import decoded, encoded
from tests.property.shapes import para_of
from validator.codec.encode import Encoder, OutputRecord
from validator.core.handlers.upward import FixedWeightDispatcher
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.lane import Lane, LaneSettings
from validator.core.outcomes import Executed
from validator.core.rules import ChainSettings
from validator.core.types import Balances, Enactment
from validator.protocols.router.configuration import HostConfiguration
from validator.protocols.router.rules import Router

KINDS = {
    "blocks": RecordKind.BLOCK,
    "channel-requests": RecordKind.REQUEST,
    "downward-messages": RecordKind.DOWNWARD,
    "candidates": RecordKind.CANDIDATE,
}


def decode(kind: RecordKind, raw: bytes, source: Source) -> Input:
    item = decoded(kind, raw, source)
    assert not isinstance(item, DeadLetter), item.detail
    return item[1]


def input_of(topic: str, record: dict[str, Any], offset: int = 0) -> Input:
    kind = KINDS[topic]
    return decode(kind, encoded(kind, record), Source(topic, 0, offset))


@dataclass(frozen=True)
class Chain:
    """A simulated chain: its description, its blocks, and all of its records in canonical order."""

    description: dict[str, Any]
    blocks: tuple[SimulatedBlock, ...]
    inputs: tuple[Input, ...]

    def router(self) -> Router:
        chain = self.description
        return Router.at_genesis(
            ChainSettings(
                HostConfiguration(**chain["config"]),
                tuple(para_of(para) for para in chain["genesis_paras"]),
                balances=Balances.UNLIMITED if chain["balances"] == "unlimited" else Balances.LEDGER,
                notifications=chain["hrmp_notifications"],
                upward_messages=self.dispatcher(),
                enactment=Enactment(chain["enactment"]),
            )
        )

    def dispatcher(self) -> FixedWeightDispatcher:
        chain = self.description
        weights = {bytes.fromhex(payload): weight for payload, weight in chain["ump_weights"].items()}
        failing = frozenset(bytes.fromhex(payload) for payload in chain["ump_failing_messages"])
        return FixedWeightDispatcher(weights, chain["ump_default_weight"], failing)

    def lane(self, settings: LaneSettings | None = None) -> Lane:
        return Lane("polkadot", self.router(), self.description["first_block"] - 1, settings)

    def restarted(self, lane: Lane) -> Lane:
        """Return the lane restored from its snapshot."""

        def load_rules(pages: list[bytes]) -> Router:
            return Router.from_pages(
                pages,
                ChainSettings(enactment=Enactment(self.description["enactment"]), upward_messages=self.dispatcher()),
            )

        snapshot = lane.snapshot()
        restored = Lane.restore(lane.name, snapshot, load_rules, decode, lane.settings)
        assert restored.snapshot() == snapshot
        return restored


@cache
def simulated(**settings: Any) -> Chain:
    simulation = RouterSimulation(SimulationSettings(**settings))
    blocks = tuple(simulation.blocks())
    records = [record for block in blocks for record in block.records]
    inputs = tuple(input_of(topic, record, offset) for offset, (topic, record) in enumerate(records))
    return Chain(simulation.chain(), blocks, inputs)


def output_of(executed: Executed) -> list[OutputRecord]:
    """Return the output of a block, as the bytes that go to Kafka."""
    return Encoder("polkadot", bytes(32)).executed(executed)


def counters_add_up(lane: Lane) -> bool:
    count = lane.counters
    return count.consumed == count.accepted + count.rejected + count.duplicate + count.dead + count.waiting
