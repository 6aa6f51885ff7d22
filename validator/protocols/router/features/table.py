# SPDX-License-Identifier: Apache-2.0
"""The features of the Router's rules and the named profiles, as data. Source: router_profiles 1 to 3."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple


class Feature(NamedTuple):
    """One later rule. ``merged`` is the pull request or commit that brought it, ``says`` what holds while the feature is on.

    A feature that ``implies`` others is on only together with them. One that ``lasts`` cannot be switched off again.
    """

    name: str
    merged: str
    says: str
    implies: tuple[str, ...] = ()
    lasts: bool = False


FEATURES: Final[tuple[Feature, ...]] = (
    Feature(
        "hrmp_notifications",
        "polkadot#1900",
        "A request that succeeds queues a downward message for the other party: 07 asked, 08 accepted, 09 closing.",
    ),
    Feature(
        "versioned_notifications",
        "polkadot commit cb95b9a3cd",
        "Notifications are wrapped in the XCM version that the configuration names.",
        implies=("hrmp_notifications",),
    ),
    Feature("no_ttl", "polkadot#3543", "Unconfirmed requests neither age nor expire."),
    Feature(
        "cancel_open_request",
        "polkadot#3543",
        "Either party may cancel an unconfirmed request; the sender gets its deposit back.",
    ),
    Feature(
        "clean_open_channel_requests",
        "polkadot#3543",
        "A session change first removes every request with an outgoing party and returns the deposit of the party that stays.",
    ),
    Feature(
        "force_open_channel_plain",
        "polkadot#6155",
        "Governance may open a channel: a request by the sender and its acceptance in one call.",
    ),
    Feature(
        "force_open_channel",
        "polkadot#7389, polkadot#7477",
        "Governance may open a channel; an unconfirmed request for it is cancelled first.",
    ),
    Feature(
        "dmq_length_limit",
        "polkadot#6843",
        "A downward queue takes one message more than 32 MiB divided by the greatest message size, then no more.",
    ),
    Feature(
        "relaxed_watermark",
        "polkadot#7188",
        "A watermark that equals the relay parent is good, whatever the last one was.",
    ),
    Feature(
        "watermark_may_stay",
        "polkadot-sdk#8860",
        "A watermark may also stay where it is.",
        implies=("relaxed_watermark",),
    ),
    Feature(
        "message_queue",
        "polkadot#6271",
        "Upward messages wait in pages and are served in order of the paras' arrival; too heavy ones are set aside.",
        lasts=True,
    ),
    Feature(
        "dmp_by_relay_parent",
        "polkadot#5022",
        "A candidate must process a downward message only if its relay parent had seen the first one.",
    ),
    Feature(
        "single_channel_limit",
        "2023-08",
        "Parathreads may have as many channels as parachains.",
    ),
    Feature(
        "system_channels_without_deposits",
        "polkadot-sdk#1473, polkadot-sdk#3721",
        "Requests and acceptances take no deposit if either party is a system para (id below 2000).",
    ),
    Feature(
        "establish_system_channel",
        "polkadot-sdk#1473",
        "Anyone may open a channel between two system paras.",
    ),
    Feature(
        "poke_channel_deposits",
        "polkadot-sdk#1473",
        "Anyone may adjust a channel's deposits to the configuration of now.",
    ),
    Feature(
        "establish_channel_with_system",
        "polkadot-sdk#3721, polkadot-sdk#4332",
        "A para may open channels with a system para in both directions.",
    ),
    Feature(
        "downward_needs_head",
        "polkadot-sdk#6604",
        "A downward message to a para that is not valid is refused.",
    ),
    Feature(
        "ump_signals",
        "polkadot-sdk#5423",
        "What follows the first empty upward message are signals of the candidate, not messages.",
    ),
    Feature(
        "approved_peer_signal",
        "polkadot-sdk#7955",
        "A candidate may also signal the peer that it approves, besides the core that it selects.",
        implies=("ump_signals",),
    ),
    Feature(
        "forced_requests",
        "polkadot#2785",
        "Governance may process open and close requests at once, and close all channels of a para.",
    ),
    Feature(
        "as_the_chain",
        "polkadot-runtime-parachains 30.0.0",
        "Where this program chose otherwise than the relay chain, it does as the chain does.",
    ),
)
"""All features. Their order is part of stored states (`version_of`): new ones are appended."""

BY_NAME: Final[dict[str, Feature]] = {feature.name: feature for feature in FEATURES}

SEED: Final = "router/seed"
"""The profile of router.txt alone: what holds before the first entry of a chain's list, and without a list."""

_STEPS: Final[tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]] = (
    (SEED, (), ()),
    ("router/2020-11", ("hrmp_notifications",), ()),
    ("router/2021-02", ("versioned_notifications",), ()),
    ("router/2021-09", ("no_ttl", "cancel_open_request", "clean_open_channel_requests"), ()),
    ("router/2022-10", ("force_open_channel_plain",), ()),
    ("router/2023-04", ("dmq_length_limit",), ()),
    ("router/2023-05", ("relaxed_watermark",), ()),
    ("router/2023-06", ("force_open_channel",), ("force_open_channel_plain",)),
    ("router/2023-07", ("message_queue",), ()),
    ("router/2023-08", ("dmp_by_relay_parent", "single_channel_limit"), ()),
    (
        "router/2024-05",
        (
            "system_channels_without_deposits",
            "establish_system_channel",
            "poke_channel_deposits",
            "establish_channel_with_system",
        ),
        (),
    ),
    ("router/2024-12", ("downward_needs_head",), ()),
    ("router/2025-07", ("watermark_may_stay",), ()),
    ("router/2026-06", ("ump_signals", "approved_peer_signal", "forced_requests", "as_the_chain"), ()),
)
"""Each profile is the one before it, plus and minus these features."""


def _profiles() -> dict[str, frozenset[str]]:
    profiles: dict[str, frozenset[str]] = {}
    current: frozenset[str] = frozenset()
    for name, plus, minus in _STEPS:
        current = (current | frozenset(plus)) - frozenset(minus)
        profiles[name] = current
    return profiles


PROFILES: Final[dict[str, frozenset[str]]] = _profiles()
"""The features of each profile, oldest profile first."""

REVISION: Final = 0
"""Incremented by every change to what a feature or router.txt's rules do."""

_REVISION_SHIFT: Final = 24


def with_implied(features: Collection[str]) -> frozenset[str]:
    """Return features together with those that they imply."""
    found = set(features)
    for feature in reversed(FEATURES):  # an implied feature precedes the one that implies it
        if feature.name in found:
            found.update(feature.implies)
    return frozenset(found)


def version_of(features: Collection[str]) -> int:
    """Return the version (`core.rules.RulesEpoch.version`) of the rules with these features; 1 for those of router.txt alone."""
    mask = sum(1 << at for at, feature in enumerate(FEATURES) if feature.name in features)
    return 1 + mask + (REVISION << _REVISION_SHIFT)


def features_of(version: int) -> frozenset[str]:
    """Return the features that a version names. Raises ``ValueError`` if it names none of this program's rules."""
    mask = version - 1 - (REVISION << _REVISION_SHIFT)
    if not 0 <= mask < 1 << len(FEATURES):
        raise ValueError(f"rules of version {version}")
    features = frozenset(feature.name for at, feature in enumerate(FEATURES) if mask >> at & 1)
    if with_implied(features) != features:
        raise ValueError(f"rules of version {version}")
    return features
