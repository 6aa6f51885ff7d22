# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain with ingress queues over channels that open and close, judged by the naive model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from validator_xcmp.simulation.requests import RequestTraffic
from validator_xcmp.simulation.traffic import CHANGES as XCMP_CHANGES
from validator_xcmp.simulation.traffic import LIMITS as XCMP_LIMITS

from validator.simulate import Judged, ModelledChain, SimulationSettings
from validator_xcmp_network.simulation.candidates import CandidateTraffic
from validator_xcmp_network.simulation.model import NaiveNetwork
from validator_xcmp_network.simulation.requests import ReportTraffic

LIMITS: Final[dict[str, Any]] = {
    **XCMP_LIMITS,
    "xcmp_channel_capacity": 3,
    "max_block_bytes": 1000,
    "max_ingress_messages": 5,
    "intra_block": "prefix",
    "require_bodies": True,
    "channels": "xcmp",
}
"""A chain's initial configuration: the strict modes, and bounds that are small enough to be reached."""
CHANGES: Final[dict[str, tuple[int, ...]]] = {
    **XCMP_CHANGES,
    "xcmp_channel_capacity": (2, 3, 4),
    "max_block_bytes": (500, 1000, 2000),
    "max_ingress_messages": (4, 5, 6),
}


class NetworkSimulation(ModelledChain):
    """One simulated chain with ingress queues."""

    protocol = "xcmp-network"
    limits = LIMITS
    changes = CHANGES

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.model: NaiveNetwork = NaiveNetwork(
            dict(self.limits),
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            on_inclusion=settings.enactment == "on-inclusion",
            channels=self.first_channels(),
        )
        self.channels = RequestTraffic(self.model, self.draws)
        self.reports = ReportTraffic(self.model, self.draws)
        self.traffic = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)

    def requests(self) -> Iterator[Judged]:
        """Report bodies, some of them wrongly; then make channel requests."""
        for message in self.reports.due():
            if self.breaks():
                broken = self.reports.broken()
                if broken is not None:
                    yield broken
            yield self.reports.true(message)
        yield from self.channel_requests()

    def first_channels(self) -> list[tuple[int, int]]:
        """Return the fixed channels, sender and recipient."""
        return []

    def channel_requests(self) -> Iterator[Judged]:
        """Make requests for channels."""
        return super().requests()
