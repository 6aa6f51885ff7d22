# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain with XCMP channels, judged by the naive model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from validator.plugin.api import SessionTraffic, SimulatedChain, SimulationSettings
from validator_xcmp.simulation.candidates import CandidateTraffic
from validator_xcmp.simulation.model import OK, NaiveXcmp
from validator_xcmp.simulation.requests import RequestTraffic, request_record

Json = dict[str, Any]

LIMITS: Final[dict[str, int]] = {
    "xcmp_channel_capacity": 8,
    "xcmp_max_outbound_channels": 4,
    "xcmp_sender_deposit": 100,
    "xcmp_recipient_deposit": 60,
    "xcmp_open_request_ttl": 2,
    "xcmp_condemned_sessions": 3,
}
"""What a chain starts with: counts, balances and session boundaries, all within reach."""
CHANGES: Final[dict[str, tuple[int, ...]]] = {
    "xcmp_channel_capacity": (4, 8, 16),
    "xcmp_max_outbound_channels": (3, 4, 5),
    "xcmp_sender_deposit": (80, 100, 120),
    "xcmp_recipient_deposit": (40, 60, 80),
    "xcmp_open_request_ttl": (1, 2, 3),
    "xcmp_condemned_sessions": (2, 3, 4),
}
DOWNWARD_BYTES_MAX: Final = 120


class XcmpSimulation(SimulatedChain):
    """One simulated chain with XCMP channels: `model` is the model behind it."""

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.sessions = SessionTraffic(settings, self.draws, CHANGES)
        self.model = NaiveXcmp(
            LIMITS,
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            on_inclusion=settings.enactment == "on-inclusion",
        )
        self.channels = RequestTraffic(self.model, self.draws)
        self.traffic = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)

    def chain(self) -> Json:
        """Return the chain's configuration, whole."""
        return {
            "lane": self.settings.lane,
            "protocol": "xcmp",
            "first_block": self.settings.first_block,
            "enactment": self.settings.enactment,
            "balances": "unlimited" if self.settings.unlimited_balances else "ledger",
            "config": dict(LIMITS),
            "genesis_paras": self.sessions.genesis,
        }

    def paras(self) -> list[int]:
        """Return the paras that are registered."""
        return sorted(self.model.paras)

    def pending(self) -> list[Json]:
        """Return what awaits its inclusion."""
        return self.model.pending

    def begin_block(self, included: list[Json], timed_out: list[Json]) -> list[Json]:
        """Begin the block."""
        return self.model.begin_block(self.block, included, timed_out)

    def requests(self) -> Iterator[tuple[Json, Json]]:
        """Make requests, good ones and broken ones."""
        for _ in range(self.draws.count(self.settings.requests_per_100_blocks)):
            played = self.channels.play(breaks=self.breaks())
            if played is not None:
                yield request_record(played[0]), played[1]

    def downward(self) -> Iterator[tuple[Json, Json]]:
        """Make messages of the relay chain."""
        for _ in range(self.draws.count(self.settings.downward_per_100_blocks)):
            para, message = self.draws.choice(self.paras()), self.draws.hex(self.draws.randrange(DOWNWARD_BYTES_MAX))
            self.model.downward(para, message)
            yield {"para_id": para, "msg": message}, OK

    def candidates(self) -> Iterator[tuple[Json, Json, tuple[str, ...]]]:
        """Make candidates, good ones and broken ones."""
        for para in self.traffic.producers(self.settings.candidates_per_block):
            played = self.traffic.play(para, breaks=self.breaks())
            if played is not None:
                yield played

    def session_change(self) -> Json | None:
        """End the session when it has had its blocks."""
        if not self.sessions.end_after(self.block):
            return None
        change = self.sessions.change(self.model.paras)
        self.model.change_session({**change, "new_config": change["limits"]})
        return change
