# SPDX-License-Identifier: Apache-2.0
"""Named configurations of the Router, so that a chain need not spell out seventeen numbers.

Source: router_rules 1.9. Deposits are in the smallest unit of the chain's token (Polkadot 10^-10 DOT, Kusama 10^-12 KSM). If that
table gives only a formula, they are the values that the chains had in storage.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from validator.core.limits import U32_MAX, U64_MAX
from validator.plugin.protocol_api import LimitsTable
from validator.protocols.router.configuration import LATER_FIELDS, MAXIMA, HostConfiguration

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
