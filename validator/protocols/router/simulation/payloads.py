# SPDX-License-Identifier: Apache-2.0
"""Payload sizes, taken from recorded Polkadot and Kusama messages."""

from __future__ import annotations

from typing import Final

from validator.simulate import Draws

# Quantiles of recorded sizes in bytes; all steps are equally likely (horizontal: median 120).
HORIZONTAL: Final = (40, 74, 95, 105, 113, 120, 128, 149, 161, 204, 1203)
UPWARD: Final = (53, 67, 100, 107)
DOWNWARD: Final = (39, 67, 86, 96, 98, 102, 140, 167)


def draw_size(rng: Draws, quantiles: tuple[int, ...], limit: int) -> int:
    """Draw a size from the distribution, capped at the limit."""
    step = rng.randrange(len(quantiles) - 1)
    return min(limit, rng.randint(quantiles[step], quantiles[step + 1]))
