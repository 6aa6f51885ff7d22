# SPDX-License-Identifier: Apache-2.0
"""Who sends to whom, when, and how much."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from itertools import accumulate
from math import exp, log
from random import Random
from typing import Final

from validator.simulate.network.limits import BLOCK_BYTES_MAX
from validator.simulate.network.settings import NetworkSettings

LOGNORMAL_SIGMA: Final = 1.0
"""Standard deviation of the logarithm of a log-normal size: its 99th percentile is six times the mean."""


def channels_of(settings: NetworkSettings, draws: Random) -> list[tuple[int, int]]:
    """Return every channel as (sender, recipient), ascending: a channel's position is its identity."""
    paras = range(settings.paras)
    if settings.traffic == "one":
        return [(sender, 0) for sender in paras[1:]]
    if settings.traffic == "spread":
        offsets = draws.sample(paras[1:], settings.fan_out)
        return [
            (sender, recipient)
            for sender in paras
            for recipient in sorted((sender + each) % settings.paras for each in offsets)
        ]
    cumulative = list(accumulate(1 / (rank + 1) for rank in paras))
    return [
        (sender, recipient)
        for sender in paras
        for recipient in _by_popularity(settings.fan_out, sender, cumulative, draws)
    ]


def _by_popularity(count: int, sender: int, cumulative: list[float], draws: Random) -> list[int]:
    found: set[int] = set()
    while len(found) < count:
        recipient = bisect(cumulative, draws.random() * cumulative[-1])
        if recipient != sender:
            found.add(recipient)
    return sorted(found)


def size_draws(settings: NetworkSettings, draws: Random) -> Callable[[], int]:
    """Return a function that draws the bytes of a message: at least 1, at most what a sender may send in a block."""
    mean, random = settings.mean_bytes, draws.random

    def draw() -> float:
        match settings.sizes:
            case "uniform":
                return 2 * mean * random()
            case "lognormal":
                return mean * exp(draws.gauss(0, LOGNORMAL_SIGMA) - LOGNORMAL_SIGMA**2 / 2)
            case _:
                return mean

    def bounded() -> int:
        return max(1, min(BLOCK_BYTES_MAX, round(draw())))

    def exponential() -> int:  # the default, drawn once for each message
        size = int(-mean * log(1 - random())) + 1
        return size if size < BLOCK_BYTES_MAX else BLOCK_BYTES_MAX

    return exponential if settings.sizes == "exponential" else bounded


class Calendar:
    """The channels that send in each block; a channel's next block is drawn when it sends, so that idle channels cost nothing."""

    def __init__(self, channels: int, settings: NetworkSettings, draws: Random) -> None:
        self._random = draws.random
        self._blocks = settings.blocks
        chance = settings.messages_per_block / settings.channels_per_sender
        self._every_block = list(range(channels)) if chance >= 1 else None
        self._log_quiet = log(1 - chance) if chance < 1 else 0.0
        self._due: dict[int, list[int]] = {}
        if self._every_block is None:
            self._schedule(range(channels), 0)

    def due(self, block: int) -> list[int]:
        """Return the channels that send in the block, ascending. Each block is asked for once, in order."""
        if self._every_block is not None:
            return self._every_block
        due = self._due.pop(block, [])
        due.sort()
        self._schedule(due, block)
        return due

    def _schedule(self, channels: range | list[int], block: int) -> None:
        """Draw the next block of each channel: the gaps are geometric."""
        random, log_quiet, calendar = self._random, self._log_quiet, self._due
        for channel in channels:
            at = block + 1 + int(log(1 - random()) / log_quiet)
            if at <= self._blocks:
                calendar.setdefault(at, []).append(channel)
