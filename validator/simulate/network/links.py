# SPDX-License-Identifier: Apache-2.0
"""How long a body takes from its sender to its recipient: delay, late and lost transfers, re-requests that back off."""

from __future__ import annotations

from math import inf, log
from random import Random

from validator.simulate.network.limits import BLOCK_MS, REQUEST_WAIT_BLOCKS_MAX, REQUESTS_MAX
from validator.simulate.network.settings import NetworkSettings


class Links:
    """The links between all paras. Each transfer is drawn for itself; the earliest copy of a body counts."""

    def __init__(self, settings: NetworkSettings, draws: Random) -> None:
        self._random = draws.random
        self._delay_ms, self._jitter_ms = settings.delay_ms, settings.jitter_ms
        self._late_share, self._late_ms, self._lost_share = settings.late_share, settings.late_ms, settings.lost_share
        self._request_after_ms = float(settings.request_after_blocks * BLOCK_MS)
        self._backoff = settings.request_backoff

    def deliver(self) -> tuple[int, int]:
        """Send a body when the relay block lists it; request it again for as long as no copy has arrived.

        Returns the milliseconds from that block to the arrival, and the number of re-requests.
        """
        arrival, requests = self._transfer(), 0
        asked, wait = 0.0, self._request_after_ms
        while wait and arrival > asked + wait and requests < REQUESTS_MAX:
            asked += wait
            wait = min(wait * self._backoff, REQUEST_WAIT_BLOCKS_MAX * BLOCK_MS)
            requests += 1
            arrival = min(arrival, asked + self._transfer(may_be_lost=requests < REQUESTS_MAX))
        return int(arrival), requests

    def _transfer(self, *, may_be_lost: bool = True) -> float:
        random = self._random
        if self._lost_share and random() < self._lost_share and may_be_lost:
            return inf
        taken = self._delay_ms - self._jitter_ms * log(1 - random())
        if self._late_share and random() < self._late_share:
            taken -= self._late_ms * log(1 - random())
        return taken
