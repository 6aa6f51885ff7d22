# SPDX-License-Identifier: Apache-2.0
"""Session changes of a simulated chain: paras leave, join, and return under their old id; limits change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from validator.simulate.draws import Draws
from validator.simulate.results import Json
from validator.simulate.settings import SimulationSettings

PARAS: Final = 12
"""Default number of paras, unless a block has more candidates."""
FIRST_PARA: Final = 2000
POOR_EVERY: Final = 5
"""One para in this many cannot pay a deposit."""
LEAVING_PERCENT: Final = 35
"""Percentage of session changes in which a para may leave."""
BACK_AT_ONCE_PERCENT: Final = 20
"""Percentage of leaving paras that the same session change onboards again."""
SPARE_PARAS: Final = 2
WARM_UP_BLOCKS: Final = 40
"""Sessions are short during the first blocks, so that channels open soon."""
WARM_UP_SESSION_BLOCKS: Final = 10


class SessionTraffic:
    """Moves paras in and out of a chain, and changes its limits: two of ``choices`` at a time, each to one of its values.

    ``genesis`` are the initial paras; ``gone`` are the ids of paras that have left.
    """

    def __init__(self, settings: SimulationSettings, draws: Draws, choices: Mapping[str, tuple[int, ...]]) -> None:
        self.settings = settings
        self.draws = draws
        self.choices = choices
        self.wanted = settings.paras or max(PARAS, settings.candidates_per_block)
        self.gone: list[int] = []
        self.next_para = FIRST_PARA
        self.genesis = [self._newcomer() for _ in range(self.wanted)]

    def end_after(self, block: int) -> bool:
        """Return whether a block is the last of its session."""
        played, length = block - self.settings.first_block + 1, self.settings.session_length_blocks
        return played % (min(length, WARM_UP_SESSION_BLOCKS) if played <= WARM_UP_BLOCKS else length) == 0

    def change(self, registered: Iterable[int]) -> Json:
        """Return the next session change, in the form of a block's record."""
        paras, draws = sorted(registered), self.draws
        outgoing: list[int] = []
        onboarding: list[Json] = []
        if len(paras) > max(3, self.wanted - SPARE_PARAS) and draws.percent(LEAVING_PERCENT):
            outgoing.append(draws.choice(paras))
        for para in outgoing:
            if draws.percent(BACK_AT_ONCE_PERCENT):
                onboarding.append(self._para(para))
            else:
                self.gone.append(para)
        if len(paras) - len(outgoing) < self.wanted and draws.percent(60):
            back = draws.one_of([para for para in self.gone if para not in outgoing])
            if back is not None and draws.percent(60):
                self.gone.remove(back)
                onboarding.append(self._para(back))
            else:
                onboarding.append(self._newcomer())
        limits: dict[str, int] = {}
        if draws.percent(self.settings.configuration_changes_per_100_sessions):
            for name in draws.sample(list(self.choices), 2):
                limits[name] = draws.choice(self.choices[name])
        return {"outgoing": outgoing, "onboarding": onboarding, "limits": limits}

    def _para(self, para: int) -> Json:
        balance = self.draws.randrange(40) if para % POOR_EVERY == 0 else self.draws.randint(300, 1200)
        return {"para_id": para, "kind": "parachain", "balance": balance}

    def _newcomer(self) -> Json:
        self.next_para += 1
        return self._para(self.next_para - 1)
