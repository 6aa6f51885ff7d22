# SPDX-License-Identifier: Apache-2.0
"""Plays a scenario and reports its results; and judges files of test vectors, see `docs/trace-format.md`, "Test vectors"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias, TypeVar

from validator.compare import first_difference, first_result_difference, without_zeros
from validator.core.errors import Violation
from validator.core.handlers.upward import FixedWeightDispatcher
from validator.core.rules import LaneRules
from validator.core.types import BlockNumber
from validator.document import Node
from validator.plugin.protocol_api import ChainSettings, ProtocolDefinition
from validator.plugin.registry import discover
from validator.plugin.rule_pages import Sort, installed_pages
from validator.plugin.runtime import installed_protocol
from validator.replay.scenario import BODIES, EXACT, RESULT_KEYS, Scenario, Step, failures_of, failures_of_reader

T = TypeVar("T")

Watch: TypeAlias = Callable[[LaneRules[Any], Violation | None], None]
"""Called after every input, with the violation if it was rejected, and at the start of a block and the end of a step."""


def run_scenario(scenario: Scenario, watch: Watch = lambda _rules, _violation: None) -> dict[str, Any]:
    """Play a scenario and return its output in the form of ``validator replay --json``. Raises `PluginFailed`: the protocol has a bug."""
    if scenario.skipped is not None:
        return {"id": scenario.id, "skipped": scenario.skipped}
    player = _Player(scenario, watch)
    following: list[BlockNumber | None] = [*(step.block for step in scenario.steps[1:]), None]
    steps = [
        player.play(step, f"step {at} (block {step.block})", ends_block=step.block != after)
        for at, (step, after) in enumerate(zip(scenario.steps, following, strict=False))
    ]
    return {"id": scenario.id, "steps": steps}


def judge_scenario(scenario: Scenario, output: dict[str, Any]) -> str | None:
    """Return the first unexpected part of a scenario's output, or None."""
    state: dict[str, Any] = {}
    for at, (step, got) in enumerate(zip(scenario.steps, output["steps"], strict=True)):
        where = f"step {at} (block {step.block}): "
        for key in RESULT_KEYS:
            if key in step.expect:
                difference = first_result_difference(step.expect[key], got.get(key, []), key)
                if difference is not None:
                    return where + difference + _hint(scenario.protocol, step.expect[key], got.get(key, []))
        if "dispatched" in step.expect and step.expect["dispatched"] != (got["dispatched"] or []):
            return where + f"dispatched: expected {step.expect['dispatched']}, got {got['dispatched']}"
        state = got["state"]
        difference = first_difference(
            step.expect.get("state", {}), _with_sets(state, step.expect.get("state", {})), "state"
        )
        if difference is not None:
            return where + difference
    # each key named here is compared completely
    for key, value in scenario.final_state.items():
        if without_zeros(value) != without_zeros(state.get(key)):
            return (
                first_difference(value, state.get(key), f"final_state.{key}")
                or f"final_state.{key}: more than expected"
            )
    return None


def _hint(protocol: ProtocolDefinition | None, expected: list[dict[str, Any]], got: list[dict[str, Any]]) -> str:
    """Return what the first expected error that differs lacks, or which kind it may mean; empty if neither is the reason."""
    pairs = zip(expected, got, strict=False)
    wanted, found = next((pair for pair in pairs if first_result_difference([pair[0]], [pair[1]], "")), ({}, {}))
    error, other = wanted.get("error"), found.get("error")
    if protocol is None or not isinstance(error, dict):
        return ""
    kind = error.get("kind")
    if other is not None and other["kind"] == kind:
        missing = [name for name in other if name not in error]
        return (
            f"; the rules fix the fields of this kind: the expected error lacks {', '.join(missing)}" if missing else ""
        )
    pages, _ = installed_pages([protocol.name])
    kinds = [entry.name for page in pages for entry in page.entries if entry.sort is Sort.ERROR]
    if not kinds or kind in kinds:
        return ""
    close = get_close_matches(str(kind), kinds, 1)
    return f"; no error of {protocol.name} has this kind" + (f", did you mean {close[0]!r}?" if close else "")


