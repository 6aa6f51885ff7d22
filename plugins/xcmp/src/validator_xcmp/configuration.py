# SPDX-License-Identifier: Apache-2.0
"""The relay chain's limits for channels, by the names of the conformance format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from validator.plugin.protocol_api import U32_MAX, U128_MAX, Balance, Node, SessionIndex


@dataclass(frozen=True, slots=True)
class XcmpConfiguration:
    """Counts are messages or channels, deposits are balances, the TTL and condemned sessions are numbers of session boundaries.

    Every field defaults to zero: nothing is allowed. Source: xcmp_channels.txt, xcmp_rules 1.2.
    """

    xcmp_channel_capacity: int = 0
    """Messages that a new channel may hold. The relay chain stores it for the sender and never checks it."""
    xcmp_max_outbound_channels: int = 0
    """Maximum sum of a sender's columns and open requests."""
    xcmp_sender_deposit: Balance = 0
    xcmp_recipient_deposit: Balance = 0
    xcmp_open_request_ttl: SessionIndex = 0
    """Session boundaries after which an unconfirmed request expires."""
    xcmp_condemned_sessions: SessionIndex = 0
    """Initial counter of a condemned channel. The boundary that sets it also decrements it (X-I02)."""


MAXIMA: Final[Mapping[str, int]] = {
    "xcmp_channel_capacity": U32_MAX,
    "xcmp_max_outbound_channels": U32_MAX,
    "xcmp_sender_deposit": U128_MAX,
    "xcmp_recipient_deposit": U128_MAX,
    "xcmp_open_request_ttl": U32_MAX,
    "xcmp_condemned_sessions": U32_MAX,
}
"""Maximum of each limit."""

WATERMARK_REGIME: Final = "watermark_regime"
"""How a candidate's watermark is checked (X-I01); ``tuple`` is the only regime."""
LIMITS: Final = (*MAXIMA, WATERMARK_REGIME)
"""All names that a configuration may contain."""


def read_configuration(node: Node) -> XcmpConfiguration:
    """Read the limits of an object; limits that are not given are zero. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(LIMITS)
    if node.has(WATERMARK_REGIME):
        node[WATERMARK_REGIME].one_of(["tuple"])
    return XcmpConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in MAXIMA.items() if node.has(name)}
    )
