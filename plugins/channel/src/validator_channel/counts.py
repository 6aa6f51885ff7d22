# SPDX-License-Identifier: Apache-2.0
"""What a session counts. Source: channel_rules 5.2 "Metrics"."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Frames in both directions, and those that were not plain progress.

    ``stale`` are the frames that are charged to the budget: duplicates, late answers, unknown topics. ``refused`` are our non-fatal ERRORs
    by code.
    """

    frames_received: int = 0
    frames_sent: int = 0
    retransmissions: int = 0
    stale: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Add the counts of another session."""
        self.frames_received += other.frames_received
        self.frames_sent += other.frames_sent
        self.retransmissions += other.retransmissions
        self.stale += other.stale
        self.refused.update(other.refused)

    def flat(self) -> dict[str, int]:
        """Return the counts under flat names."""
        flat = {
            "frames_received": self.frames_received,
            "frames_sent": self.frames_sent,
            "retransmissions": self.retransmissions,
            "stale": self.stale,
        }
        return flat | {f"refused.{code}": count for code, count in self.refused.items()}

    def line(self) -> str:
        """Return the counts of frames for a log line."""
        return f"received={self.frames_received} sent={self.frames_sent} retransmitted={self.retransmissions} stale={self.stale}"
