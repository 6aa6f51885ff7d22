# SPDX-License-Identifier: Apache-2.0
"""The Router's rules that a runtime has, as features, found in its metadata where it shows them and else by its version.

Versions are numbers of the Fellowship's runtimes (Polkadot, Kusama and their test net Paseo). Other chains run other builds; for them a
number counts that their first release with the rule had, or none.

Notifications of requests are never among the features: on a lane that follows a chain they arrive as downward messages like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from validator_relay_chain.metadata import Runtime

FELLOWSHIP: Final = frozenset({"polkadot", "kusama", "paseo", "paseo-testnet"})


class Since(NamedTuple):
    """The first version of the runtime with a rule that metadata does not show."""

    fellowship: int
    others: int


RELAXED_WATERMARK: Final = Since(9_430, 9_430)
FORCE_OPEN_REPLACES: Final = Since(1_000_000, 1_000_000)
DMP_BY_RELAY_PARENT: Final = Since(1_000_000, 1_000_000)
DOWNWARD_NEEDS_HEAD: Final = Since(1_004_000, 1_017_000)
WATERMARK_MAY_STAY: Final = Since(2_000_000, 1_020_000)
APPROVED_PEER_SIGNAL: Final = Since(2_000_000, 1_019_000)

SIGNALS: Final = "ump_signals"


def _since(versions: Since) -> Callable[[Runtime], bool]:
    def holds(runtime: Runtime) -> bool:
        first = versions.fellowship if runtime.spec_name in FELLOWSHIP else versions.others
        return runtime.spec_version >= first

    return holds


def _call(name: str) -> Callable[[Runtime], bool]:
    return lambda runtime: runtime.has_call("Hrmp", name)


_FEATURES: Final[dict[str, Callable[[Runtime], bool]]] = {
    "no_ttl": _call("hrmp_cancel_open_request"),
    "cancel_open_request": _call("hrmp_cancel_open_request"),
    "clean_open_channel_requests": _call("hrmp_cancel_open_request"),
    "force_open_channel_plain": lambda runtime: (
        _call("force_open_hrmp_channel")(runtime) and not _since(FORCE_OPEN_REPLACES)(runtime)
    ),
    "force_open_channel": lambda runtime: (
        _call("force_open_hrmp_channel")(runtime) and _since(FORCE_OPEN_REPLACES)(runtime)
    ),
    "dmq_length_limit": lambda runtime: runtime.has("Dmp", "DeliveryFeeFactor"),
    "relaxed_watermark": _since(RELAXED_WATERMARK),
    "message_queue": lambda runtime: runtime.has("MessageQueue", "BookStateFor"),
    "dmp_by_relay_parent": _since(DMP_BY_RELAY_PARENT),
    "single_channel_limit": lambda runtime: "hrmp_max_parathread_inbound_channels" not in runtime.configuration_fields,
    "system_channels_without_deposits": _call("establish_system_channel"),
    "establish_system_channel": _call("establish_system_channel"),
    "poke_channel_deposits": _call("poke_channel_deposits"),
    "establish_channel_with_system": _call("establish_channel_with_system"),
    "downward_needs_head": _since(DOWNWARD_NEEDS_HEAD),
    "watermark_may_stay": _since(WATERMARK_MAY_STAY),
    SIGNALS: lambda runtime: runtime.has_signals,
    "approved_peer_signal": lambda runtime: runtime.has_signals and _since(APPROVED_PEER_SIGNAL)(runtime),
    "forced_requests": _call("force_clean_hrmp"),
    "as_the_chain": lambda runtime: runtime.has_signals,
}


def features_of(runtime: Runtime) -> list[str]:
    """Return the features of a runtime, in the order of the table of profiles."""
    return [name for name, holds in _FEATURES.items() if holds(runtime)]
