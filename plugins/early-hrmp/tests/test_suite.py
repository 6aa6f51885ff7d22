# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: the rules pass it, it matches its sources, and it is complete; so do the samples."""

from __future__ import annotations

import early_hrmp_suite
import pytest
from early_hrmp_trace import as_record
from validator_early_hrmp import errors

from tests.rule_sets import SHARED, Json, WrittenSuite, check_sample, reserve_more, samples, violations_of

SAMPLES = SHARED / "early_hrmp_samples.json"


class TestProtocol(WrittenSuite):
    """The suite, and the samples if they exist."""

    protocol = "early-hrmp"
    violations = violations_of(errors)
    files = (SAMPLES,) if SAMPLES.exists() else ()
    suite = early_hrmp_suite
    readings = tuple(f"H-I{number:02}" for number in range(1, 13))

    def as_record(self, item: Json) -> Json:
        """Name the call."""
        return as_record(item)


@pytest.mark.parametrize("scenario", samples(SAMPLES.name), ids=lambda scenario: scenario["id"])
def test_sample_passes_and_fails_with_altered_expectation(scenario: Json) -> None:
    check_sample(scenario, reserve_more)
