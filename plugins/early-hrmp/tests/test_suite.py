# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: that the rules pass it, that it is what was written, and that nothing is missing from it."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import fields

import pytest
from early_hrmp_player import Json, play
from early_hrmp_suite import GROUPS, SUITE, all_scenarios, text_of
from validator_early_hrmp import errors

from validator.plugin.api import Violation

READINGS = [f"H-I{number:02}" for number in range(1, 13)]


@pytest.mark.parametrize("scenario", all_scenarios(), ids=lambda scenario: scenario["id"])
def test_a_scenario_passes(scenario: Json) -> None:
    assert play(scenario) == []


@pytest.mark.parametrize("group", GROUPS)
def test_the_files_are_what_was_written(group: str) -> None:
    assert (SUITE / f"{group}.json").read_text(encoding="utf-8") == text_of(group)


def test_no_file_is_left_over() -> None:
    assert sorted(path.stem for path in SUITE.iterdir()) == sorted(GROUPS)


def test_names_are_unique() -> None:
    ids = [scenario["id"] for scenario in all_scenarios()]
    assert len(set(ids)) == len(ids) >= 40


def test_every_error_and_every_field_of_it_is_met() -> None:
    kinds = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Violation) and each.kind
    ]
    declared = {(each.kind, *(field.name for field in fields(each))) for each in kinds}
    met = {
        (result["error"]["kind"], *[field for field in result["error"] if field != "kind"])
        for scenario in all_scenarios()
        for step in scenario["steps"]
        for key in ("requests", "candidates")
        for result in step.get("expect", {}).get(key, ())
        if not result["ok"]
    }
    assert met == declared


def test_every_reading_is_met() -> None:
    met = {each["id"] for scenario in all_scenarios() for each in scenario.get("interpretation", ())}
    assert sorted(met) == READINGS


@pytest.mark.parametrize("scenario", all_scenarios(), ids=lambda scenario: scenario["id"])
def test_every_result_of_a_scenario_is_looked_at(scenario: Json) -> None:
    for at, step in enumerate(scenario["steps"]):
        for key in ("requests", "downward", "candidates"):
            for position, result in enumerate(step.get("expect", {}).get(key, ())):
                wrong = deepcopy(scenario)
                wrong["steps"][at]["expect"][key][position] = {"ok": not result["ok"]}
                assert len(play(wrong)) == 1, (at, key, position, json.dumps(result))
