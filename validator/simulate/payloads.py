# SPDX-License-Identifier: Apache-2.0
"""Payloads of random bytes, in the sizes of recorded Polkadot and Kusama messages."""

from __future__ import annotations

from random import Random
from typing import Final

# Quantiles of recorded sizes in bytes, each step as likely as the next (horizontal: median 120).
HORIZONTAL: Final = (40, 74, 95, 105, 113, 120, 128, 149, 161, 204, 1203)
UPWARD: Final = (53, 67, 100, 107)
DOWNWARD: Final = (39, 67, 86, 96, 98, 102, 140, 167)


def payload(rng: Random, size: int) -> str:
    """Return that many random bytes in hex."""
    return rng.randbytes(size).hex()


def draw_size(rng: Random, quantiles: tuple[int, ...], limit: int) -> int:
    """Return a size of the distribution, at most the limit."""
    step = rng.randrange(len(quantiles) - 1)
    return min(limit, rng.randint(quantiles[step], quantiles[step + 1]))


def draw_count(rng: Random, per_100: int) -> int:
    """Return a count whose mean is per_100 / 100."""
    if per_100 > 400:
        return per_100 // 100
    return sum(rng.random() * 400 < per_100 for _ in range(4))
