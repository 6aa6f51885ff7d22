# SPDX-License-Identifier: Apache-2.0
"""A chain that lives through every profile of the Router's rules: where they begin, and how its limits change."""

from __future__ import annotations

from typing import Final

from validator.protocols.router.simulation.later_rules import PROFILES
from validator.simulate import Draws, Json, SimulationSettings

LONG_DOWNWARD_EVERY: Final = 6
"""In one session of this many, a few downward messages fill a queue (dmq_length_limit)."""
LONG_DOWNWARD_SIZE: Final = 1 << 23
"""The greatest downward message of such a session: a queue takes 33554432 / 2**23 messages and one more."""

CHANGES: Final[dict[str, tuple[int, ...]]] = {
    "hrmp_notification_xcm_version": (0, 1, 2, 3, 4, 5),
    "hrmp_system_channel_max_places": (2, 3, 3, 9),
    "hrmp_system_channel_max_message_size": (150, 200, 200, 1000),
    "message_queue_heap_size": (100, 250, 400, 65536),
    "max_downward_message_size": (180, 180, 128, 8),
    "existential_deposit": (0, 0, 1, 50),
    "hrmp_sender_deposit": (100, 100, 0, 5000),
    "hrmp_recipient_deposit": (90, 90, 0, 5000),
}
"""What session changes may set besides, or instead, on such a chain: the later keys, and values that later rules look at."""


def rules_of_history(settings: SimulationSettings, rng: Draws) -> list[Json]:
    """Return the chain's rules by height: each profile after the first begins in its part of the blocks, at a drawn place."""
    profiles = list(PROFILES)
    length = max(1, settings.blocks // len(profiles))
    starts = [settings.first_block + part * length + rng.randrange(length // 3 + 1) for part in range(len(profiles))]
    return [{"from_block": start, "profile": name} for start, name in zip(starts[1:], profiles[1:], strict=True)]
