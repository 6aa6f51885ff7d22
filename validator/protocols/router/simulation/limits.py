# SPDX-License-Identifier: Apache-2.0
"""Initial configurations of simulated chains, by the names of `validator simulate --preset`, and the changes that governance may make.

The names differ from those of `validator.protocols.router.configuration`, because the simulator's limits are changed to make chains busier.
"""

from __future__ import annotations

from typing import Final

from validator.errors import UserError
from validator.simulate import SimulationSettings

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
