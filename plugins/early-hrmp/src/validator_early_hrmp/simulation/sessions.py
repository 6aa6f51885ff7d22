# SPDX-License-Identifier: Apache-2.0
"""Session changes of a simulated chain: paras leave, come, and come back under the id that they had; limits change."""

from __future__ import annotations

from typing import Any, Final

from validator_early_hrmp.simulation.draws import Draws
from validator_early_hrmp.simulation.model import NaiveEarlyHrmp

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
FIRST_PARA: Final = 2000
POOR_EVERY: Final = 5
"""One para in so many cannot pay a deposit."""
LEAVING_PERCENT: Final = 35
"""Of the session changes."""
BACK_AT_ONCE_PERCENT: Final = 20
"""Of the paras that leave: they are onboarded again by the very change that offboards them."""
SPARE_PARAS: Final = 2


class SessionTraffic:
    """Moves paras in and out, and changes limits."""

    def __init__(self, draws: Draws, paras: int, changes_per_100: int) -> None:
        self.draws = draws
        self.wanted = paras
        self.changes_per_100 = changes_per_100
        self.gone: list[int] = []
        self.next_para = FIRST_PARA
        self.genesis = [self._newcomer() for _ in range(paras)]

    def _para(self, para: int) -> Json:
        balance = self.draws.randrange(40) if para % POOR_EVERY == 0 else self.draws.randint(300, 1200)
        return {"para_id": para, "kind": "parachain", "balance": balance}

    def _newcomer(self) -> Json:
        self.next_para += 1
        return self._para(self.next_para - 1)

    def change(self, model: NaiveEarlyHrmp) -> Json:
        """Return the next session change, in the shape of the traces."""
        draws = self.draws
        outgoing: list[int] = []
        onboarding: list[Json] = []
        if len(model.paras) > max(3, self.wanted - SPARE_PARAS) and draws.percent(LEAVING_PERCENT):
            outgoing.append(draws.choice(sorted(model.paras)))
        for para in outgoing:
            if draws.percent(BACK_AT_ONCE_PERCENT):
                onboarding.append(self._para(para))
            else:
                self.gone.append(para)
        if len(model.paras) - len(outgoing) < self.wanted and draws.percent(60):
            back = draws.one_of([para for para in self.gone if para not in outgoing])
            if back is not None and draws.percent(60):
                self.gone.remove(back)
                onboarding.append(self._para(back))
            else:
                onboarding.append(self._newcomer())
        limits: dict[str, int] = {}
        if draws.percent(self.changes_per_100):
            for name in draws.sample(list(CHANGES), 2):
                limits[name] = draws.choice(CHANGES[name])
        return {"outgoing": outgoing, "onboarding": onboarding, "new_config": limits}
