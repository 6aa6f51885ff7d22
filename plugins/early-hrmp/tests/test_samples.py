# SPDX-License-Identifier: Apache-2.0
"""The sample traces of the protocol pass, and fail with altered expectations."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import pytest
from early_hrmp_rule_set import Json

from validator.plugin.protocol_api import Node
from validator.replay.scenario import read_scenarios
from validator.testing.protocol import differences

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "traces" / "early_hrmp_samples.json"

pytestmark = pytest.mark.skipif(not SAMPLES.exists(), reason="the checkout has no sibling ../shared/traces")


def samples() -> list[Json]:
    return json.loads(SAMPLES.read_text(encoding="utf-8")) if SAMPLES.exists() else []


@pytest.mark.parametrize("scenario", samples(), ids=lambda scenario: scenario["id"])
def test_sample_passes_and_fails_with_altered_expectation(scenario: Json) -> None:
    assert differences(read_scenarios(Node(scenario, "sample"))) == {}
    wrong = deepcopy(scenario)
    balance = next(iter(wrong["final_state"]["balances"].values()))
    balance["reserved"] += 1
    assert list(differences(read_scenarios(Node(wrong, "sample")))) == [scenario["id"]]
