# SPDX-License-Identifier: Apache-2.0
"""The pure load keeps its promise: the model accepts every candidate, from a state with all channels open."""

from __future__ import annotations

import pytest
from validator_simulators.router.load import SettingsLoad, initial_state, load, load_chain
from validator_simulators.router.model import NaiveRouter

from validator.errors import UserError


@pytest.mark.parametrize(
    "settings",
    [
        SettingsLoad(paras=10, channels=35, candidates_per_block=10, blocks=60),
        SettingsLoad(paras=10, channels=90, candidates_per_block=3, blocks=60),
        SettingsLoad(paras=2, channels=2, candidates_per_block=1, blocks=30, message_size_bytes=8),
    ],
)
def test_model_accepts_every_candidate_of_a_load(settings: SettingsLoad) -> None:
    state = initial_state(settings)
    assert len(state["channel_set"]) == settings.channels
    router = NaiveRouter.from_state(load_chain(settings)["config"], state)
    assert router.state() == state
    payloads = set()
    count = most_places = 0
    for block in load(settings):
        (_, header), *candidates = block.records
        assert header["candidates"] == len(candidates) == len(block.expected) == settings.candidates_per_block
        router.begin_block(block.block)
        for _, candidate in candidates:
            assert router.candidate(candidate)["ok"]
            (message,) = candidate["horizontal_messages"]
            payloads.add(message["data"])
            count += 1
        most_places = max(most_places, *(router.used_places(channel) for channel in router.channels))
        router.dispatch_round()
    assert count == len(payloads) == settings.blocks * settings.candidates_per_block
    assert most_places <= 3


def test_same_seed_gives_same_load() -> None:
    settings = SettingsLoad(seed=9, paras=10, channels=20, candidates_per_block=5, blocks=5)
    assert list(load(settings)) == list(load(settings))
    assert list(load(settings)) != list(
        load(SettingsLoad(seed=8, paras=10, channels=20, candidates_per_block=5, blocks=5))
    )


@pytest.mark.parametrize(
    "wrong",
    [{"paras": 1}, {"channels": 5}, {"candidates_per_block": 101}, {"message_size_bytes": 7}, {"first_block": 0}],
)
def test_invalid_load_settings_raise_user_error(wrong: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(wrong))}: expected"):
        SettingsLoad(**wrong)  # type: ignore[arg-type]
