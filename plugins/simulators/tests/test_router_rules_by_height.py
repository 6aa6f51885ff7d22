# SPDX-License-Identifier: Apache-2.0
"""Lane and model agree on lively traffic under each feature alone and under drawn sets, switched on and off at drawn heights."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from router_lanes import assert_lane_agrees
from validator_simulators import settings_of_profile
from validator_simulators.router import traffic
from validator_simulators.router.later_rules import FEATURES, LASTING, PROFILES

BLOCKS = 70

Json = dict[str, Any]


def drawn_rules(seed: int) -> list[Json]:
    """Return rules that begin anywhere, first block included, with any sets of features; a lasting one stays."""
    random = Random(seed)
    starts = sorted({random.choice((1, random.randint(1, BLOCKS))) for _ in range(random.randint(2, 6))})
    rules: list[Json] = []
    lasting: list[str] = []
    for start in starts:
        features = random.sample(FEATURES, random.choice((0, 4, 9, 14, len(FEATURES))))
        lasting = [LASTING] if LASTING in features else lasting
        rules.append({"from_block": start, "features": sorted({*features, *lasting})})
    return rules


def play(monkeypatch: pytest.MonkeyPatch, rules: list[Json], seed: int, **settings: Any) -> None:
    monkeypatch.setattr(traffic, "rules_of_history", lambda _settings, _rng: rules)
    profile = settings_of_profile("history", seed=seed, blocks=BLOCKS, violation_share=0.2, **settings)
    simulation = traffic.RouterSimulation(profile)
    assert simulation.chain()["rules"] == rules
    assert_lane_agrees(simulation)


@pytest.mark.parametrize("feature", FEATURES)
def test_lane_agrees_under_one_feature(monkeypatch: pytest.MonkeyPatch, feature: str) -> None:
    """It begins in mid-session, ends, and begins again."""
    between = [LASTING] if feature == LASTING else []
    features = ([feature], between, [feature])
    rules = [{"from_block": start, "features": chosen} for start, chosen in zip((17, 36, 45), features, strict=True)]
    play(monkeypatch, rules, FEATURES.index(feature))


@pytest.mark.parametrize("seed", range(8))
def test_lane_agrees_under_drawn_features(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    enactment = "on-inclusion" if seed % 2 else "immediate"
    play(monkeypatch, drawn_rules(seed), seed, enactment=enactment, unlimited_balances=seed % 5 == 4)


def test_lane_agrees_when_the_newest_rules_hold_from_the_first_block(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, [{"from_block": 0, "profile": list(PROFILES)[-1]}], 5)
