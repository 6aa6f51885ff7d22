# SPDX-License-Identifier: Apache-2.0
"""The budget for useless frames: duplicates, late counters, unknown topics. Source: channel_rules 1.2.8 "(budget)"."""

from __future__ import annotations

from collections import deque


class StaleBudget:
    """Allows ``limit`` frames within any ``period`` seconds, and holds the time of each."""

    def __init__(self, limit: int, period: float) -> None:
        self._limit = limit
        self._period = period
        self._times: deque[float] = deque()

    def spend(self, now: float) -> bool:
        """Count a frame and return whether it is within the budget; one that is ``period`` seconds old counts no more."""
        while self._times and now - self._times[0] >= self._period:
            self._times.popleft()
        if len(self._times) >= self._limit:
            return False
        self._times.append(now)
        return True
