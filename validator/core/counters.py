# SPDX-License-Identifier: Apache-2.0
"""How many records a lane has had, and how they ended."""

from __future__ import annotations

from dataclasses import dataclass

COUNTERS = ("consumed", "accepted", "rejected", "duplicate", "dead", "waiting")
"""Every counter, in storage order: another order or another counter needs another version of the stored page."""


@dataclass(slots=True)
class Counters:
    """How many records reached the lane, and how they ended. Invariant: ``consumed`` is the sum of the others."""

    consumed: int = 0
    accepted: int = 0
    rejected: int = 0
    duplicate: int = 0
    dead: int = 0
    waiting: int = 0

    def in_order(self) -> tuple[int, ...]:
        """Return the counters in the order of `COUNTERS`."""
        return tuple(getattr(self, name) for name in COUNTERS)
