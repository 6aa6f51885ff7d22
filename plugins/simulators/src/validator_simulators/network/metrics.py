# SPDX-License-Identifier: Apache-2.0
"""What a run counts, and the figures that follow from the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Distribution:
    """Mean, percentiles (nearest rank) and greatest value; all 0 if nothing was measured."""

    mean: float
    p50: int
    p99: int
    max: int


def distribution(counts: Counter[int]) -> Distribution:
    """Return the distribution of values, each given with its number."""
    total = counts.total()
    if not total:
        return Distribution(0.0, 0, 0, 0)
    mean = sum(value * count for value, count in counts.items()) / total
    return Distribution(mean, percentile(counts, 50), percentile(counts, 99), max(counts))


def percentile(counts: Counter[int], percent: int) -> int:
    """Return the least value that at least ``percent`` of all values do not exceed."""
    rank = -(-counts.total() * percent // 100)
    for value in sorted(counts):
        rank -= counts[value]
        if rank <= 0:
            return value
    raise ValueError("expected at least one value")


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index: 1 if all shares are equal, 1 divided by their number if one has everything, 1 if there is nothing to share.

    Jain, Chiu, Hawe: A Quantitative Measure of Fairness, DEC-TR-301, 1984.
    """
    squares = sum(share * share for share in shares)
    return float(sum(shares) ** 2 / (len(shares) * squares)) if squares else 1.0


def mean(values: Iterable[float], *, default: float) -> float:
    """Return the mean of the values, or ``default`` if there are none."""
    found = list(values)
    return sum(found) / len(found) if found else default


@dataclass(slots=True)
class Tally:
    """The counts of recipients of one kind. Lags are in blocks, deliveries in milliseconds, sizes in bytes."""

    offered: int = 0
    offered_bytes: int = 0
    refused_full: int = 0  # the channel has K unread messages
    refused_size: int = 0  # the sender has sent its bytes of this block
    queued: int = 0
    queued_bytes: int = 0
    acknowledged: int = 0
    acknowledged_bytes: int = 0
    requests: int = 0
    transferred_bytes: int = 0
    builds: int = 0  # blocks that a recipient with unread messages could build
    stalled: int = 0  # those in which it could acknowledge nothing
    unread_most: int = 0
    unread_blocks: int = 0  # sum of unread messages over all blocks
    lags: Counter[int] = field(default_factory=Counter)
    deliveries: Counter[int] = field(default_factory=Counter)

    def __add__(self, other: Tally) -> Tally:
        added = Tally()
        for name in self.__slots__:
            mine, others = getattr(self, name), getattr(other, name)
            setattr(added, name, max(mine, others) if name == "unread_most" else mine + others)
        return added
