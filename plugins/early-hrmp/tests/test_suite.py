# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the rules pass it, it matches its sources, and it is complete."""

from __future__ import annotations

from pathlib import Path

from early_hrmp_suite import SUITE, all_scenarios, made
from early_hrmp_trace import Json, as_record
from validator_early_hrmp import errors
from validator_early_hrmp.rules import EARLY_HRMP
from validator_early_hrmp.state import check_invariants

from validator.plugin.protocol_api import LaneRules, Violation
from validator.testing import ProtocolContract

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "traces" / "early_hrmp_samples.json"
READINGS = [f"H-I{number:02}" for number in range(1, 13)]


class TestProtocol(ProtocolContract):
    """The suite, and the samples if they exist."""

    protocol = "early-hrmp"
    violations = tuple(
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Violation) and each.kind
    )
    files = (SAMPLES,) if SAMPLES.exists() else ()

    def check(self, rules: LaneRules) -> None:
        """Check the invariants."""
        assert rules.rule_set is EARLY_HRMP
        check_invariants(rules.state)

    def as_record(self, item: Json) -> Json:
        """Name the call."""
        return as_record(item)


def test_files_match_scenarios() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in SUITE.iterdir()} == made(), "run make generate"


def test_every_reading_has_scenario() -> None:
    met = {each["id"] for scenario in all_scenarios() for each in scenario.get("interpretation", ())}
    assert sorted(met) == READINGS
