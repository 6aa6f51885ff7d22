# SPDX-License-Identifier: Apache-2.0
"""Lanes in memory and processes of lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from validator_simulators import SimulationSettings

from tests.unit.lanes.chains import chain, definition_of
from tests.unit.lanes.running import Running
from validator.lanes.apart.host import LaneProcesses


@pytest.fixture
def make() -> Callable[..., Running]:
    def running(seed: int = 3, lane: str = "polkadot") -> Running:
        of = chain(SimulationSettings(seed=seed, blocks=12, candidates_per_block=3, session_length_blocks=5, lane=lane))
        return Running(of, definition_of(of))

    return running


@pytest.fixture
def processes() -> Iterator[LaneProcesses]:
    started = LaneProcesses()
    yield started
    started.close()
