# SPDX-License-Identifier: Apache-2.0
"""How simulated chains of the Router begin: limits by the names of `validator simulate --preset`, and the changes that governance may make;
topologies of real relay chains; sizes of payloads; the heights at which the rules of a long chain change.

The names of limits differ from those of `validator.protocols.router.presets`, because the simulator's limits are changed to make
chains busier.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from validator.errors import UserError
from validator_simulators import Draws, Json, SimulationSettings
from validator_simulators.router.later_rules import PROFILES

# Quantiles of recorded sizes in bytes; all steps are equally likely (horizontal: median 120).
HORIZONTAL: Final = (40, 74, 95, 105, 113, 120, 128, 149, 161, 204, 1203)
UPWARD: Final = (53, 67, 100, 107)
DOWNWARD: Final = (39, 67, 86, 96, 98, 102, 140, 167)


def draw_size(rng: Draws, quantiles: tuple[int, ...], limit: int) -> int:
    """Draw a size from the distribution, capped at the limit."""
    step = rng.randrange(len(quantiles) - 1)
    return min(limit, rng.randint(quantiles[step], quantiles[step + 1]))


FIRST_MADE_UP_PARA = 4000  # beyond the para ids of the recorded chains
HUBS = 5


def recorded_channels(chain: str) -> list[tuple[int, int]]:
    """Return the (sender, recipient) pairs recorded on a real relay chain, ascending."""
    tables = json.loads(Path(__file__).with_name("topology.json").read_text(encoding="utf-8"))
    if chain == "source" or chain not in tables:
        raise UserError(f"topology: expected one of {', '.join(sorted(tables.keys() - {'source'}))}, found {chain!r}")
    return [(sender, recipient) for sender, recipient in tables[chain]]


def by_degree(channels: list[tuple[int, int]]) -> list[int]:
    """Return the paras of the channels, the busiest first."""
    degree: dict[int, int] = {}
    for pair in channels:
        for para in pair:
            degree[para] = degree.get(para, 0) + 1
    return sorted(degree, key=lambda para: (-degree[para], para))


def channels_to_hubs(para: int, hubs: list[int], rng: Draws) -> list[tuple[int, int]]:
    """Return a new para's channels: both directions, to the busiest hub and to one other."""
    partners = [hubs[0], hubs[rng.randrange(1, len(hubs))]] if len(hubs) > 1 else hubs
    return [pair for hub in partners for pair in ((para, hub), (hub, para))]


