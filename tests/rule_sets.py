# SPDX-License-Identifier: Apache-2.0
"""What tests of the protocols' plugins share: rule sets that are saved and restored, inputs of traces, the contract of a written suite."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from validator_simulators import accepted

from validator.core.rules import LaneRules, pages
from validator.plugin.protocol_api import (
    ChainSettings,
    Enactment,
    Node,
    Para,
    ProtocolDefinition,
    SessionChange,
    Violation,
)
from validator.plugin.runtime import installed_protocol
from validator.replay.scenario import read_scenarios
from validator.testing import ProtocolContract
from validator.testing.protocol import differences

Json = dict[str, Any]

SHARED = Path(__file__).resolve().parents[2] / "shared" / "traces"
"""The folder of the sample traces, a sibling of the checkout."""


def restored(rules: LaneRules, enactment: Enactment = Enactment.IMMEDIATE) -> LaneRules:
    """Return a rule set that is restored from this one's pages."""
    return rules.rule_set.from_pages(pages(rules), ChainSettings(None, enactment=enactment))


def check_everything(rules: LaneRules, protocol: str) -> None:
    """Check the invariants, that the pages restore the state, and that the incremental root equals the root from all pages."""
    definition = installed(protocol)
    assert definition.invariants is not None
    definition.invariants(rules.state, None)
    other = restored(rules)
    assert pages(other) == pages(rules)
    definition.invariants(other.state, None)
    assert definition.traces.view(other.state) == definition.traces.view(rules.state)
    assert rules.state_root() == other.state_root() == LaneRules(rules.rule_set, other.state).state_root()


def installed(protocol: str) -> ProtocolDefinition:
    """Return the definition of an installed protocol."""
    definition = installed_protocol(protocol)
    assert definition is not None
    return definition


def plain(value: Any) -> Any:
    """Return a value after a round trip through JSON."""
    return json.loads(json.dumps(value))


def result_of(apply: Callable[[Any], Any], item: Any) -> Json:
    """Return the result of an input as the models have it: in the traces' shape, with what was received by it, if anything."""
    try:
        effects = apply(item)
    except Violation as violation:
        return plain({"ok": False, "error": {"kind": violation.kind, **violation.details()}})
    return accepted([each._asdict() for each in effects.received])


def para_of(item: Json) -> Para:
    """Read a para from an object."""
    return Para(item["para_id"], balance=item.get("balance", 0))


def session_change_of(item: Json, maxima: Mapping[str, int]) -> SessionChange:
    """Read a session change from an object."""
    new_config = item.get("new_config") or {}
    return SessionChange(
        tuple(item.get("outgoing", ())),
        tuple(map(para_of, item.get("onboarding", ()))),
        tuple((name, new_config[name]) for name in maxima if name in new_config),
    )


def violations_of(errors: ModuleType) -> tuple[type[Violation], ...]:
    """Return the errors that a module defines."""
    found = (each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Violation))
    return tuple(each for each in found if each.kind)


def samples(name: str) -> list[Json]:
    """Return the sample traces of a file, or none if the checkout has no sibling folder of them."""
    return json.loads((SHARED / name).read_text(encoding="utf-8")) if (SHARED / name).exists() else []


def check_sample(scenario: Json, spoil: Callable[[Json], None]) -> None:
    """Check that a sample passes, and fails once ``spoil`` has changed what its final state is to be."""
    assert differences(read_scenarios(Node(scenario, "sample"))) == {}
    wrong = deepcopy(scenario)
    spoil(wrong["final_state"])
    assert list(differences(read_scenarios(Node(wrong, "sample")))) == [scenario["id"]]


def reserve_more(state: Json) -> None:
    """Change the reserved balance of a final state's first para."""
    next(iter(state["balances"].values()))["reserved"] += 1


class WrittenSuite(ProtocolContract):
    """The contract of a protocol whose suite is written by scenarios: its files, its readings, its invariants."""

    suite: ClassVar[ModuleType]
    """A module with ``SUITE``, ``made`` and ``all_scenarios``."""
    readings: ClassVar[tuple[str, ...]]
    """Each interpretation that a scenario shows."""

    def check(self, rules: LaneRules) -> None:
        """Check the invariants."""
        invariants = installed(self.protocol).invariants
        assert invariants is not None
        invariants(rules.state, None)

    def test_files_match_scenarios(self) -> None:
        """The files are what the scenarios write, and there are no others."""
        there = {path: path.read_text(encoding="utf-8") for path in self.suite.SUITE.iterdir()}
        assert there == self.suite.made(), "run make generate"

    def test_every_reading_has_a_scenario(self) -> None:
        """Every interpretation has a scenario."""
        met = {each["id"] for scenario in self.suite.all_scenarios() for each in scenario.get("interpretation", ())}
        assert sorted(met) == list(self.readings)


needs_samples = pytest.mark.skipif(not SHARED.exists(), reason="the checkout has no sibling ../shared/traces")
