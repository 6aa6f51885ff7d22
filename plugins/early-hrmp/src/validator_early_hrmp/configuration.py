# SPDX-License-Identifier: Apache-2.0
"""The relay chain's limits for channels, by the names of the conformance format.

They hold for every channel alike: the text knows no limits of a single channel, of a message's size or of a candidate's number of messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from validator.plugin.protocol_api import U32_MAX, U128_MAX, Balance, Node, SessionIndex


@dataclass(frozen=True, slots=True)
class EarlyHrmpConfiguration:
    """Counts are messages or channels, sizes are bytes of payload, deposits are balances, the ttl is a number of session boundaries.

    The default of every field is zero: nothing is allowed. Source: early_hrmp.txt "configured limits", xcmp_rules 1.3.
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
"""The greatest value of each limit, in the order of the class's fields."""

WATERMARK_RULE: Final = "dmq_watermark_rule"
"""Which answer to the text's TODO about watermarks holds (H-I01): ``land`` is the only one there is."""


def read_configuration(node: Node) -> EarlyHrmpConfiguration:
    """Return the limits that an object names, zero for the others. Raises `validator.errors.UserError`."""
    node.refuse_misspelt((*MAXIMA, WATERMARK_RULE))
    if node.has(WATERMARK_RULE):
        node[WATERMARK_RULE].one_of(["land"])
    return EarlyHrmpConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in MAXIMA.items() if node.has(name)}
    )
