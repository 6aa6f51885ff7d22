# SPDX-License-Identifier: Apache-2.0
"""The Router's limits: the part of the relay chain's host configuration that concerns messages and channels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from validator.core.limits import U32_MAX, U64_MAX, U128_MAX
from validator.core.types import Balance, SessionIndex, Weight
from validator.document import Node


@dataclass(frozen=True, slots=True)
class HostConfiguration:
    """The relay chain's limits for messages and channels, by the names of router.txt.

    Sizes are bytes of payload, counts are messages or channels, deposits are balances, and the TTL is a number of session boundaries.
    Every field defaults to zero: nothing is allowed. Source: router.txt, router_rules 1.9.
    """

    max_upward_message_num_per_candidate: int = 0
    max_upward_message_size: int = 0
    max_upward_queue_count: int = 0
    max_upward_queue_size: int = 0
    preferred_dispatchable_upward_messages_step_weight: Weight = 0
    max_downward_message_size: int = 0
    hrmp_max_message_num_per_candidate: int = 0
    hrmp_channel_max_places: int = 0
    hrmp_channel_max_message_size: int = 0
    hrmp_channel_max_size: int = 0
    hrmp_max_parachain_outbound_channels: int = 0
    hrmp_max_parathread_outbound_channels: int = 0
    hrmp_max_parachain_inbound_channels: int = 0
    hrmp_max_parathread_inbound_channels: int = 0
    hrmp_sender_deposit: Balance = 0
    hrmp_recipient_deposit: Balance = 0
    hrmp_open_request_ttl: SessionIndex = 0


CONFIGURATION_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(HostConfiguration))

_WIDER = {
    "preferred_dispatchable_upward_messages_step_weight": U64_MAX,
    "hrmp_sender_deposit": U128_MAX,
    "hrmp_recipient_deposit": U128_MAX,
}
MAXIMA: Final = {name: _WIDER.get(name, U32_MAX) for name in CONFIGURATION_FIELDS}
"""Maximum of each configuration field, in the order of `HostConfiguration`."""


def read_configuration(node: Node) -> HostConfiguration:
    """Read a configuration object; fields that are not given are zero. Raises `UserError`."""
    node.refuse_misspelt(CONFIGURATION_FIELDS)
    return HostConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in MAXIMA.items() if node.has(name)}
    )
