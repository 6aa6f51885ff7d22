# SPDX-License-Identifier: Apache-2.0
"""A simulated chain whose channels are fixed: drawn before its first block, and nobody opens or closes one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from validator.simulate import Json, Judged, SimulationSettings
from validator_xcmp_network.simulation.traffic import CHANGES, LIMITS, NetworkSimulation

TOPOLOGY: Final = "fixed"
"""The name of this topology in `SimulationSettings.topology`."""
RECIPIENTS: Final = 10
"""Recipients of each para at the beginning, if there are as many others."""
REFUSED_PERCENT: Final = 50
"""Percentage of the blocks with a wrong request in which it is one for a channel."""


FIXED_LIMITS: Final[dict[str, Any]] = {**LIMITS, "channels": "fixed", "max_channel_messages": 3}
FIXED_CHANGES: Final[dict[str, tuple[int, ...]]] = {
    **{key: values for key, values in CHANGES.items() if key != "xcmp_channel_capacity"},
    "max_channel_messages": (2, 3, 4),
}


class FixedNetworkSimulation(NetworkSimulation):
    """One simulated chain with ingress queues over fixed channels. A para that leaves takes its channels along, and gets none again."""

    limits = FIXED_LIMITS
    changes = FIXED_CHANGES

    def __init__(self, settings: SimulationSettings) -> None:
        super().__init__(settings)
        self.open_channels = [list(pair) for pair in self.model.fixed]

    def chain(self) -> Json:
        """Return the chain's complete configuration."""
        described = super().chain()
        return {**described, "config": {**described["config"], "open_channels": self.open_channels}}

    def first_channels(self) -> list[tuple[int, int]]:
        """Draw the recipients of each para."""
        paras = sorted(para["para_id"] for para in self.sessions.genesis)
        count = max(RECIPIENTS, self.settings.channels_per_para)
        found: list[tuple[int, int]] = []
        for sender in paras:
            others = [para for para in paras if para != sender]
            found += [(sender, recipient) for recipient in self.draws.sample(others, min(count, len(others)))]
        return sorted(found)

    def channel_requests(self) -> Iterator[Judged]:
        """Make requests for channels, which such a chain refuses."""
        paras = self.paras()
        if len(paras) > 1 and self.breaks() and self.draws.percent(REFUSED_PERCENT):
            origin, recipient = self.draws.sample(paras, 2)
            request: dict[str, Any] = {"kind": "init_open_channel", "origin": origin, "recipient": recipient}
            yield request, self.model.request(request)
