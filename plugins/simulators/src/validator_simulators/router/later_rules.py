# SPDX-License-Identifier: Apache-2.0
"""The later features of the Router's rules, as the naive model knows them: their names, the profiles, what holds at a height.

Source: router_profiles 1 to 3, chain_2026 1. The rules have their own table of the same data; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

FEATURES: Final = (
    "hrmp_notifications",
    "versioned_notifications",
    "no_ttl",
    "cancel_open_request",
    "clean_open_channel_requests",
    "force_open_channel_plain",
    "force_open_channel",
    "dmq_length_limit",
    "relaxed_watermark",
    "watermark_may_stay",
    "message_queue",
    "dmp_by_relay_parent",
    "single_channel_limit",
    "system_channels_without_deposits",
    "establish_system_channel",
    "poke_channel_deposits",
    "establish_channel_with_system",
    "downward_needs_head",
    "ump_signals",
    "approved_peer_signal",
    "forced_requests",
    "as_the_chain",
)

IMPLIES: Final = {
    "versioned_notifications": "hrmp_notifications",
    "watermark_may_stay": "relaxed_watermark",
    "approved_peer_signal": "ump_signals",
}

LASTING: Final = "message_queue"
"""The feature that no later entry may take away."""

PROFILES: Final[dict[str, frozenset[str]]] = {"router/seed": frozenset()}
for _name, _plus, _minus in (
    ("router/2020-11", {"hrmp_notifications"}, ""),
    ("router/2021-02", {"versioned_notifications"}, ""),
    ("router/2021-09", {"no_ttl", "cancel_open_request", "clean_open_channel_requests"}, ""),
    ("router/2022-10", {"force_open_channel_plain"}, ""),
    ("router/2023-04", {"dmq_length_limit"}, ""),
    ("router/2023-05", {"relaxed_watermark"}, ""),
    ("router/2023-06", {"force_open_channel"}, "force_open_channel_plain"),
    ("router/2023-07", {"message_queue"}, ""),
    ("router/2023-08", {"dmp_by_relay_parent", "single_channel_limit"}, ""),
    (
        "router/2024-05",
        {
            "system_channels_without_deposits",
            "establish_system_channel",
            "poke_channel_deposits",
            "establish_channel_with_system",
        },
        "",
    ),
    ("router/2024-12", {"downward_needs_head"}, ""),
    ("router/2025-07", {"watermark_may_stay"}, ""),
    ("router/2026-06", {"ump_signals", "approved_peer_signal", "forced_requests", "as_the_chain"}, ""),
):
    PROFILES[_name] = (PROFILES[list(PROFILES)[-1]] | _plus) - {_minus}

DEFAULTS: Final[dict[str, int]] = {
    "hrmp_notification_xcm_version": 0,
    "message_queue_heap_size": 65536,
    "existential_deposit": 0,
}
"""Later configuration keys, with the value of one that is absent (2)."""

STANDS_FOR: Final = {
    "hrmp_system_channel_max_places": "hrmp_channel_max_places",
    "hrmp_system_channel_max_message_size": "hrmp_channel_max_message_size",
}
"""Later configuration keys, with the one whose value counts if they are absent (2)."""

REQUESTS: Final[dict[str, tuple[str, ...]]] = {
    "cancel_open_request": ("cancel_open_request",),
    "force_open_channel": ("force_open_channel_plain", "force_open_channel"),
    "establish_system_channel": ("establish_system_channel",),
    "establish_channel_with_system": ("establish_channel_with_system",),
    "poke_channel_deposits": ("poke_channel_deposits",),
    "service_overweight": ("message_queue",),
    "force_process_open": ("forced_requests",),
    "force_process_close": ("forced_requests",),
    "force_clean": ("forced_requests",),
}
"""The later kinds of requests, and the features of which one must hold."""


def is_system(para: int) -> bool:
    """Return whether a para is a system para (3.12)."""
    return para < 2000


def with_implied(features: Iterable[str]) -> frozenset[str]:
    """Return the features and those that they imply."""
    given = set(features)
    return frozenset(given | {IMPLIES[feature] for feature in given if feature in IMPLIES})


def features_at(rules: Sequence[Mapping[str, Any]], block: int) -> frozenset[str]:
    """Return the features in force at a block: those of the last entry that begins at or before it, none before the first (1)."""
    begun = [entry for entry in rules if entry["from_block"] <= block]
    if not begun:
        return frozenset()
    if "profile" in begun[-1]:
        return PROFILES[begun[-1]["profile"]]
    return with_implied(begun[-1]["features"])


def limit_of(config: Mapping[str, int], key: str) -> int:
    """Return the value of a configuration key, or what counts if it is absent."""
    if key in config:
        return config[key]
    return DEFAULTS[key] if key in DEFAULTS else config[STANDS_FOR.get(key, key)]
