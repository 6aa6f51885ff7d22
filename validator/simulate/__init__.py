# SPDX-License-Identifier: Apache-2.0
"""Seeded relay chains with the verdicts of a model: what those of all protocols share."""

from __future__ import annotations

from validator.simulate.chain import SimulatedChain
from validator.simulate.draws import Draws, LeastMet
from validator.simulate.modelled import ModelledChain
from validator.simulate.sessions import SessionTraffic
from validator.simulate.settings import SimulatedBlock, Simulation, SimulationSettings

__all__ = [
    "Draws",
    "LeastMet",
    "ModelledChain",
    "SessionTraffic",
    "SimulatedBlock",
    "SimulatedChain",
    "Simulation",
    "SimulationSettings",
]
