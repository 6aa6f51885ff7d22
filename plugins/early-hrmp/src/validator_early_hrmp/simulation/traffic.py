# SPDX-License-Identifier: Apache-2.0
"""A seeded relay chain under early HRMP, judged by the naive model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from validator.plugin.api import SessionTraffic, SimulatedChain, SimulationSettings
from validator_early_hrmp.simulation.candidates import CandidateTraffic
from validator_early_hrmp.simulation.model import OK, NaiveEarlyHrmp
from validator_early_hrmp.simulation.requests import RequestTraffic, request_record

Json = dict[str, Any]

LIMITS: Final[dict[str, int]] = {
    "hrmp_channel_max_places": 3,
    "hrmp_channel_max_size": 400,
    "hrmp_max_outbound_channels": 4,
    "hrmp_sender_deposit": 100,
    "hrmp_recipient_deposit": 60,
    "hrmp_open_request_ttl": 2,
}
"""What a chain starts with: counts, bytes, balances and session boundaries, all within reach."""
CHANGES: Final[dict[str, tuple[int, ...]]] = {
    "hrmp_channel_max_places": (2, 3, 4),
    "hrmp_channel_max_size": (250, 400, 600),
    "hrmp_max_outbound_channels": (3, 4, 5),
    "hrmp_sender_deposit": (80, 100, 120),
    "hrmp_recipient_deposit": (40, 60, 80),
    "hrmp_open_request_ttl": (1, 2, 3),
}
DOWNWARD_BYTES_MAX: Final = 120


class EarlyHrmpSimulation(SimulatedChain):
    """One simulated chain under early HRMP: `model` is the model behind it."""

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.sessions = SessionTraffic(settings, self.draws, CHANGES)
        self.model = NaiveEarlyHrmp(
            LIMITS,
            self.sessions.genesis,
            unlimited=settings.unlimited_balances,
            waits=settings.enactment == "on-inclusion",
        )
        self.channels = RequestTraffic(self.model, self.draws)
        self.traffic = CandidateTraffic(self.model, self.draws, settings.horizontal_per_100_candidates)

    def chain(self) -> Json:
        """Return the chain's configuration, whole."""
        return {
            "lane": self.settings.lane,
            "protocol": "early-hrmp",
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
        """Make messages of the relay chain; nothing is asked of them, so that some go to who has left."""
        for _ in range(self.draws.count(self.settings.downward_per_100_blocks)):
            gone = self.draws.one_of(self.sessions.gone) if self.draws.percent(2) else None
            para = self.draws.choice(self.paras()) if gone is None else gone
            message: Json = {"para_id": para, "msg": self.draws.hex(self.draws.randrange(DOWNWARD_BYTES_MAX))}
            self.model.downward(para, message["msg"])
            yield message, OK

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
        self.model.session_change({**change, "new_config": change["limits"]})
        return change