def _with_sets(state: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Add to a state each expected key ``K_set`` that it lacks: the keys of K, or the channels in K's list."""
    named = {key: state.get(key.removesuffix(EXACT)) for key in expected if key.endswith(EXACT) and key not in state}
    return state | {key: _keys(value) for key, value in named.items()}


def _keys(value: Any) -> Any:
    """Return the sorted keys of a state key's object, or the channels of its entries; any other value as it is."""
    if isinstance(value, list) and all(
        isinstance(item, dict) and {"sender", "recipient"} <= item.keys() for item in value
    ):
        value = [f"{item['sender']}->{item['recipient']}" for item in value]
    elif not isinstance(value, dict):
        return value
    return sorted(value, key=lambda name: [(len(part), part) for part in name.split("->")])


class _Player:
    def __init__(self, scenario: Scenario, watch: Watch) -> None:
        self._watch = watch
        assert scenario.protocol is not None
        sink = FixedWeightDispatcher(scenario.weights, scenario.default_weight, scenario.failing)
        self._protocol = scenario.protocol
        self._traces = scenario.protocol.traces
        ends = self._traces.pending_ends_with_session
        with failures_of_reader(self._protocol, "before the first step"):
            self._pending_ends = ends(scenario.config) if callable(ends) else ends
            self._rules = scenario.protocol.rule_set.at_genesis(
                ChainSettings(
                    scenario.config,
                    scenario.genesis_paras,
                    notifications=scenario.notifications,
                    upward_messages=sink,
                    rules=scenario.rules,
                )
            )
        self._block: BlockNumber | None = None
        self._delayed: list[tuple[BlockNumber, Any]] = []
        self._session_changes: list[Any] = []

    def play(self, step: Step, where: str, *, ends_block: bool) -> dict[str, Any]:
        rules = self._rules
        if step.block != self._block:
            with failures_of(self._protocol, f"{where}: beginning of the block"):
                self._enact_delayed(step.block)
                rules.begin_block(step.block)
            self._block = step.block
            self._watch(rules, None)

        requests = self._results(rules.apply_request, step.requests, f"{where}: requests")
        downward = self._results(rules.apply_downward, step.downward, f"{where}: downward")
        candidates = self._results(self._apply_candidate, step.candidates, f"{where}: candidates")
        bodies = None if step.bodies is None else self._results(rules.apply_request, step.bodies, f"{where}: {BODIES}")
        if step.session_change is not None:
            self._session_changes.append(step.session_change)

        dispatched = None
        if ends_block:
            with failures_of(self._protocol, f"{where}: end of the block"):
                dispatched = self._end_block()
        self._watch(rules, None)
        with failures_of(self._protocol, f"{where}: state"):
            state = self._traces.view(rules.state)
        return {
            "block": step.block,
            "requests": requests,
            "downward": downward,
            "candidates": candidates,
            **({} if bodies is None else {BODIES: bodies}),
            "dispatched": dispatched,
            "state": state,
        }

    def _end_block(self) -> list[list[Any]]:
        """Run the dispatch round, then the session changes; return what was dispatched."""
        dispatched: list[list[Any]] = [[each.para_id, each.payload.hex()] for each in self._rules.dispatch()]
        for change in self._session_changes:
            if self._pending_ends:
                self._delayed.clear()
            self._rules.change_session(change)
        self._session_changes.clear()
        return dispatched

    def _results(self, apply: Callable[[T], object], items: Iterable[T], where: str) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for at, item in enumerate(items):
            rejection = None
            with failures_of(self._protocol, f"{where}[{at}]"):
                try:
                    apply(item)
                except Violation as violation:
                    rejection = violation
                    fields = violation.details() if violation.normative else {}
                    plain = {name: _plain(value) for name, value in fields.items()}
                    results.append({"ok": False, "error": {"kind": violation.kind, **plain}})
                else:
                    results.append({"ok": True})
            self._watch(self._rules, rejection)
        return results

    def _apply_candidate(self, item: tuple[Any, BlockNumber | None]) -> None:
        candidate, enact_at_block = item
        assert self._block is not None
        self._rules.check_candidate(candidate)
        if enact_at_block is None or enact_at_block <= self._block:
            self._rules.enact_candidate(candidate)
        else:
            self._delayed.append((enact_at_block, candidate))

    def _enact_delayed(self, block: BlockNumber) -> None:
        """Enact the candidates due at the start of ``block``, each in the block that it names, in order of block, then of acceptance."""
        due = sorted((item for item in self._delayed if item[0] <= block), key=lambda item: item[0])
        self._delayed = [item for item in self._delayed if item[0] > block]
        for enact_at_block, candidate in due:
            self._rules.begin_block(enact_at_block)
            self._rules.enact_candidate(candidate)


def _plain(value: Any) -> Any:
    """Return a field's value with lists instead of tuples."""
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


class Vector(NamedTuple):
    """An entry of a group, with the result of its inputs."""

    group: str
    name: str
    expected: dict[str, Any]
    result: dict[str, Any]


def protocol_of(document: Node) -> ProtocolDefinition | None:
    """Return the installed protocol that a file's ``format`` belongs to, or None. Raises `UserError`."""
    wanted = document["format"].text()
    for found in discover("validator.protocols"):
        protocol = installed_protocol(found.name)
        if protocol is not None and protocol.traces.vector_format == wanted:
            return protocol
    return None


def read_vectors(document: Node, protocol: ProtocolDefinition) -> Iterator[Vector]:
    """Yield every entry of a file with the protocol's result for it. Raises `UserError` if an entry is malformed, `PluginFailed`.

    The expected result is the entry's ``expect``, or without it the entry's members under the result's keys.
    """
    make = protocol.traces.vectors
    assert make is not None
    for group, entries in document.members():
        if not isinstance(entries.value, list):
            continue
        for at, entry in enumerate(entries.items()):
            with failures_of_reader(protocol, entry.path):
                result = make(group, entry)
            given = entry.object()
            expected = given.get("expect", {key: given.get(key) for key in result})
            yield Vector(group, str(given.get("id", at)), expected, result)
