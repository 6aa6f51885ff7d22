# SPDX-License-Identifier: Apache-2.0
"""The relay chain's limits for channels, by the names of the conformance format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from validator.plugin.protocol_api import U32_MAX, U128_MAX, Balance, Node, SessionIndex


@dataclass(frozen=True, slots=True)
class XcmpConfiguration:
    """Counts are messages or channels, deposits are balances, ttl and condemned sessions are numbers of session boundaries.

    The default of every field is zero: nothing is allowed. Source: xcmp_channels.txt, xcmp_rules 1.2.
    """

    xcmp_channel_capacity: int = 0
    """Messages that a new channel may hold. Told to its sender, never checked on the relay chain."""
    xcmp_max_outbound_channels: int = 0
    """Columns of a sender's row and its open requests together."""
    xcmp_sender_deposit: Balance = 0
    xcmp_recipient_deposit: Balance = 0
    xcmp_open_request_ttl: SessionIndex = 0
    """Boundaries after which a request that nobody confirmed is gone."""
    xcmp_condemned_sessions: SessionIndex = 0
    """What the counter of a condemned channel starts with; it is decremented at that very boundary already (X-I02)."""


MAXIMA: Final[Mapping[str, int]] = {
    "xcmp_channel_capacity": U32_MAX,
    "xcmp_max_outbound_channels": U32_MAX,
    "xcmp_sender_deposit": U128_MAX,
    "xcmp_recipient_deposit": U128_MAX,
    "xcmp_open_request_ttl": U32_MAX,
    "xcmp_condemned_sessions": U32_MAX,
}
"""The greatest value of each limit."""

WATERMARK_REGIME: Final = "watermark_regime"
"""How a candidate's watermark is checked (X-I01): ``tuple`` is the only regime there is."""
LIMITS: Final = (*MAXIMA, WATERMARK_REGIME)
"""Every name that a configuration may have."""


def read_configuration(node: Node) -> XcmpConfiguration:
    """Return the limits that an object names, zero for the others. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(LIMITS)
    if node.has(WATERMARK_REGIME):
        node[WATERMARK_REGIME].one_of(["tuple"])
    return XcmpConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in MAXIMA.items() if node.has(name)}
    )
