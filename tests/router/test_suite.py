# SPDX-License-Identifier: Apache-2.0
"""The conformance suite that the package ships: complete, up to date, passed by the core and by the naive model."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from validator_simulators.router.model import play

from tests.router.generate import GROUPS, SUITE, scenarios_of, text_of
from validator.compare import first_difference, first_result_difference
from validator.core.errors import Violation
from validator.core.rules import ChainSettings, LaneRules, pages
from validator.document import Node
from validator.plugin.rule_pages import Sort, installed_pages
from validator.plugin.runtime import installed_protocol
from validator.protocols.kit import InclusionCandidateNotPending, TimeoutCandidateNotPending
from validator.protocols.router import errors
from validator.protocols.router.features import errors as later_errors
from validator.protocols.router.invariants import check_invariants
from validator.protocols.router.rules import ROUTER
from validator.protocols.router.traces import view
from validator.replay.run import judge_scenario, run_scenario
from validator.replay.scenario import read_scenarios, suite_files

INSTALLED = cache(installed_protocol)
SCENARIOS = [scenario for group in GROUPS for scenario in scenarios_of(group)]
SHARED = Path(__file__).resolve().parents[3] / "shared"
SAMPLES = tuple(
    SHARED / "traces" / name
    for name in ("router_samples.json", "router_profiles_samples.json", "chain_2026_samples.json")
)
REAL = ("real_pallets_traces.json", "real_pallets_exact_traces.json")
"""What the relay chain's own code did with random scenarios: without this program's choices, and with nothing left out."""
RULES = tuple(SHARED / "spec" / name for name in ("router_rules.md", "router_profiles.md", "chain_2026.md"))
INPUTS = ("requests", "downward", "candidates")
NOT_IN_TRACES = {InclusionCandidateNotPending.kind, TimeoutCandidateNotPending.kind}
"""Verdicts on entries of block records, which traces do not have (tests/router/test_state.py)."""


def violations() -> list[type[Violation]]:
    modules = (errors.__name__, later_errors.__name__, InclusionCandidateNotPending.__module__)
    found: list[type[Violation]] = []
    open_ends = [Violation]
    while open_ends:
        children = open_ends.pop().__subclasses__()
        found += [child for child in children if child.__module__ in modules and child.kind]
        open_ends += children
    return sorted(found, key=lambda violation: violation.kind)


def results(scenarios: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (key, result)
        for scenario in scenarios
        for step in scenario["steps"]
        for key in INPUTS
        for result in step["expect"].get(key, [])
    ]


@pytest.mark.parametrize("group", GROUPS)
def test_shipped_file_matches_generator(group: str) -> None:
    assert (SUITE / f"{group}.json").read_text(encoding="utf-8") == text_of(group), "run make generate"


def test_every_shipped_file_has_generator() -> None:
    assert [path.stem for path in suite_files("router")] == sorted(GROUPS)


def test_scenario_ids_are_unique() -> None:
    ids = [scenario["id"] for scenario in SCENARIOS]
    assert sorted(set(ids)) == sorted(ids)
    assert all(scenario["rule"] and scenario["source"] for scenario in SCENARIOS)


def check_state(rules: LaneRules[Any], _: Violation | None) -> None:
    """Check the invariants, that the pages are the state, and that the incremental root is the one from scratch."""
    assert rules.rule_set is ROUTER
    check_invariants(rules.state)
    saved = pages(rules)
    restored = ROUTER.from_pages(saved, ChainSettings(rules=rules.settings.rules))
    check_invariants(restored.state)
    assert pages(restored) == saved
    assert view(restored.state) == view(rules.state)
    assert rules.state_root() == restored.state_root() == ROUTER.root_of(rules.state)


def core_and_naive_model_pass(scenario: dict[str, Any]) -> None:
    (read,) = read_scenarios(Node(scenario, scenario["id"]), installed=INSTALLED)
    output = run_scenario(read, check_state)
    assert judge_scenario(read, output) is None
    played = play(scenario)
    assert judge_scenario(read, played) is None
    for step, (ours, theirs) in enumerate(zip(output["steps"], played["steps"], strict=True)):
        assert ours == theirs, f"{read.id}, step {step}"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["id"])
def test_core_and_naive_model_pass_scenario(scenario: dict[str, Any]) -> None:
    core_and_naive_model_pass(scenario)


@pytest.mark.skipif(not all(path.exists() for path in SAMPLES), reason="../shared/traces is not next to this checkout")
@pytest.mark.parametrize("samples", SAMPLES, ids=lambda path: path.stem)
def test_core_and_naive_model_pass_sample_traces(samples: Path) -> None:
    for scenario in json.loads(samples.read_text(encoding="utf-8")):
        core_and_naive_model_pass(scenario)


@pytest.mark.skipif(not SHARED.exists(), reason="../shared is not next to this checkout")
@pytest.mark.parametrize("name", REAL)
def test_core_and_naive_model_do_as_the_chains_own_code_did(name: str) -> None:
    scenarios = json.loads((SHARED / "traces" / name).read_text(encoding="utf-8"))
    assert len(scenarios) >= 60
    for scenario in scenarios:
        core_and_naive_model_pass(scenario)


# --- completeness ---


def test_every_violation_kind_occurs_in_suite() -> None:
    rejected = {result["error"]["kind"] for _, result in results(SCENARIOS) if not result["ok"]}
    assert rejected == {violation.kind for violation in violations()} - NOT_IN_TRACES


@pytest.mark.parametrize("violation", [v for v in violations() if v.kind not in NOT_IN_TRACES], ids=lambda v: v.kind)
def test_every_violation_kind_has_accepted_counterpart(violation: type[Violation]) -> None:
    """Some scenario with this violation also accepts an input of the same sort from the same para."""
    neighbours = []
    for scenario in SCENARIOS:
        accepted, rejected = set(), set()
        for step in scenario["steps"]:
            for key in INPUTS:
                for item, result in zip(step.get(key, []), step["expect"].get(key, []), strict=True):
                    sort = (key, item.get("kind"), item.get("origin", item.get("para_id")))
                    if result["ok"]:
                        accepted.add(sort)
                    elif result["error"]["kind"] == violation.kind:
                        rejected.add(sort)
        neighbours += sorted(accepted & rejected, key=str)
    assert neighbours


@pytest.mark.parametrize("violation", violations(), ids=lambda violation: violation.kind)
def test_fields_of_expected_error_match_its_class(violation: type[Violation]) -> None:
    names = {field.name for field in fields(violation)} if violation.normative else set()
    for _, result in results(SCENARIOS):
        if not result["ok"] and result["error"]["kind"] == violation.kind:
            assert set(result["error"]) == {"kind", *names}


def test_violations_have_unique_kinds_and_a_clause() -> None:
    named = [(violation.kind, violation.clause) for violation in violations()]
    assert len(named) == len(set(named))
    assert all(clause for _, clause in named)
    kinds = [kind for kind, _ in named]
    # a downward queue that is full is refused with the kind of a message that is too long
    assert {kind for kind in kinds if kinds.count(kind) > 1} == {later_errors.DownwardQueueFull.kind}


@pytest.mark.skipif(not all(path.exists() for path in RULES), reason="../shared/spec is not next to this checkout")
@pytest.mark.parametrize("violation", [v for v in violations() if v.kind not in NOT_IN_TRACES], ids=lambda v: v.kind)
def test_kinds_and_fields_match_specification(violation: type[Violation]) -> None:
    rules = "".join(path.read_text(encoding="utf-8") for path in RULES)
    name = violation.kind.rpartition("/")[2]
    assert re.search(rf"`(?:\w+/)?{name}\b", rules)
    if violation.normative and fields(violation):
        listed = [text.partition("}`")[0] for text in re.split(rf"`(?:\w+/)?{name}\{{", rules)[1:]]
        assert any(all(field.name in text for field in fields(violation)) for text in listed)


def test_every_state_key_is_expected_in_some_scenario() -> None:
    expected = {key for scenario in SCENARIOS for step in scenario["steps"] for key in step["expect"].get("state", {})}
    (scenario,) = read_scenarios(Node(SCENARIOS[0], "first"))
    assert expected == set(run_scenario(scenario)["steps"][0]["state"])


def test_every_reading_is_pinned_by_scenario_or_needs_none() -> None:
    pinned = {scenario["interpretation"]["id"] for scenario in SCENARIOS if "interpretation" in scenario}
    # I-15 is pinned by upward/dispatch-comes-before-the-session-change; scenarios of the others name no alternative
    silent = {"I-15", "I-21", "I-22", "I-23", "I-24", "I-25", "I-26", "I-27", "I-28", "PR-11", "PR-14"}
    (page,) = (page for page in installed_pages(["router"])[0] if page.protocol == "router")
    assert {entry.name for entry in page.entries if entry.sort is Sort.READING} == pinned | silent
    assert not pinned & silent


# --- the suite can fail ---


def _paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in _paths(item, (*path, key))]
    if isinstance(value, list) and value:
        return [leaf for at, item in enumerate(value) for leaf in _paths(item, (*path, at))]
    return [path]


def _altered(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return f"{value}00" if isinstance(value, str) else 77  # an expected absence, or an empty list


@pytest.mark.parametrize("group", GROUPS)
def test_every_altered_expectation_fails(group: str) -> None:
    """Each leaf of each expectation is compared with the output."""
    for scenario in scenarios_of(group):
        (read,) = read_scenarios(Node(scenario, scenario["id"]), installed=INSTALLED)
        output = run_scenario(read)
        for at, step in enumerate(read.steps):
            for path in _paths(step.expect):
                if not path:
                    continue
                expect = copy.deepcopy(step.expect)
                holder = expect
                for key in path[:-1]:
                    holder = holder[key]
                holder[path[-1]] = _altered(holder[path[-1]])
                object.__setattr__(step, "expect", expect)
                assert judge_scenario(read, output) is not None, f"{scenario['id']}, step {at}, {path}"
                object.__setattr__(step, "expect", scenario["steps"][at]["expect"])


@pytest.mark.parametrize(
    ("expected", "actual", "agree"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {}, False),
        ({"a": None}, {}, True),
        ({"a": None}, {"a": 0}, False),
        ({"a": None}, {"a": {}}, False),
        ({"a": 0}, {}, True),
        ({"a": 0}, {"a": 0}, True),
        ({"a": 0}, {"a": 1}, False),
        ({"a": []}, {}, True),
        ({"a": []}, {"a": [1]}, False),
        ({"a": False}, {}, False),
        ({"a": ""}, {}, False),
        ({"a": {"b": 0}}, {}, True),
        ({"a": {"b": 1}}, {}, False),
        ({"a": {}}, {"a": {"b": 1}}, True),
        ({"a": {}}, {"a": [1]}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, False),
        ({"a": [1]}, {"a": {"b": 1}}, False),
    ],
)
def test_subset_comparison_finds_differences(expected: Any, actual: Any, agree: bool) -> None:
    assert (first_difference(expected, actual) is None) is agree


@pytest.mark.parametrize(
    ("expected", "agree"),
    [
        ([{"ok": False, "error": {"kind": "K", "n": 1}}], True),
        ([{"ok": False, "error": {"kind": "K"}}], False),
        ([{"ok": False, "error": {"kind": "K", "n": 2}}], False),
        ([{"ok": False, "error": {"kind": "L", "n": 1}}], False),
        ([{"ok": True}], False),
        ([], False),
        ([{"ok": False, "error": {"kind": "L"}, "error_any_of": ["K", "M"]}], True),
        ([{"ok": False, "error": {"kind": "L"}, "error_any_of": ["M"]}], False),
        ([{"ok": False, "error": {"kind": "K", "n": 1}, "note": "why"}], True),
    ],
)
def test_result_comparison_finds_differences(expected: Any, agree: bool) -> None:
    actual = [{"ok": False, "error": {"kind": "K", "n": 1}}]
    assert (first_result_difference(expected, actual, "requests") is None) is agree


def test_suite_text_is_json() -> None:
    assert json.loads(text_of("watermark")) == scenarios_of("watermark")
