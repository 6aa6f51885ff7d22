# SPDX-License-Identifier: Apache-2.0
"""The relay chain's configuration: bounds, and how recipients and channels are handled. Names come from the conformance format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from validator_xcmp.configuration import LIMITS as XCMP_LIMITS
from validator_xcmp.configuration import MAXIMA as XCMP_MAXIMA
from validator_xcmp.configuration import XcmpConfiguration
from validator_xcmp.configuration import read_configuration as read_xcmp_configuration

from validator.plugin.protocol_api import U32_MAX, ChannelId, Node
from validator_xcmp_network.limits import OPEN_CHANNELS_MAX


class IntraBlock(StrEnum):
    """Which messages of its lowest unread block a recipient may acknowledge first (N-I01)."""

    FREE = "free"
    """Any of them."""
    PREFIX = "prefix"
    """Those of the lowest senders."""


class ChannelMode(StrEnum):
    """Where the channels come from."""

    FIXED = "fixed"
    """The configuration lists them; nobody opens or closes one."""
    XCMP = "xcmp"
    """The rules of XCMP channels open and close them."""


@dataclass(frozen=True, slots=True)
class NetworkConfiguration:
    """The bounds of the ingress queues, in messages and bytes, and the modes of the chain. Source: xcmp_rules 1.4."""

    max_block_bytes: int = 1_000_000
    """Maximum total declared size of a candidate's logical messages, in bytes (N-I04)."""
    max_channel_messages: int = 8
    """Maximum unacknowledged messages of a fixed channel (N-I03). A channel of mode ``xcmp`` has its own capacity instead."""
    max_ingress_messages: int | None = None
    """Maximum unacknowledged messages of a recipient over all senders; None for no such bound."""
    intra_block: IntraBlock = IntraBlock.FREE
    require_bodies: bool = False
    """Whether a message can be acknowledged only after its body has been reported (N-I06)."""
    channels: ChannelMode = ChannelMode.FIXED


@dataclass(frozen=True, slots=True)
class Setup:
    """What a chain's configuration says: bounds and modes, the limits of XCMP channels, and the fixed channels."""

    network: NetworkConfiguration = field(default_factory=NetworkConfiguration)
    xcmp: XcmpConfiguration = field(default_factory=XcmpConfiguration)
    open_channels: tuple[ChannelId, ...] = ()


NETWORK_MAXIMA: Final[Mapping[str, int]] = {
    "max_block_bytes": U32_MAX,
    "max_channel_messages": U32_MAX,
    "max_ingress_messages": U32_MAX,
}
"""Maximum of each bound."""
MAXIMA: Final[Mapping[str, int]] = {**NETWORK_MAXIMA, **XCMP_MAXIMA}
"""Maximum of each limit that a session change may set."""
OPEN_CHANNELS: Final = "open_channels"
LIMITS: Final = (*NETWORK_MAXIMA, "intra_block", "require_bodies", "channels", OPEN_CHANNELS, *XCMP_LIMITS)
"""All names that a configuration may contain."""


def read_configuration(node: Node) -> Setup:
    """Read a chain's configuration; what is not given has its default. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(LIMITS)
    mode = ChannelMode(node.get("channels", lambda each: each.one_of(list(ChannelMode)), ChannelMode.FIXED))
    if mode is ChannelMode.XCMP and node.has(OPEN_CHANNELS):
        raise node[OPEN_CHANNELS].fail("no list: requests open the channels of a chain with channels = 'xcmp'")
    network = NetworkConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in NETWORK_MAXIMA.items() if node.has(name)},
        intra_block=IntraBlock(node.get("intra_block", lambda each: each.one_of(list(IntraBlock)), IntraBlock.FREE)),
        require_bodies=node.get("require_bodies", Node.boolean, False),
        channels=mode,
    )
    return Setup(network, read_xcmp_configuration(_xcmp_part(node)), node.get(OPEN_CHANNELS, _open_channels, ()))


def _xcmp_part(node: Node) -> Node:
    return Node({name: value for name, value in node.object().items() if name in XCMP_LIMITS}, node.path)


def _open_channels(node: Node) -> tuple[ChannelId, ...]:
    """Read fixed channels from ``[[sender, recipient], ...]``."""
    found: dict[ChannelId, None] = {}
    for item in node.items():
        if len(found) == OPEN_CHANNELS_MAX:
            raise Node(OPEN_CHANNELS_MAX + 1, node.path).fail(f"at most {OPEN_CHANNELS_MAX} channels")
        ends = [end.integer() for end in item.items()]
        if len(ends) != 2 or ends[0] == ends[1]:
            raise item.fail("[sender, recipient] of two paras")
        channel_id = ends[0], ends[1]
        if channel_id in found:
            raise item.fail("a channel that is not listed before")
        found[channel_id] = None
    return tuple(found)
