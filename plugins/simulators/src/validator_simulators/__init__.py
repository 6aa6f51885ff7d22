# SPDX-License-Identifier: Apache-2.0
"""What the simulated relay chains of all protocols share: blocks, random draws, sessions, settings. It contains no rules.

A distribution that simulates a protocol imports these names, and declares its `Simulation` by an entry point of group
``validator.simulators``. Nothing that runs in a lane, a worker or the job imports any of it.
"""

from validator_simulators.chain import Judged, ModelledChain, SessionTraffic, SimulatedChain, is_sleepy
from validator_simulators.kit import (
    Draws,
    Json,
    LeastMet,
    accepted,
    blake2b_256,
    compact,
    failed,
    message_range,
    next_head,
    size_of,
)
from validator_simulators.settings import (
    PROFILES,
    Record,
    SimulatedBlock,
    Simulation,
    SimulationSettings,
    settings_of_profile,
)

__version__ = "1.0.0"

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
    "message_range",
    "next_head",
    "settings_of_profile",
    "size_of",
]
