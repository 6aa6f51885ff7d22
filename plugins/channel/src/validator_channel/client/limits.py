# SPDX-License-Identifier: Apache-2.0
"""Every limit of a client, with its unit."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

CONFIG_BYTES_MAX: Final = 65_536
"""Bytes of a client's configuration file."""
GATEWAYS_MAX: Final = 16
"""Gateways that a client may try in turn."""
LINE_BYTES_MAX: Final = 1_048_576
"""Bytes of one line that the command submits."""
LINES_SHOWN_MAX: Final = 10
"""Numbers of lines in the message about those that are not acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientLimits:
    """Limits of a client."""

    pending_max: int = 1_024
    """Records that are submitted and not acknowledged; one more waits."""
    queue_max: int = 1_024
    """Records of one watched topic that are received and not taken; then the gateway waits."""
    pause_s_min: float = 0.2
    """Seconds before the second attempt to connect; each further pause is twice as long."""
    pause_s_max: float = 30.0
    """Seconds that a pause never exceeds."""
    keep_alive_s: float = 20.0
    """Seconds between two messages that find out whether the gateway still answers."""
    attempts_max: int | None = None
    """Attempts to connect in a row before the client gives up; None: it never does."""

    def pause_s(self, failures: int, random: Random) -> float:
        """Return the seconds before the next attempt after a number of failures in a row, up to half of them random."""
        longest = min(self.pause_s_max, self.pause_s_min * 2.0 ** min(failures - 1, 32))
        return longest * (0.5 + random.random() / 2)
