# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain with XCMP channels, judged by the naive model."""

from __future__ import annotations

from typing import Final

from validator.simulate import ModelledChain, SimulationSettings
from validator_xcmp.simulation.candidates import CandidateTraffic
from validator_xcmp.simulation.model import NaiveXcmp
from validator_xcmp.simulation.requests import RequestTraffic

LIMITS: Final[dict[str, int]] = {
    "xcmp_channel_capacity": 8,
    "xcmp_max_outbound_channels": 4,
    "xcmp_sender_deposit": 100,
    "xcmp_recipient_deposit": 60,
    "xcmp_open_request_ttl": 2,
    "xcmp_condemned_sessions": 3,
}
"""A chain's initial limits: counts, balances and session boundaries, all small enough to be reached."""
CHANGES: Final[dict[str, tuple[int, ...]]] = {
    "xcmp_channel_capacity": (4, 8, 16),
    "xcmp_max_outbound_channels": (3, 4, 5),
    "xcmp_sender_deposit": (80, 100, 120),
    "xcmp_recipient_deposit": (40, 60, 80),
    "xcmp_open_request_ttl": (1, 2, 3),
    "xcmp_condemned_sessions": (2, 3, 4),
}


class XcmpSimulation(ModelledChain):
    """One simulated chain with XCMP channels."""

    protocol = "xcmp"
    limits = LIMITS
    changes = CHANGES

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.model: NaiveXcmp = NaiveXcmp(
            LIMITS,
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            on_inclusion=settings.enactment == "on-inclusion",
        )
        self.channels = RequestTraffic(self.model, self.draws)
        self.traffic = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)
