# SPDX-License-Identifier: Apache-2.0
"""What the simulated relay chains of all protocols share: blocks, random draws, sessions, settings. It contains no rules.

Protocol authors import these names only in their simulation: no lane runs them.
"""

from validator.simulate.chain import Judged, SimulatedChain
from validator.simulate.draws import Draws, LeastMet
from validator.simulate.hashing import blake2b_256, compact, next_head
from validator.simulate.modelled import ModelledChain, is_sleepy
from validator.simulate.results import Json, accepted, failed, size_of
from validator.simulate.sessions import SessionTraffic
from validator.simulate.settings import (
    PROFILES,
    Record,
    SimulatedBlock,
    Simulation,
    SimulationSettings,
    settings_of_profile,
)

__all__ = [
    "PROFILES",
    "Draws",
    "Json",
    "Judged",
    "LeastMet",
    "ModelledChain",
    "Record",
    "SessionTraffic",
    "SimulatedBlock",
    "SimulatedChain",
    "Simulation",
    "SimulationSettings",
    "accepted",
    "blake2b_256",
    "compact",
    "failed",
    "is_sleepy",
    "next_head",
    "settings_of_profile",
    "size_of",
]
