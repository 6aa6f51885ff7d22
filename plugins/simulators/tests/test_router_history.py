# SPDX-License-Identifier: Apache-2.0
"""A simulated chain that lives through every profile: the lane agrees with the model, and the traffic meets every later rule."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from router_lanes import assert_lane_agrees
from validator_simulators import SimulatedBlock, settings_of_profile
from validator_simulators.contract import records_of, refusals
from validator_simulators.router.later_rules import FEATURES, IMPLIES, PROFILES, REQUESTS, features_at
from validator_simulators.router.model import NaiveRouter
from validator_simulators.router.traffic import RouterSimulation

from validator.core.errors import Violation

REPOSITORY = Path(__file__).resolve().parents[3]
SEEDS = (1, 2, 3)
PENDING_KINDS = {"Inclusion/CandidateNotPending", "Timeout/CandidateNotPending"}


def kinds_of_violations() -> set[str]:
    """Return every kind of violation of the Router's rules."""
    found, open_ends = set(), [Violation]
    while open_ends:
        children = open_ends.pop().__subclasses__()
        modules = ("validator.protocols.router.", "validator.protocols.kit.")
        found |= {child.kind for child in children if child.kind and child.__module__.startswith(modules)}
        open_ends += children
    return found


def request_of(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "index": record["message_index"]} if "message_index" in record else record


def history(**settings: Any) -> RouterSimulation:
    return RouterSimulation(settings_of_profile("history", **settings))


@cache
def played(seed: int) -> tuple[RouterSimulation, tuple[SimulatedBlock, ...]]:
    simulation = history(seed=seed)
    return simulation, tuple(simulation.blocks())


# --- the rules by height ---


@pytest.mark.parametrize("seed", SEEDS)
def test_chain_lives_through_all_profiles(seed: int) -> None:
    simulation, blocks = played(seed)
    rules = simulation.chain()["rules"]
    assert [entry["profile"] for entry in rules] == list(PROFILES)[1:]
    lengths = Counter(features_at(rules, block.block) for block in blocks)
    assert len(blocks) == 430
    assert set(lengths) == set(PROFILES.values())
    assert min(lengths.values()) >= 20


@pytest.mark.parametrize(("blocks", "first_block"), [(0, 1), (1, 7), (5, 1000), (13, 1), (100, 50)])
def test_short_history_has_ascending_rules_after_its_first_block(blocks: int, first_block: int) -> None:
    simulation = history(blocks=blocks, first_block=first_block)
    starts = [entry["from_block"] for entry in simulation.chain()["rules"]]
    assert starts == sorted(set(starts))
    assert starts[0] > first_block
    assert len(list(simulation.blocks())) == blocks


def test_chain_of_another_profile_has_no_rules() -> None:
    assert "rules" not in RouterSimulation(settings_of_profile("demo", blocks=1)).chain()


# --- the lane agrees ---


@pytest.mark.parametrize(
    ("enactment", "preset", "blocks"),
    [("immediate", "tight", 400), ("on-inclusion", "tight", 400), ("on-inclusion", "polkadot", 130)],
)
def test_lane_gives_every_expected_verdict_and_dispatch(enactment: str, preset: str, blocks: int) -> None:
    simulation = history(seed=4, enactment=enactment, preset=preset, blocks=blocks)
    assert_lane_agrees(simulation)


# --- the traffic is varied ---


@pytest.mark.parametrize("seed", SEEDS)
def test_every_error_kind_occurs(seed: int) -> None:
    assert set(refusals(played(seed)[1])) == kinds_of_violations() - PENDING_KINDS


def test_every_kind_of_request_succeeds_and_is_refused() -> None:
    results: Counter[tuple[str, bool]] = Counter()
    for block in played(1)[1]:
        verdicts = [verdict for verdict in block.expected if verdict["kind"] == "request"]
        for request, verdict in zip(records_of([block], "channel-requests"), verdicts, strict=True):
            results[(request["kind"], verdict["ok"])] += 1
    assert {kind for kind, ok in results if ok} >= {*REQUESTS, "schedule_para_cleanup"}
    assert {kind for kind, ok in results if not ok} >= {*REQUESTS, "schedule_para_cleanup"}


