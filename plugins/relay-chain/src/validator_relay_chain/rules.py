# SPDX-License-Identifier: Apache-2.0
"""The Router's rules that a runtime has, as features, found in its metadata where it shows them and else by its version.

Versions are numbers of the Fellowship's runtimes (Polkadot, Kusama and their test net Paseo), or of Westend and Rococo. Other chains run
other builds, with their own numbers: each is taken for the Fellowship's version that first had the youngest thing that its metadata shows.

Notifications of requests are never among the features: on a lane that follows a chain they arrive as downward messages like any other.
Source: chain_2026 section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from validator_relay_chain.metadata import Runtime

FELLOWSHIP: Final = frozenset({"polkadot", "kusama", "paseo", "paseo-testnet"})
TEST_NETS: Final = frozenset({"westend", "rococo"})

SIGNALS: Final = "ump_signals"


class Since(NamedTuple):
    """The first version of the runtime with a rule that metadata does not show."""

    fellowship: int
    test_nets: int


UNSEEN: Final = {
    "relaxed_watermark": Since(9_430, 9_430),
    "force_open_channel": Since(1_000_000, 1_000_000),
    "dmp_by_relay_parent": Since(1_000_000, 1_000_000),
    "downward_needs_head": Since(1_004_000, 1_017_000),
    "approved_peer_signal": Since(2_000_000, 1_019_000),
    "watermark_may_stay": Since(2_000_000, 1_020_000),
}
"""Rules that metadata does not show. Two need something that it does show, besides: ``force_open_channel`` the call, where
``force_open_channel_plain`` holds before it, and ``approved_peer_signal`` signals."""

Shows = Callable[[Runtime], bool]


def _call(name: str) -> Shows:
    return lambda runtime: runtime.has_call("Hrmp", name)


_FORCES_OPEN: Final = _call("force_open_hrmp_channel")


def _has_signals(runtime: Runtime) -> bool:
    return runtime.has_signals


def _has_one_limit(runtime: Runtime) -> bool:
    return "hrmp_max_parathread_inbound_channels" not in runtime.configuration_fields


_SEEN: Final[dict[str, Shows]] = {
    "no_ttl": _call("hrmp_cancel_open_request"),
    "cancel_open_request": _call("hrmp_cancel_open_request"),
    "clean_open_channel_requests": _call("hrmp_cancel_open_request"),
    "force_open_channel_plain": _FORCES_OPEN,
    "dmq_length_limit": lambda runtime: runtime.has("Dmp", "DeliveryFeeFactor"),
    "message_queue": lambda runtime: runtime.has("MessageQueue", "BookStateFor"),
    "single_channel_limit": _has_one_limit,
    "system_channels_without_deposits": _call("establish_system_channel"),
    "establish_system_channel": _call("establish_system_channel"),
    "poke_channel_deposits": _call("poke_channel_deposits"),
    "establish_channel_with_system": _call("establish_channel_with_system"),
    SIGNALS: _has_signals,
    "forced_requests": _call("force_clean_hrmp"),
    "as_the_chain": _has_signals,
}

_ORDER: Final = (
    "no_ttl", "cancel_open_request", "clean_open_channel_requests", "force_open_channel_plain", "force_open_channel",
    "dmq_length_limit", "relaxed_watermark", "message_queue", "dmp_by_relay_parent", "single_channel_limit",
    "system_channels_without_deposits", "establish_system_channel", "poke_channel_deposits", "establish_channel_with_system",
    "downward_needs_head", "watermark_may_stay", SIGNALS, "approved_peer_signal", "forced_requests", "as_the_chain",
)  # fmt: skip
"""That of the table of profiles."""

_TAKEN_FOR: Final[tuple[tuple[int, str, Shows], ...]] = (
    (2_000_000, "pages of downward messages", lambda runtime: runtime.has_downward_pages),
    (2_000_000, "scheduling parents", lambda runtime: runtime.has_scheduling_parents),
    (1_004_000, "signals", _has_signals),
    (1_003_000, "the call establish_channel_with_system", _call("establish_channel_with_system")),
    (1_000_000, "minimum_backing_votes", lambda runtime: "minimum_backing_votes" in runtime.configuration_fields),
    (9_430, "one limit of channels for all paras", _has_one_limit),
)
"""The version that a runtime with other numbers is taken for, by the youngest thing that its metadata shows."""


def features_of(runtime: Runtime, before: Collection[str] = ()) -> list[str]:
    """Return the features of a runtime, in the order of the table of profiles.

    ``before`` are those that its lane had: of a chain whose versions are not known, what was there and metadata does not show stays.
    """
    held = {name for name, shows in _SEEN.items() if shows(runtime)} | _unseen(runtime, before)
    if "force_open_channel" in held:
        if "force_open_channel_plain" in held:
            held.remove("force_open_channel_plain")
        else:
            held.remove("force_open_channel")
    if SIGNALS not in held:
        held.discard("approved_peer_signal")
    return [name for name in _ORDER if name in held]


def guess_of(runtime: Runtime) -> str | None:
    """Say what the features of a runtime rest on if its versions are not known; None if they are."""
    if runtime.spec_name in FELLOWSHIP | TEST_NETS:
        return None
    version, youngest = _taken_for(runtime)
    return (
        f"no version of {runtime.spec_name} is known here: since its metadata shows {youngest}, what it does not show is guessed "
        f"from polkadot {version}"
    )


def _unseen(runtime: Runtime, before: Collection[str]) -> set[str]:
    if runtime.spec_name in FELLOWSHIP:
        return {name for name, since in UNSEEN.items() if since.fellowship <= runtime.spec_version}
    if runtime.spec_name in TEST_NETS:
        return {name for name, since in UNSEEN.items() if since.test_nets <= runtime.spec_version}
    version, _ = _taken_for(runtime)
    return {name for name, since in UNSEEN.items() if name in before or since.fellowship <= version}


def _taken_for(runtime: Runtime) -> tuple[int, str]:
    found = ((version, name) for version, name, shows in _TAKEN_FOR if shows(runtime))
    return next(found, (0, "nothing younger"))
