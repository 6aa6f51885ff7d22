# SPDX-License-Identifier: Apache-2.0
"""The chain's ``Configuration.ActiveConfig`` as the Router's configuration: other names, and some limits that the chain has no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from validator_relay_chain.errors import UndecodableBlock
from validator_relay_chain.metadata import Runtime

RENAMED: Final = {
    "hrmp_channel_max_capacity": "hrmp_channel_max_places",
    "hrmp_channel_max_total_size": "hrmp_channel_max_size",
}
"""Names that the chain uses today for limits of the Router."""

KEPT: Final = (
    "max_upward_queue_count",
    "max_upward_queue_size",
    "max_upward_message_size",
    "max_upward_message_num_per_candidate",
    "hrmp_max_message_num_per_candidate",
    "max_downward_message_size",
    "hrmp_max_parachain_outbound_channels",
    "hrmp_max_parachain_inbound_channels",
    "hrmp_max_parathread_outbound_channels",
    "hrmp_max_parathread_inbound_channels",
    "hrmp_sender_deposit",
    "hrmp_recipient_deposit",
    "hrmp_channel_max_message_size",
)
"""Names that both have."""

PLACE: Final = ("Configuration", "ActiveConfig")
CONFIGURATION: Final = ".".join(PLACE)

PRESET: Final = "polkadot-2023"
"""Supplies the limits that chains have no more, and all of them while the chain's do not decode."""

U32_MAX: Final = 2**32 - 1

WITH_SYSTEM: Final = ("Hrmp", "DefaultChannelSizeAndCapacityWithSystem")
"""The constant with size and places of a channel that ``establish_channel_with_system`` opens; older metadata does not show it."""


def decode_configuration(raw: bytes | None, runtime: Runtime) -> dict[str, int]:
    """Return the Router's limits of a value of ``ActiveConfig`` and of constants.

    Raises `UndecodableBlock` for no value, and for one that does not decode.
    """
    if raw is None:
        raise UndecodableBlock(f"runtime {runtime}: expected {CONFIGURATION}, found none")
    active = runtime.value(*PLACE, raw)
    if not isinstance(active, dict):
        raise UndecodableBlock(f"runtime {runtime}: {CONFIGURATION}: expected named fields, found none")
    return router_configuration(active) | _with_system(runtime.constant(*WITH_SYSTEM))


def _with_system(constant: bytes | None) -> dict[str, int]:
    """Return what the constant `WITH_SYSTEM` says; nothing if it is not there, or another one."""
    if constant is None or len(constant) != 8:
        return {}
    size, places = (int.from_bytes(constant[at : at + 4], "little") for at in (0, 4))
    return {"hrmp_system_channel_max_places": places, "hrmp_system_channel_max_message_size": size}


def router_configuration(active: Mapping[str, Any]) -> dict[str, int]:
    """Return the limits of a decoded ``ActiveConfig`` by the Router's names; a u32 of old runtimes may have been larger elsewhere."""
    found = {}
    for name, value in active.items():
        known = RENAMED.get(name, name if name in KEPT else None)
        if known is not None and isinstance(value, int):
            found[known] = value if known.endswith("deposit") else min(value, U32_MAX)
    return found


def changed(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return the limits of a configuration that differ from those before."""
    return {name: value for name, value in after.items() if before.get(name) != value}
