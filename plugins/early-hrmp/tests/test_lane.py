# SPDX-License-Identifier: Apache-2.0
"""The protocol in a lane: its limits, and the records that it accepts."""

from __future__ import annotations

from copy import deepcopy

import pytest
from early_hrmp_suite import all_scenarios
from early_hrmp_trace import A, as_record
from validator_early_hrmp.state import WATERMARK_RULE

from validator.codec.json_form import encode_input
from validator.core.inputs import DeadLetter, RecordKind
from validator.errors import UserError
from validator.plugin.runtime import RuntimePlan, codec_of
from validator.testing.lane_suite import LANE, SuitePlayer, fits_into_blocks


def test_most_scenarios_fit_into_blocks() -> None:
    assert sum(map(fits_into_blocks, all_scenarios())) > 40


def test_unexpected_verdict_fails_scenario() -> None:
    scenario = deepcopy(next(filter(fits_into_blocks, all_scenarios())))
    SuitePlayer(scenario, as_record).play()
    step = next(step for step in scenario["steps"] if "requests" in step["expect"])
    step["expect"]["requests"][0]["ok"] = not step["expect"]["requests"][0]["ok"]
    with pytest.raises(AssertionError, match=f"{scenario['id']}, block {step['block']}, requests"):
        SuitePlayer(scenario, as_record).play()


def test_invalid_limits_are_rejected() -> None:
    (scenario, *_) = all_scenarios()
    with pytest.raises(UserError, match=r"chains\.chain\.limits\.hrmp_channel_max_place: no such limit of early-hrmp"):
        SuitePlayer(scenario, limits={"hrmp_channel_max_place": 1})
    with pytest.raises(UserError, match=rf"chains\.chain\.limits\.{WATERMARK_RULE}: expected one of land"):
        SuitePlayer(scenario, limits={WATERMARK_RULE: "floor"})
    with pytest.raises(UserError, match="expected an integer from 0 to 4294967295, found -1"):
        SuitePlayer(scenario, limits={"hrmp_channel_max_places": -1})


def test_record_of_another_protocol_is_undecodable() -> None:
    (scenario, *_) = all_scenarios()
    other = {"lane": LANE, "block": 1, "index": 0, "para_id": A, "hrmp_watermark": 0}
    router = codec_of([RuntimePlan("router")])
    dead = SuitePlayer(scenario).decoded(
        RecordKind.CANDIDATE, encode_input(router, RecordKind.CANDIDATE, other, "router")
    )
    assert isinstance(dead, DeadLetter)
    assert (
        dead.detail
        == "expected a record of validator.early_hrmp.Candidate on topic topic, found one of validator.router.Candidate"
    )
