# SPDX-License-Identifier: Apache-2.0
"""Runs a scenario of the trace format through the naive model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from validator.protocols.router.simulation.later_rules import FEATURES
from validator.protocols.router.simulation.model import NaiveRouter

_EMPTY = {"upward_messages": [], "processed_downward_messages": 0, "horizontal_messages": []}
NEEDS = ("delayed_enactment", *FEATURES)


def play(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Run a Router scenario and return its results in the shape of `validator replay --json`. `expect` is not read."""
    unknown = [need for need in scenario.get("needs", []) if need not in NEEDS]
    if unknown or scenario.get("protocol", "router") != "router":
        return {"id": scenario["id"], "skipped": f"not a part of the naive model: {unknown or scenario['protocol']}"}
    router = NaiveRouter(
        scenario["config"],
        scenario.get("genesis_paras", []),
        ump_weights=scenario.get("ump_weights", {}),
        ump_default_weight=scenario.get("ump_default_weight", 1),
        ump_failing_messages=scenario.get("ump_failing_messages", []),
        rules=_rules(scenario),
    )
    steps = scenario["steps"]
    delayed: list[tuple[int, dict[str, Any]]] = []  # (block of enactment, entry of `included`)
    played = []
    for position, step in enumerate(steps):
        block = step["block"]
        if position == 0 or steps[position - 1]["block"] != block:
            _enact_until(router, delayed, block)
            router.begin_block(block)
        requests = [router.request(request) for request in step.get("requests", [])]
        downward = [router.downward(message) for message in step.get("downward", [])]
        candidates = []
        for candidate in step.get("candidates", []):
            enact_at = candidate.get("enact_at_block")
            result = router.candidate({**_EMPTY, **candidate}, "immediate" if enact_at is None else "on-inclusion")
            if enact_at is not None and result["ok"]:
                delayed.append((enact_at, {"para_id": candidate["para_id"], "backed_at": block}))
            candidates.append(result)
        last_of_block = position + 1 == len(steps) or steps[position + 1]["block"] != block
        dispatched = router.dispatch_round() if last_of_block else None
        if step.get("session_change") is not None:
            router.session_change(step["session_change"])
        results = {"requests": requests, "downward": downward, "candidates": candidates}
        played.append({"block": block, **results, "dispatched": dispatched, "state": router.state()})
    return {"id": scenario["id"], "steps": played}


def _rules(scenario: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scenario's rules by height; without a list, its features hold from block 0 on."""
    if "rules" in scenario:
        return list(scenario["rules"])
    return [{"from_block": 0, "features": [need for need in scenario.get("needs", []) if need in FEATURES]}]


def _enact_until(router: NaiveRouter, delayed: list[tuple[int, dict[str, Any]]], block: int) -> None:
    due = sorted((item for item in delayed if item[0] <= block), key=lambda item: item[0])
    for item in due:
        delayed.remove(item)
        router.begin_block(item[0], included=[item[1]])
