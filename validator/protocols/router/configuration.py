# SPDX-License-Identifier: Apache-2.0
"""The limits of a chain with the Router, by the names of the conformance format, and presets of real chains."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Final

from validator.core.limits import U32_MAX, U64_MAX, U128_MAX
from validator.core.types import Balance, SessionIndex, Weight
from validator.document import Node
from validator.plugin.protocol_api import LimitsTable

# --- configuration --------------------------------------------------------------------------------------------------------------------


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


# --- presets --------------------------------------------------------------------------------------------------------------------------
# Named configurations of the Router, so that a chain need not spell out seventeen numbers.
#
# Source: router_rules 1.9. Deposits are in the smallest unit of the chain's token (Polkadot 10^-10 DOT, Kusama 10^-12 KSM). If that
# table gives only a formula, they are the values that the chains had in storage.


NEVER: Final = U32_MAX
"""A request's TTL, in sessions, on chains that removed expiry."""

PRESETS: Final[dict[str, HostConfiguration]] = {
    # the limits that the unit tests of router_rules' sources use: small enough that a test reaches each of them at once
    "minimal": HostConfiguration(
        max_upward_message_num_per_candidate=2,
        max_upward_message_size=16,
        max_upward_queue_count=4,
        max_upward_queue_size=64,
        preferred_dispatchable_upward_messages_step_weight=1000,
        max_downward_message_size=1024,
        hrmp_max_message_num_per_candidate=2,
        hrmp_channel_max_places=2,
        hrmp_channel_max_message_size=8,
        hrmp_channel_max_size=16,
        hrmp_max_parachain_outbound_channels=2,
        hrmp_max_parathread_outbound_channels=1,
        hrmp_max_parachain_inbound_channels=2,
        hrmp_max_parathread_inbound_channels=1,
        hrmp_sender_deposit=100,
        hrmp_recipient_deposit=100,
        hrmp_open_request_ttl=3,
    ),
    "dev-2020-11": HostConfiguration(
        max_upward_message_num_per_candidate=5,
        max_upward_message_size=1024,
        max_upward_queue_count=8,
        max_upward_queue_size=8 * 1024,
        preferred_dispatchable_upward_messages_step_weight=4_000_000_000,
        max_downward_message_size=1024,
        hrmp_max_message_num_per_candidate=5,
        hrmp_channel_max_places=8,
        hrmp_channel_max_message_size=1024,
        hrmp_channel_max_size=8 * 1024,
        hrmp_max_parachain_outbound_channels=4,
        hrmp_max_parathread_outbound_channels=4,
        hrmp_max_parachain_inbound_channels=4,
        hrmp_max_parathread_inbound_channels=4,
        hrmp_sender_deposit=0,
        hrmp_recipient_deposit=0,
        hrmp_open_request_ttl=5,
    ),
    "polkadot-2021-09": HostConfiguration(
        max_upward_message_num_per_candidate=10,
        max_upward_message_size=51_200,
        max_upward_queue_count=10,
        max_upward_queue_size=51_200,
        preferred_dispatchable_upward_messages_step_weight=100_000_000_000,
        max_downward_message_size=51_200,
        hrmp_max_message_num_per_candidate=10,
        hrmp_channel_max_places=1000,
        hrmp_channel_max_message_size=102_400,
        hrmp_channel_max_size=102_400,
        hrmp_max_parachain_outbound_channels=10,
        hrmp_max_parathread_outbound_channels=0,
        hrmp_max_parachain_inbound_channels=10,
        hrmp_max_parathread_inbound_channels=0,
        hrmp_sender_deposit=201_824_000_000_000,
        hrmp_recipient_deposit=201_824_000_000_000,
        hrmp_open_request_ttl=NEVER,
    ),
    "kusama-2022": HostConfiguration(
        max_upward_message_num_per_candidate=10,
        max_upward_message_size=51_200,
        max_upward_queue_count=10,
        max_upward_queue_size=51_200,
        preferred_dispatchable_upward_messages_step_weight=100_000_000_000,
        max_downward_message_size=51_200,
        hrmp_max_message_num_per_candidate=10,
        hrmp_channel_max_places=1000,
        hrmp_channel_max_message_size=102_400,
        hrmp_channel_max_size=102_400,
        hrmp_max_parachain_outbound_channels=30,
        hrmp_max_parathread_outbound_channels=0,
        hrmp_max_parachain_inbound_channels=30,
        hrmp_max_parathread_inbound_channels=0,
        hrmp_sender_deposit=5_000_000_000_000,
        hrmp_recipient_deposit=5_000_000_000_000,
        hrmp_open_request_ttl=NEVER,
    ),
    # since 2023-05 upward messages get 20 % of a block's weight, here of 2 s
    "polkadot-2023": HostConfiguration(
        max_upward_message_num_per_candidate=16,
        max_upward_message_size=65_531,
        max_upward_queue_count=174_762,
        max_upward_queue_size=1024 * 1024,
        preferred_dispatchable_upward_messages_step_weight=400_000_000_000,
        max_downward_message_size=51_200,
        hrmp_max_message_num_per_candidate=10,
        hrmp_channel_max_places=1000,
        hrmp_channel_max_message_size=102_400,
        hrmp_channel_max_size=102_400,
        hrmp_max_parachain_outbound_channels=30,
        hrmp_max_parathread_outbound_channels=0,
        hrmp_max_parachain_inbound_channels=30,
        hrmp_max_parathread_inbound_channels=0,
        hrmp_sender_deposit=100_000_000_000,
        hrmp_recipient_deposit=100_000_000_000,
        hrmp_open_request_ttl=NEVER,
    ),
}

_WEIGHT_MAX: Final = 2**63 - 1
"""Maximum weight that an output record can hold (Avro ``long``)."""

LIMITS_TABLE: Final = LimitsTable(
    key="host_configuration",
    presets={
        name: {limit: value for limit, value in asdict(preset).items() if value is not None}
        for name, preset in PRESETS.items()
    },
    maxima={name: _WEIGHT_MAX if greatest == U64_MAX else greatest for name, greatest in MAXIMA.items()},
    optional=frozenset(LATER_FIELDS),
)
"""``[chains.<lane>.host_configuration]`` of `validator.toml`."""
