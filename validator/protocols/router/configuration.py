# SPDX-License-Identifier: Apache-2.0
"""The Router's limits: the part of the relay chain's host configuration that concerns messages and channels."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from validator.core.limits import U32_MAX, U64_MAX, U128_MAX
from validator.core.types import Balance, SessionIndex, Weight
from validator.document import Node

XCM_VERSION_MAX: Final = 5
"""The newest version of XCM that wraps notifications."""

MESSAGE_QUEUE_HEAP_SIZE_DEFAULT: Final = 65_536
"""Bytes of a page of upward messages if the configuration does not say."""


@dataclass(frozen=True, slots=True)
class HostConfiguration:
    """The relay chain's limits for messages and channels, by the names of router.txt.

    Sizes are bytes of payload, counts are messages or channels, deposits are balances, and the TTL is a number of session boundaries.
    Every field of router.txt defaults to zero: nothing is allowed. Source: router.txt, router_rules 1.9, router_profiles 2.
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

    # --- not in router.txt (router_profiles 2, chain_2026 3.17); None means absent ---
    hrmp_notification_xcm_version: int | None = None
    hrmp_system_channel_max_places: int | None = None
    hrmp_system_channel_max_message_size: int | None = None
    message_queue_heap_size: int | None = None
    existential_deposit: Balance | None = None

    @property
    def notification_xcm_version(self) -> int:
        """The XCM version that wraps notifications; 0 if absent."""
        return self.hrmp_notification_xcm_version or 0

    @property
    def system_channel_max_places(self) -> int:
        """Places of a channel with a system para, in messages; those of any channel if absent."""
        places = self.hrmp_system_channel_max_places
        return self.hrmp_channel_max_places if places is None else places

    @property
    def system_channel_max_message_size(self) -> int:
        """Greatest message of a channel with a system para, in bytes; that of any channel if absent."""
        size = self.hrmp_system_channel_max_message_size
        return self.hrmp_channel_max_message_size if size is None else size

    @property
    def heap_size(self) -> int:
        """Bytes of a page of upward messages."""
        size = self.message_queue_heap_size
        return MESSAGE_QUEUE_HEAP_SIZE_DEFAULT if size is None else size

    @property
    def least_balance(self) -> Balance:
        """What an account must keep free when it leaves a deposit; 0 if absent."""
        return self.existential_deposit or 0


LATER_FIELDS: Final = (
    "hrmp_notification_xcm_version",
    "hrmp_system_channel_max_places",
    "hrmp_system_channel_max_message_size",
    "message_queue_heap_size",
    "existential_deposit",
)
"""The fields that router.txt does not know; they may be absent."""

CONFIGURATION_FIELDS: tuple[str, ...] = tuple(
    field.name for field in fields(HostConfiguration) if field.name not in LATER_FIELDS
)
"""The fields of router.txt."""

_WIDER = {
    "hrmp_notification_xcm_version": XCM_VERSION_MAX,
    "preferred_dispatchable_upward_messages_step_weight": U64_MAX,
    "hrmp_sender_deposit": U128_MAX,
    "hrmp_recipient_deposit": U128_MAX,
    "existential_deposit": U128_MAX,
}
MAXIMA: Final = {name: _WIDER.get(name, U32_MAX) for name in (*CONFIGURATION_FIELDS, *LATER_FIELDS)}
"""Maximum of each configuration field, in the order of `HostConfiguration`."""


def read_configuration(node: Node) -> HostConfiguration:
    """Read a configuration object; fields that are not given are zero, or absent. Raises `UserError`."""
    node.refuse_misspelt(tuple(MAXIMA))
    return HostConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in MAXIMA.items() if node.has(name)}
    )
