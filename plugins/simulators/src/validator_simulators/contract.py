# SPDX-License-Identifier: Apache-2.0
"""The tests that a protocol's simulated chains inherit, and what `validator plugins check` takes from them.

>>> from validator_simulators.contract import SimulationContract
>>> class TestMine(SimulationContract):
...     protocol = "my-protocol"
...     kinds = frozenset({"Open/ToSelf", "Close/Unauthorized"})
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import zip_longest
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, Final

from validator.plugin.protocol_api import Violation
from validator.testing import ChainPlayer, NeedsProtocol, NotApplicable, result_of, test_classes
from validator_simulators import SimulatedBlock, SimulationSettings
from validator_simulators.installed import chain_table, has_simulation, simulation_of

__all__ = [
    "SimulationContract",
    "check_simulation",
    "disagreement",
    "open_kinds_of",
    "records_of",
    "refusals",
    "simulated",
]

CHECK_SECONDS_MAX: Final = 20
"""Seconds after which `validator plugins check` plays no further simulated chain."""
CHECK_BLOCKS: Final = 60
CHECK_SEEDS: Final = (1, 2, 3)

Json = dict[str, Any]

_PLACE: tuple[str, ...] = ("lane", "block", "kind", "index")
_SEEDS = (1, 2, 3)
_BLOCKS = 300
"""Number of blocks in which a chain breaks every rule."""


def simulated(protocol: str, **settings: Any) -> list[SimulatedBlock]:
    """Return the blocks of a simulated chain."""
    return list(simulation_of(protocol, SimulationSettings(**settings)).blocks())


def records_of(blocks: Iterable[SimulatedBlock], topic: str) -> list[Json]:
    """Return the records of a topic."""
    return [record for block in blocks for each, record in block.records if each == topic]


def refusals(blocks: Iterable[SimulatedBlock]) -> Counter[str]:
    """Return how often each kind of error is expected."""
    return Counter(each["error"]["kind"] for block in blocks for each in block.expected if not each["ok"])


def disagreement(expected: list[Json], verdicts: list[Json], open_kinds: Collection[str]) -> str | None:
    """Return the first verdict that differs, or None. A model need not know the fields of an error that the rules leave open."""
    found = [
        {name: each[name] for name in _PLACE if name in each} | result_of(each) | received_by(each) for each in verdicts
    ]
    for want, got in zip_longest(expected, found):
        kind = ((got or {}).get("error") or {}).get("kind")
        plain = {"error": {"kind": kind}} if kind in open_kinds else {}
        if want != got and want != {**(got or {}), **plain}:
            return f"the model expects {json.dumps(want)}, the lane says {json.dumps(got)}"
    return None


def received_by(verdict: Json) -> Json:
    """Return the messages that were received by an input, as models have them: only if there were any."""
    return {"received": verdict["received"]} if verdict.get("received") else {}


def open_kinds_of(package: str) -> frozenset[str]:
    """Return the kinds of error in a package whose fields are not normative."""
    found: list[type[Violation]] = []
    classes: list[type[Violation]] = [Violation]
    while classes:
        children = classes.pop().__subclasses__()
        found += [child for child in children if child.__module__.partition(".")[0] == package]
        classes += children
    return frozenset(each.kind for each in found if each.kind and not each.normative)


class SimulationContract(NeedsProtocol):
    """Base class for tests of a simulation: inherit from it in a class named ``Test...`` that names the protocol and its errors.

    The tests compare the rules, in a lane that gets encoded records, with the model behind the simulation.
    """

    kinds: ClassVar[frozenset[str]]
    """Every error kind of the protocol that a verdict may name; the simulation must produce each."""
    pending_kinds: ClassVar[frozenset[str]] = frozenset(
        {"Inclusion/CandidateNotPending", "Timeout/CandidateNotPending"}
    )
    """Further kinds on a chain that enacts candidates on inclusion."""
    topology: ClassVar[str | None] = None
    """One of the simulation's topologies, instead of its default."""

    def test_lane_verdicts_match_model(self) -> None:
        """With immediate enactment, block by block, including every field of every error."""
        for seed in _SEEDS:
            assert self._played("immediate", seed) == self.kinds

    def test_lane_verdicts_match_model_with_enactment_on_inclusion(self) -> None:
        """With enactment on inclusion, block by block."""
        for seed in _SEEDS:
            assert self._played("on-inclusion", seed) == self.kinds | self.pending_kinds

    def test_same_settings_give_same_bytes(self) -> None:
        """Another seed gives other bytes."""

        def lines(seed: int) -> list[str]:
            blocks = self._blocks(seed=seed, blocks=40, enactment="on-inclusion")
            return [json.dumps([block.records, block.expected]) for block in blocks]

        assert lines(5) == lines(5)
        assert lines(5) != lines(6)

    def test_longer_chain_begins_with_shorter_chain(self) -> None:
        """The number of blocks does not change their content."""
        assert self._blocks(seed=4, blocks=60)[:25] == self._blocks(seed=4, blocks=25)

    def test_chain_without_violations_has_no_rejections(self) -> None:
        """With a violation share of 0, under either enactment."""
        for enactment in ("immediate", "on-inclusion"):
            blocks = self._blocks(seed=5, blocks=150, violation_share=0, enactment=enactment)
            assert refusals(blocks) == Counter()
            assert len(records_of(blocks, "candidates")) > 500

    def test_intended_violations_are_rejected(self) -> None:
        """A candidate made to break one or two rules is rejected with the error of the first."""
        pairs = 0
        for block in self._blocks(seed=8, blocks=200, violation_share=0.4):
            verdicts = {each["index"]: each for each in block.expected if each["kind"] == "candidate"}
            for index, kinds in block.intended.items():
                assert verdicts[index]["error"]["kind"] == kinds[0]
                pairs += len(kinds) == 2
        assert pairs > 20

    def test_sessions_change_paras_and_limits(self) -> None:
        """Paras leave and return, later or in the same change; limits change."""
        blocks = self._blocks(seed=9, blocks=_BLOCKS)
        changes = [change for block in records_of(blocks, "blocks") if (change := block["session_change"])]
        assert len(changes) == _BLOCKS // 10
        assert any(change["limits"] for change in changes)
        gone: set[int] = set()
        back = at_once = 0
        for change in changes:
            arriving = {para["para_id"] for para in change["onboarding"]}
            at_once += bool(arriving & set(change["outgoing"]))
            back += bool(arriving & gone)
            gone |= set(change["outgoing"])
        assert back
        assert at_once

    def test_small_chains_have_all_blocks(self) -> None:
        """Few paras, no candidates, no blocks, one session per block."""
        for small in ({"paras": 3, "candidates_per_block": 1}, {"candidates_per_block": 0}, {"blocks": 0}):
            settings: Json = {"seed": 2, "blocks": 80, "first_block": 1000, "session_length_blocks": 1, **small}
            blocks = self._blocks(**settings)
            assert [block.block for block in blocks] == list(range(1000, 1000 + settings["blocks"]))

    def test_unlimited_balances_cover_every_deposit(self) -> None:
        """No para is short of a deposit."""
        settings = SimulationSettings(seed=3, blocks=200, unlimited_balances=True, topology=self.topology)
        simulation = simulation_of(self.protocol, settings)
        assert simulation.chain()["balances"] == "unlimited"
        assert "InsufficientBalance" not in refusals(simulation.blocks())

    def _blocks(self, **settings: Any) -> list[SimulatedBlock]:
        return simulated(self.protocol, topology=self.topology, **settings)

    def _played(self, enactment: Any, seed: int, blocks: int = _BLOCKS) -> set[str]:
        """Compare every verdict of a lane with the expected one, and return the error kinds that occurred."""
        settings = SimulationSettings(seed=seed, blocks=blocks, enactment=enactment, topology=self.topology)
        simulation = simulation_of(self.protocol, settings)
        chain = simulation.chain()
        player = ChainPlayer(chain["lane"], chain_table(chain))
        open_kinds = open_kinds_of(type(player.rules.state).__module__.partition(".")[0])
        met: Counter[str] = Counter()
        for block in simulation.blocks():
            difference = disagreement(block.expected, player.play(block.records)["verdicts"], open_kinds)
            assert difference is None, f"seed {seed}, enactment {enactment}: {difference}"
            met += refusals([block])
        return set(met)


def check_simulation(protocol: str, source: Path | None) -> str:
    """Compare short simulated chains with the model until the time is over; return how much was compared.

    The contract's class in the tests of a source folder may name a topology. Raises `NotApplicable`, ``AssertionError``.
    """
    if not has_simulation(protocol):
        raise NotApplicable("it has no simulation")
    found = [] if source is None else list(test_classes(source, SimulationContract))
    own = (each for each in found if isinstance(each, type) and getattr(each, "protocol", None) == protocol)
    contract = next(own, type("Plain", (SimulationContract,), {"protocol": protocol}))()
    end = monotonic() + CHECK_SECONDS_MAX
    played = 0
    for seed in CHECK_SEEDS:
        for enactment in ("immediate", "on-inclusion"):
            if played and monotonic() > end:
                break
            contract._played(enactment, seed, CHECK_BLOCKS)
            played += 1
    return f"{played} chain{'s' if played > 1 else ''} of {CHECK_BLOCKS} blocks"
