# SPDX-License-Identifier: Apache-2.0
"""Plays a scenario and tells what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from validator.core.errors import Violation
from validator.core.router.acceptance import check_candidate
from validator.core.router.dispatch import FixedWeightSink
from validator.core.router.enactment import enact_candidate
from validator.core.router.router import Router
from validator.core.router.view import view
from validator.core.types import BlockNumber, Candidate
from validator.replay.compare import first_difference, first_result_difference
from validator.replay.scenario import Scenario, Step

T = TypeVar("T")


def run_scenario(scenario: Scenario) -> dict[str, Any]:
    """Play a scenario and return its output in the shape of ``--json``."""
    if scenario.skipped is not None:
        return {"id": scenario.id, "skipped": scenario.skipped}
    player = _Player(scenario)
    following: list[BlockNumber | None] = [*(step.block for step in scenario.steps[1:]), None]
    steps = [
        player.play(step, ends_block=step.block != after)
        for step, after in zip(scenario.steps, following, strict=False)
    ]
    return {"id": scenario.id, "steps": steps}


def judge_scenario(scenario: Scenario, output: dict[str, Any]) -> str | None:
    """Return the first thing in a scenario's output that is not as expected, or None."""
    for at, (step, got) in enumerate(zip(scenario.steps, output["steps"], strict=True)):
        where = f"step {at} (block {step.block}): "
        for key in ("requests", "downward", "candidates"):
            if key in step.expect:
                difference = first_result_difference(step.expect[key], got[key], key)
                if difference is not None:
                    return where + difference
        if "dispatched" in step.expect and step.expect["dispatched"] != (got["dispatched"] or []):
            return where + f"dispatched: expected {step.expect['dispatched']}, got {got['dispatched']}"
        difference = first_difference(step.expect.get("state", {}), got["state"], "state")
        if difference is not None:
            return where + difference
    return None


class _Player:
    def __init__(self, scenario: Scenario) -> None:
        sink = FixedWeightSink(scenario.weights, scenario.default_weight, scenario.failing)
        self._router = Router.at_genesis(
            scenario.config, scenario.genesis_paras, notifications=scenario.notifications, sink=sink
        )
        self._block: BlockNumber | None = None
        self._delayed: list[tuple[BlockNumber, Candidate]] = []
        self._session_changes: list[Any] = []

    def play(self, step: Step, *, ends_block: bool) -> dict[str, Any]:
        router = self._router
        if step.block != self._block:
            self._enact_delayed(step.block)
            router.begin_block(step.block)
            self._block = step.block

        requests = _results(router.apply_request, step.requests)
        downward = _results(router.apply_downward, step.downward)
        candidates = _results(self._apply_candidate, step.candidates)
        if step.session_change is not None:
            self._session_changes.append(step.session_change)

        dispatched = None
        if ends_block:
            dispatched = [[dispatch.para_id, dispatch.payload.hex()] for dispatch in router.dispatch()]
            for change in self._session_changes:
                router.change_session(change)
            self._session_changes.clear()
        return {
            "block": step.block,
            "requests": requests,
            "downward": downward,
            "candidates": candidates,
            "dispatched": dispatched,
            "state": view(router.state),
        }

    def _apply_candidate(self, item: tuple[Candidate, BlockNumber | None]) -> None:
        candidate, enact_at_block = item
        assert self._block is not None
        check_candidate(self._router.state, candidate)
        if enact_at_block is None or enact_at_block <= self._block:
            enact_candidate(self._router.state, candidate, self._block)
        else:
            self._delayed.append((enact_at_block, candidate))

    def _enact_delayed(self, block: BlockNumber) -> None:
        """Enact what falls due up to the start of ``block``, each in the block it names, in order of block, then of acceptance."""
        due = sorted((item for item in self._delayed if item[0] <= block), key=lambda item: item[0])
        self._delayed = [item for item in self._delayed if item[0] > block]
        for enact_at_block, candidate in due:
            enact_candidate(self._router.state, candidate, enact_at_block)


def _results(apply: Callable[[T], object], items: Iterable[T]) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    for item in items:
        try:
            apply(item)
        except Violation as violation:
            fields = violation.details() if violation.normative else {}
            results.append({"ok": False, "error": {"kind": violation.kind, **fields}})
        else:
            results.append({"ok": True})
    return results
