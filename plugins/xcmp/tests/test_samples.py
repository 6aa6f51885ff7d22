# SPDX-License-Identifier: Apache-2.0
"""The sample traces and vectors of the protocol pass, and fail with altered expectations."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from validator_xcmp.proof_documents import vectors
from xcmp_rule_set import SHARED, Json

from validator.plugin.protocol_api import Node
from validator.replay.scenario import read_scenarios
from validator.testing.protocol import differences

SAMPLES = SHARED / "xcmp_samples.json"
VECTORS = SHARED / "xcmp_vectors_samples.json"

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="the checkout has no sibling ../shared/traces")


def samples() -> list[Json]:
    return json.loads(SAMPLES.read_text(encoding="utf-8")) if SAMPLES.exists() else []


@pytest.mark.parametrize("scenario", samples(), ids=lambda scenario: scenario["id"])
def test_sample_passes_and_fails_with_altered_expectation(scenario: Json) -> None:
    assert differences(read_scenarios(Node(scenario, "sample"))) == {}
    wrong = deepcopy(scenario)
    balance = next(iter(wrong["final_state"]["balances"].values()))
    balance["reserved"] += 1
    assert list(differences(read_scenarios(Node(wrong, "sample")))) == [scenario["id"]]


def test_every_sample_vector_is_recomputed() -> None:
    document = json.loads(VECTORS.read_text(encoding="utf-8"))
    results = vectors(Node(document, "vectors"))
    assert sorted(results) == sorted(group for group, entries in document.items() if isinstance(entries, list))
    for group, entries in document.items():
        if isinstance(entries, list):
            expected = [
                entry["expect"] if "expect" in entry else {key: entry[key] for key in result}
                for entry, result in zip(entries, results[group], strict=True)
            ]
            assert results[group] == expected, group
