# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain under early HRMP, judged by the naive model."""

from __future__ import annotations

from typing import Final

from validator.simulate import ModelledChain, SimulationSettings
from validator_early_hrmp.simulation.candidates import CandidateTraffic
from validator_early_hrmp.simulation.model import NaiveEarlyHrmp
from validator_early_hrmp.simulation.requests import RequestTraffic

LIMITS: Final[dict[str, int]] = {
    "hrmp_channel_max_places": 3,
    "hrmp_channel_max_size": 400,
    "hrmp_max_outbound_channels": 4,
    "hrmp_sender_deposit": 100,
    "hrmp_recipient_deposit": 60,
    "hrmp_open_request_ttl": 2,
}
"""A chain's initial limits: counts, bytes, balances and session boundaries, all small enough to be reached."""
CHANGES: Final[dict[str, tuple[int, ...]]] = {
    "hrmp_channel_max_places": (2, 3, 4),
    "hrmp_channel_max_size": (250, 400, 600),
    "hrmp_max_outbound_channels": (3, 4, 5),
    "hrmp_sender_deposit": (80, 100, 120),
    "hrmp_recipient_deposit": (40, 60, 80),
    "hrmp_open_request_ttl": (1, 2, 3),
}


class EarlyHrmpSimulation(ModelledChain):
    """One simulated chain under early HRMP."""

    protocol = "early-hrmp"
    limits = LIMITS
    changes = CHANGES

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.model: NaiveEarlyHrmp = NaiveEarlyHrmp(
            LIMITS,
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            waits=settings.enactment == "on-inclusion",
        )
        self.channels = RequestTraffic(self.model, self.draws)
        self.traffic = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)
