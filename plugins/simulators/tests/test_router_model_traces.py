# SPDX-License-Identifier: Apache-2.0
"""The naive model plays the sample traces as the specification's authors expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from validator_simulators.router.model import play

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"
FILES = ("router_samples.json", "router_profiles_samples.json", "chain_2026_samples.json")
SCENARIOS: list[dict[str, Any]] = [
    scenario for name in FILES if (TRACES / name).exists() for scenario in json.loads((TRACES / name).read_text())
]


def disagreement(expected: Any, found: Any, where: str = "") -> str | None:
    """Return the first place where a subset assertion fails; null, 0 and [] may be absent."""
    if isinstance(expected, dict):
        if not isinstance(found, dict):
            found = {}
        for key, value in expected.items():
            inner = disagreement(value, found.get(key), f"{where}.{key}")
            if inner:
                return inner
        return None
    if where.endswith("_set"):  # in any order
        expected, found = sorted(expected), sorted(found or [])
    same = expected == found or (expected in (None, 0, []) and found in (None, 0, []))
    return None if same else f"{where}: expected {expected!r}, found {found!r}"


@pytest.mark.skipif(not TRACES.exists(), reason="../shared/traces is not next to this checkout")
def test_all_sample_traces_are_present() -> None:
    assert len(SCENARIOS) >= 26 + 12 + 8


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: f"{scenario['id']}-{scenario['name']}")
def test_model_plays_sample_as_expected(scenario: dict[str, Any]) -> None:
    played = play(scenario)
    assert "skipped" not in played
    assert len(played["steps"]) == len(scenario["steps"])
    for number, (step, found) in enumerate(zip(scenario["steps"], played["steps"], strict=True)):
        expected = step.get("expect", {})
        for key in ("requests", "downward", "candidates", "dispatched"):
            if key in expected:
                assert found[key] == expected[key], f"step {number}: {key}"
        assert disagreement(expected.get("state", {}), found["state"], f"step {number}") is None


def test_disagreement_names_first_difference() -> None:
    assert disagreement({"a": {"b": 1}}, {"a": {"b": 2}}) == ".a.b: expected 1, found 2"
    assert disagreement({"a": {"b": 0, "c": None, "d": []}}, {}) is None
    assert disagreement({"a": None}, {"a": {"b": 1}}) is not None