def replayed_differs(simulation: RouterSimulation, blocks: tuple[SimulatedBlock, ...], without: str) -> bool:
    """Return whether a model that lacks a feature, and those that imply it, ever says something else about the same records."""
    lacking = {without, *(feature for feature, implied in IMPLIES.items() if implied == without)}
    chain = simulation.chain()
    rules = [
        {"from_block": entry["from_block"], "features": sorted(PROFILES[entry["profile"]] - lacking)}
        for entry in chain["rules"]
    ]
    full, other = (
        NaiveRouter(
            chain["config"],
            chain["genesis_paras"],
            ump_weights=chain["ump_weights"],
            ump_default_weight=chain["ump_default_weight"],
            rules=each,
        )
        for each in (chain["rules"], rules)
    )
    for block in blocks:
        header = records_of([block], "blocks")[0]
        for router in (full, other):
            router.begin_block(block.block)
        results = []
        for router in (full, other):
            each = [router.request(request_of(record)) for record in records_of([block], "channel-requests")]
            each += [router.downward(record) for record in records_of([block], "downward-messages")]
            each += [router.candidate(record) for record in records_of([block], "candidates")]
            results.append([each, router.dispatch_round()])
        expected = [
            {key: verdict[key] for key in ("ok", "error", "received") if key in verdict} for verdict in block.expected
        ]
        assert results[0] == [expected, block.dispatched]
        if results[0] != results[1]:
            return True
        if header["session_change"] is not None:
            for router in (full, other):
                router.session_change(header["session_change"])
            if full.state() != other.state():
                return True
    return False


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_makes_a_difference(feature: str) -> None:
    assert replayed_differs(*played(1), feature)


def test_later_limits_change() -> None:
    changes = [records_of([block], "blocks")[0]["session_change"] for seed in SEEDS for block in played(seed)[1]]
    changed = {key for change in changes if change for key in change["new_config"] or {}}
    assert changed >= {
        "hrmp_notification_xcm_version",
        "hrmp_system_channel_max_places",
        "hrmp_system_channel_max_message_size",
        "message_queue_heap_size",
    }


def test_chain_without_violations_has_no_refusal() -> None:
    simulation = history(seed=5, violation_share=0, configuration_changes_per_100_sessions=0)
    blocks = tuple(simulation.blocks())
    assert refusals(blocks) == Counter()
    assert sum(len(records_of([block], "candidates")) for block in blocks) > 2000


def test_candidate_made_to_break_rules_is_refused() -> None:
    count = 0
    for block in history(seed=6, blocks=200, violation_share=0.4).blocks():
        verdicts = {verdict["index"]: verdict for verdict in block.expected if verdict["kind"] == "candidate"}
        for index in block.intended:
            assert not verdicts[index]["ok"], (block.block, block.intended[index])
            count += 1
    assert count > 300


# --- determinism ---

DUMP = """
import hashlib, json, sys
from validator_simulators.router.traffic import RouterSimulation
from validator_simulators import settings_of_profile
simulation = RouterSimulation(settings_of_profile("history", seed=int(sys.argv[1]), blocks=130))
digest = hashlib.sha256(json.dumps(simulation.chain()).encode())
for block in simulation.blocks():
    digest.update(json.dumps([block.records, block.expected, block.dispatched]).encode())
print(digest.hexdigest())
"""


def dump(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-c", DUMP, str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


def test_same_seed_gives_same_bytes_under_any_hash_seed() -> None:
    assert dump(1, "0") == dump(1, "4242")
    simulation = history(seed=2, blocks=130)
    digest = hashlib.sha256(json.dumps(simulation.chain()).encode())
    for block in simulation.blocks():
        digest.update(json.dumps([block.records, block.expected, block.dispatched]).encode())
    assert dump(1, "0") != digest.hexdigest() == dump(2, "1")