def topology(chain: str, paras: int, rng: Draws, at_least: int = 0) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the given number of paras, busiest first, and their channels.

    Recorded paras come first; further paras connect to the hubs. A para with fewer than `at_least` recipients also sends to its
    successors in a ring.
    """
    recorded = recorded_channels(chain)
    chosen = by_degree(recorded)[:paras]
    channels = [pair for pair in recorded if pair[0] in chosen and pair[1] in chosen]
    hubs = chosen[:HUBS]
    for para in range(FIRST_MADE_UP_PARA, FIRST_MADE_UP_PARA + paras - len(chosen)):
        chosen.append(para)
        channels.extend(channels_to_hubs(para, hubs, rng))
    for position, sender in enumerate(chosen):
        recipients = [recipient for origin, recipient in channels if origin == sender]
        for step in range(1, len(chosen)):
            recipient = chosen[(position + step) % len(chosen)]
            if len(recipients) < at_least and recipient not in recipients:
                recipients.append(recipient)
                channels.append((sender, recipient))
    return chosen, channels


# The limits of preset polkadot-2021-09 (router_rules.md 1.9), except the TTL, which is Kusama's of that year: Polkadot had
# stopped expiring requests by then, but the Router has not. The deposit is deposit(1004, 100 KiB) in plancks.
POLKADOT: Final[dict[str, int]] = {
    "max_upward_queue_count": 10,
    "max_upward_queue_size": 51200,
    "max_upward_message_size": 51200,
    "max_upward_message_num_per_candidate": 10,
    "max_downward_message_size": 51200,
    "preferred_dispatchable_upward_messages_step_weight": 100_000_000_000,
    "hrmp_max_message_num_per_candidate": 10,
    "hrmp_channel_max_places": 1000,
    "hrmp_channel_max_size": 102400,
    "hrmp_channel_max_message_size": 102400,
    "hrmp_max_parachain_outbound_channels": 10,
    "hrmp_max_parachain_inbound_channels": 10,
    "hrmp_max_parathread_outbound_channels": 0,
    "hrmp_max_parathread_inbound_channels": 0,
    "hrmp_sender_deposit": 201_824_000_000_000,
    "hrmp_recipient_deposit": 201_824_000_000_000,
    "hrmp_open_request_ttl": 2,
}

# Limits just large enough for messages of real sizes, so that a chain reaches each of them within a few blocks.
TIGHT: Final[dict[str, int]] = {
    "max_upward_queue_count": 4,
    "max_upward_queue_size": 320,
    "max_upward_message_size": 112,
    "max_upward_message_num_per_candidate": 3,
    "max_downward_message_size": 180,
    "preferred_dispatchable_upward_messages_step_weight": 1000,
    "hrmp_max_message_num_per_candidate": 3,
    "hrmp_channel_max_places": 4,
    "hrmp_channel_max_size": 800,
    "hrmp_channel_max_message_size": 400,
    "hrmp_max_parachain_outbound_channels": 4,
    "hrmp_max_parachain_inbound_channels": 4,
    "hrmp_max_parathread_outbound_channels": 1,
    "hrmp_max_parathread_inbound_channels": 1,
    "hrmp_sender_deposit": 100,
    "hrmp_recipient_deposit": 90,
    "hrmp_open_request_ttl": 2,
}

LIMITS: Final[dict[str, dict[str, int]]] = {"polkadot": POLKADOT, "tight": TIGHT}

BUDGET: Final = "preferred_dispatchable_upward_messages_step_weight"

# A chain's first change: the later limits of Polkadot and Kusama, without which their hubs could not open their channels.
FIRST_CHANGE: Final[dict[str, dict[str, int]]] = {
    "polkadot": {"hrmp_max_parachain_outbound_channels": 30, "hrmp_max_parachain_inbound_channels": 30},
    "tight": {"hrmp_max_parachain_outbound_channels": 6, "hrmp_max_parachain_inbound_channels": 6},
}

# The values from which a configuration change picks, by field; a value that is listed twice is picked twice as often.
CHANGES: Final[dict[str, dict[str, tuple[int, ...]]]] = {
    "polkadot": {
        "max_upward_queue_count": (10, 10, 6, 20),
        "max_upward_queue_size": (51200, 51200, 1024),
        "max_upward_message_size": (51200, 51200, 512),
        "max_upward_message_num_per_candidate": (10, 10, 5),
        "max_downward_message_size": (51200, 51200, 256),
        "preferred_dispatchable_upward_messages_step_weight": (100_000_000_000, 100_000_000_000, 20_000_000_000, 0),
        "hrmp_max_message_num_per_candidate": (10, 10, 5),
        "hrmp_channel_max_places": (1000, 1000, 25),
        "hrmp_channel_max_size": (102400, 102400, 2048),
        "hrmp_channel_max_message_size": (102400, 102400, 1300),
        "hrmp_max_parachain_outbound_channels": (30, 30, 20),
        "hrmp_max_parachain_inbound_channels": (30, 30, 20),
        "hrmp_max_parathread_outbound_channels": (0, 0, 4),
        "hrmp_max_parathread_inbound_channels": (0, 0, 4),
        "hrmp_sender_deposit": (201_824_000_000_000, 100_000_000_000),
        "hrmp_recipient_deposit": (201_824_000_000_000, 100_000_000_000),
        "hrmp_open_request_ttl": (2, 2, 1, 3),
    },
    "tight": {
        "max_upward_queue_count": (4, 4, 2, 6),
        "max_upward_queue_size": (320, 320, 240),
        "max_upward_message_size": (112, 112, 96),
        "max_upward_message_num_per_candidate": (3, 3, 2),
        "max_downward_message_size": (180, 180, 128),
        "preferred_dispatchable_upward_messages_step_weight": (1000, 1000, 300, 0),
        "hrmp_max_message_num_per_candidate": (3, 3, 2),
        "hrmp_channel_max_places": (4, 4, 2),
        "hrmp_channel_max_size": (800, 800, 400),
        "hrmp_channel_max_message_size": (400, 400, 200),
        "hrmp_max_parachain_outbound_channels": (6, 6, 4),
        "hrmp_max_parachain_inbound_channels": (6, 6, 4),
        "hrmp_max_parathread_outbound_channels": (1, 1, 0),
        "hrmp_max_parathread_inbound_channels": (1, 1, 2),
        "hrmp_sender_deposit": (100, 100, 0),
        "hrmp_recipient_deposit": (90, 90, 0),
        "hrmp_open_request_ttl": (2, 2, 1, 3),
    },
}


def limits_name(settings: SimulationSettings) -> str:
    """Return the name of a chain's initial limits. Raises `UserError` for an unknown name."""
    name = "polkadot" if settings.preset is None else settings.preset
    if name not in LIMITS:
        raise UserError(f"preset: expected one of {', '.join(sorted(LIMITS))}, found {name!r}")
    return name


LONG_DOWNWARD_EVERY: Final = 6
"""In one session of this many, a few downward messages fill a queue (dmq_length_limit)."""
LONG_DOWNWARD_SIZE: Final = 1 << 23
"""The greatest downward message of such a session: a queue takes 33554432 / 2**23 messages and one more."""

HISTORY_CHANGES: Final[dict[str, tuple[int, ...]]] = {
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
