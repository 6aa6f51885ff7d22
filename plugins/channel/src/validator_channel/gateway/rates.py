# SPDX-License-Identifier: Apache-2.0
"""A token bucket: a number of records per second in the long run, and a number at once."""

from __future__ import annotations


class TokenBucket:
    """``burst`` tokens at the start, and ``per_s`` new ones each second; ``now`` is in seconds of a monotonic clock."""

    def __init__(self, per_s: float, burst: int, now: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._tokens = float(burst)
        self._at = now

    def set_rate(self, per_s: float, burst: int, now: float) -> None:
        """Change rate and burst; tokens above the new burst are lost."""
        self._fill(now)
        self._per_s, self._burst = per_s, burst
        self._tokens = min(self._tokens, float(burst))

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until there is one."""
        self._fill(now)
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / self._per_s

    def _fill(self, now: float) -> None:
        self._tokens = min(float(self._burst), self._tokens + max(0.0, now - self._at) * self._per_s)
        self._at = now
