# SPDX-License-Identifier: Apache-2.0
"""The final state of a scenario is compared completely, but for what may as well be absent."""

from __future__ import annotations

from typing import Any

import pytest

from validator.replay.run import judge_scenario
from validator.replay.scenario import Scenario, Step

NOTHING = {"free": 0, "reserved": 0}
STATE = {"balances": {"1": {"free": 5, "reserved": 0}}, "sealed": {"1": {"sealed": False}}, "list": [0, {"x": 0}]}


def difference(expected: dict[str, Any]) -> str | None:
    scenario = Scenario("one", "one", steps=(Step(1, (), (), (), None, None, {}),), final_state=expected)
    return judge_scenario(scenario, {"steps": [{"dispatched": None, "state": STATE}]})


@pytest.mark.parametrize(
    "expected",
    [
        {"balances": {"1": {"free": 5}, "2": NOTHING}},
        {"balances": {"1": {"free": 5, "reserved": 0}, "2": None}},
        {"list": [0, {"x": 0}], "absent": [], "nothing": {}},
        {"sealed": {"1": {"sealed": False}}},
    ],
)
def test_what_is_zero_may_as_well_be_absent(expected: dict[str, Any]) -> None:
    assert difference(expected) is None


@pytest.mark.parametrize(
    "expected",
    [{"balances": {}}, {"balances": {"1": {"free": 6}}}, {"list": [0]}, {"sealed": {"1": {}}}, {"absent": {"1": 1}}],
)
def test_all_else_is_compared(expected: dict[str, Any]) -> None:
    assert (difference(expected) or "").startswith("final_state.")
