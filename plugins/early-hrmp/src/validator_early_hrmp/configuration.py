# SPDX-License-Identifier: Apache-2.0
"""The relay chain's limits for channels, by the names of the conformance format.

All channels share them. The text has no limits for a single channel, for a message's size or for a candidate's number of messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from validator.plugin.protocol_api import U32_MAX, U128_MAX, Balance, Node, SessionIndex


@dataclass(frozen=True, slots=True)
class EarlyHrmpConfiguration:
    """Counts are messages or channels, sizes are bytes of payload, deposits are balances, the TTL is a number of session boundaries.

    Every field defaults to zero: nothing is allowed. Source: early_hrmp.txt "configured limits", xcmp_rules 1.3.
    """

    hrmp_channel_max_places: int = 0
    hrmp_channel_max_size: int = 0
    hrmp_max_outbound_channels: int = 0
    hrmp_sender_deposit: Balance = 0
    hrmp_recipient_deposit: Balance = 0
    hrmp_open_request_ttl: SessionIndex = 0


MAXIMA: Final[Mapping[str, int]] = {
    "hrmp_channel_max_places": U32_MAX,
    "hrmp_channel_max_size": U32_MAX,
    "hrmp_max_outbound_channels": U32_MAX,
    "hrmp_sender_deposit": U128_MAX,
    "hrmp_recipient_deposit": U128_MAX,
    "hrmp_open_request_ttl": U32_MAX,
}
"""Maximum of each limit, in the order of the class's fields."""

WATERMARK_RULE: Final = "dmq_watermark_rule"
"""How the text's TODO about watermarks is resolved (H-I01); ``land`` is the only option."""


def read_configuration(node: Node) -> EarlyHrmpConfiguration:
    """Read the limits of an object; limits that are not given are zero. Raises `validator.errors.UserError`."""
    node.refuse_misspelt((*MAXIMA, WATERMARK_RULE))
    if node.has(WATERMARK_RULE):
        node[WATERMARK_RULE].one_of(["land"])
    return EarlyHrmpConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in MAXIMA.items() if node.has(name)}
    )
