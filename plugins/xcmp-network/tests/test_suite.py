# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the rules pass it, it matches its sources, and it is complete."""

from __future__ import annotations

from network_rule_set import SHARED
from network_suite import SUITE, all_scenarios, made
from network_trace import Json, as_record
from validator_xcmp_network import errors
from validator_xcmp_network.rules import XCMP_NETWORK
from validator_xcmp_network.state import check_invariants

from validator.plugin.protocol_api import LaneRules, Violation
from validator.testing import ProtocolContract
from validator.testing.lane_suite import fits_into_blocks

SAMPLES = SHARED / "xcmp_network_samples.json"
READINGS = [f"N-I{number:02}" for number in range(1, 12)]
"""The readings of the notes; those after them are the plugin's own."""


class TestProtocol(ProtocolContract):
    """The suite; the samples, if they exist, have their own test."""

    protocol = "xcmp-network"
    violations = tuple(
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Violation) and each.kind
    )

    def check(self, rules: LaneRules) -> None:
        """Check the invariants."""
        assert rules.rule_set is XCMP_NETWORK
        check_invariants(rules.state)

    def as_record(self, item: Json) -> Json:
        """Name the call, and the parts of a watermark."""
        return as_record(item)


def test_files_match_scenarios() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in SUITE.iterdir()} == made(), "run make generate"


def test_every_reading_of_the_notes_has_a_scenario() -> None:
    met = {each["id"] for scenario in all_scenarios() for each in scenario.get("interpretation", ())}
    assert sorted(met) == READINGS


def test_most_scenarios_fit_into_blocks() -> None:
    assert sum(map(fits_into_blocks, all_scenarios())) > 30
