# SPDX-License-Identifier: Apache-2.0
"""The tests that the simulated chains of a protocol inherit.

>>> from validator.testing import SimulationContract
>>> class TestMine(SimulationContract):
...     protocol = "my-protocol"
...     kinds = frozenset({"Open/ToSelf", "Close/Unauthorized"})
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any, ClassVar

from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input, to_json
from validator.config import Config
from validator.core.inputs import DeadLetter, Source
from validator.lanes.configured import lane_definition
from validator.lanes.definition import LaneDefinition
from validator.lanes.processor import LaneProcessor
from validator.service.simulation import chain_table, simulation_of
from validator.simulate import SimulatedBlock, SimulationSettings
from validator.topics import INPUT_TOPICS

__all__ = ["SimulationContract", "records_of", "refusals", "simulated"]

Json = dict[str, Any]

_TOLD: tuple[str, ...] = ("lane", "block", "kind", "index", "ok", "error")
_SEEDS = (1, 2, 3)
_BLOCKS = 300
"""Blocks in which a chain breaks every rule there is."""


def simulated(protocol: str, **settings: Any) -> list[SimulatedBlock]:
    """Return the blocks of a simulated chain."""
    return list(simulation_of(protocol, SimulationSettings(**settings)).blocks())


def records_of(blocks: Iterable[SimulatedBlock], topic: str) -> list[Json]:
    """Return the records of a topic."""
    return [record for block in blocks for each, record in block.records if each == topic]


def refusals(blocks: Iterable[SimulatedBlock]) -> Counter[str]:
    """Return how often each kind of error is expected."""
    return Counter(each["error"]["kind"] for block in blocks for each in block.expected if not each["ok"])


class SimulationContract:
    """Inherit from it with a name that begins with ``Test``, and say which protocol, and which errors it has.

    What is held against each other are the rules, in a lane that gets encoded records, and the model behind the simulation.
    """

    protocol: ClassVar[str]
    """Its name; the plugin is installed."""
    kinds: ClassVar[frozenset[str]]
    """Every kind of error of the protocol's own that a verdict may name: each is met."""
    pending_kinds: ClassVar[frozenset[str]] = frozenset(
        {"Inclusion/CandidateNotPending", "Timeout/CandidateNotPending"}
    )
    """Those of a chain whose candidates wait for their inclusion."""

    def test_a_lane_gives_the_verdicts_that_the_model_expects(self) -> None:
        """Block by block, with every field of every error; immediate enactment."""
        for seed in _SEEDS:
            assert self._played("immediate", seed) == self.kinds

    def test_so_it_does_where_candidates_wait_for_their_inclusion(self) -> None:
        """The same, with enactment on inclusion."""
        for seed in _SEEDS:
            assert self._played("on-inclusion", seed) == self.kinds | self.pending_kinds

    def test_the_same_settings_give_the_same_bytes(self) -> None:
        """And another seed gives others."""

        def lines(seed: int) -> list[str]:
            blocks = simulated(self.protocol, seed=seed, blocks=40, enactment="on-inclusion")
            return [json.dumps([block.records, block.expected]) for block in blocks]

        assert lines(5) == lines(5)
        assert lines(5) != lines(6)

    def test_what_a_shorter_chain_has_a_longer_one_begins_with(self) -> None:
        """The number of blocks changes none of them."""
        assert simulated(self.protocol, seed=4, blocks=60)[:25] == simulated(self.protocol, seed=4, blocks=25)

    def test_a_well_behaved_chain_has_no_refusal(self) -> None:
        """With a violation share of 0, whenever candidates are enacted."""
        for enactment in ("immediate", "on-inclusion"):
            blocks = simulated(self.protocol, seed=5, blocks=150, violation_share=0, enactment=enactment)
            assert refusals(blocks) == Counter()
            assert len(records_of(blocks, "candidates")) > 500

    def test_what_is_meant_to_be_refused_is_refused(self) -> None:
        """A candidate that was made to break a rule, or two, meets the error of the first."""
        pairs = 0
        for block in simulated(self.protocol, seed=8, blocks=200, violation_share=0.4):
            verdicts = {each["index"]: each for each in block.expected if each["kind"] == "candidate"}
            for index, kinds in block.intended.items():
                assert verdicts[index]["error"]["kind"] == kinds[0]
                pairs += len(kinds) == 2
        assert pairs > 20

    def test_sessions_move_paras_and_limits(self) -> None:
        """Paras leave, come back later and at once; limits change."""
        blocks = simulated(self.protocol, seed=9, blocks=_BLOCKS)
        changes = [change for block in records_of(blocks, "blocks") if (change := block["session_change"])]
        assert len(changes) == _BLOCKS // 10
        assert any(change["limits"] for change in changes)
        gone: set[int] = set()
        back = at_once = 0
        for change in changes:
            coming = {para["para_id"] for para in change["onboarding"]}
            at_once += bool(coming & set(change["outgoing"]))
            back += bool(coming & gone)
            gone |= set(change["outgoing"])
        assert back
        assert at_once

    def test_small_chains_are_chains(self) -> None:
        """Few paras, no candidates, no blocks, a session a block."""
        for small in ({"paras": 3, "candidates_per_block": 1}, {"candidates_per_block": 0}, {"blocks": 0}):
            settings: Json = {"seed": 2, "blocks": 80, "first_block": 1000, "session_length_blocks": 1, **small}
            blocks = simulated(self.protocol, **settings)
            assert [block.block for block in blocks] == list(range(1000, 1000 + settings["blocks"]))

    def test_balances_may_be_unlimited(self) -> None:
        """Then nobody is short of a deposit."""
        settings = SimulationSettings(seed=3, blocks=200, unlimited_balances=True)
        simulation = simulation_of(self.protocol, settings)
        assert simulation.chain()["balances"] == "unlimited"
        assert "InsufficientBalance" not in refusals(simulation.blocks())

    def _played(self, enactment: Any, seed: int) -> set[str]:
        """Return the kinds of error that come out, every verdict of the lane being as expected."""
        simulation = simulation_of(self.protocol, SimulationSettings(seed=seed, blocks=_BLOCKS, enactment=enactment))
        chain = simulation.chain()
        tables = {"chains": {chain["lane"]: chain_table(chain)}}
        definition = lane_definition(Config.model_validate(tables), chain["lane"])
        worker = LaneProcessor.create(definition)
        met: Counter[str] = Counter()
        for block in simulation.blocks():
            told = self._told_by(worker, definition, block)
            assert [{name: each[name] for name in _TOLD if name in each} for each in told] == block.expected
            met += refusals([block])
        return set(met)

    def _told_by(self, worker: LaneProcessor, definition: LaneDefinition, block: SimulatedBlock) -> list[Json]:
        """Put a block's records into a lane, encoded, and return its verdicts."""
        inputs = []
        for offset, (topic, record) in enumerate(block.records):
            kind = INPUT_TOPICS[topic]
            value = encode_input(definition.codec, kind, record, self.protocol)
            lanes = {record["lane"]: definition.records}
            decoded = decode_record(definition.codec, kind, value, Source(topic, 0, offset), None, lanes)
            assert not isinstance(decoded, DeadLetter), decoded.detail
            inputs.append(decoded[1])
        told = [each for batch in worker.process(inputs) for each in batch.records]
        assert {each.topic for each in told}.isdisjoint({"dead-letters"})
        return [to_json("verdicts", each.value) for each in told if each.topic == "verdicts"]
