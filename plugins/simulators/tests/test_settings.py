# SPDX-License-Identifier: Apache-2.0
"""Settings of simulated chains: what every protocol refuses."""

from __future__ import annotations

from typing import Any

import pytest
from validator_simulators import PROFILES, SimulationSettings, settings_of_profile

from validator.errors import UserError


@pytest.mark.parametrize(
    "wrong",
    [
        {"violation_share": 1.5},
        {"enactment": "x"},
        {"blocks": -1},
        {"paras": 2},
        {"paras": 100_001},
        {"candidates_per_block": -1},
        {"candidates_per_block": 65_537},
        {"session_length_blocks": 0},
    ],
)
def test_invalid_settings_raise_user_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(wrong))}: expected"):
        SimulationSettings(**wrong)


def test_unknown_profile_raises_user_error() -> None:
    with pytest.raises(UserError, match="profile: expected one of demo, real, full, ceiling, history, found 'x'"):
        settings_of_profile("x")


def test_explicit_numbers_override_profile_and_none_keeps_it() -> None:
    settings = settings_of_profile("real", candidates_per_block=3, session_length_blocks=None)
    assert settings.candidates_per_block == 3
    assert settings.session_length_blocks == PROFILES["real"]["session_length_blocks"]
