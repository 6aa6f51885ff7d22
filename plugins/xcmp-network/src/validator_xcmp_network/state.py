# SPDX-License-Identifier: Apache-2.0
"""The protocol's storage: that of XCMP channels, and the ingress queues.

A chain with fixed channels keeps the first part for its paras, accounts and downward queues; its rows stay empty. Each field's docstring
states its invariants; `invariants.check_invariants` recomputes all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from validator_xcmp.state import XcmpState, find_column

from validator.plugin.protocol_api import BlockNumber, ChannelId, ParaId
from validator_xcmp_network.configuration import ChannelMode, NetworkConfiguration
from validator_xcmp_network.fixed_channels import FixedChannels
from validator_xcmp_network.queues import Entry, IngressQueue


@dataclass(slots=True)
class NetworkState(XcmpState):
    """Everything the rules may look at, except the block number, which is an argument."""

    network: NetworkConfiguration = field(default_factory=NetworkConfiguration)
    fixed_channels: FixedChannels = field(default_factory=FixedChannels)
    """Invariant: empty unless the chain's channels are fixed."""
    queues: dict[ParaId, IngressQueue] = field(default_factory=dict)
    """By recipient, never blank. Invariant: every entry belongs to a channel. The egress queues are the same entries, seen by sender."""
    enacted_in: dict[ParaId, BlockNumber] = field(default_factory=dict, compare=False)
    """The block in which a para's last candidate was enacted. Not saved: blocks are executed whole, and only the current one matters."""

    @property
    def is_composed(self) -> bool:
        """Whether the rules of XCMP channels open and close the channels."""
        return self.network.channels is ChannelMode.XCMP


def has_channel(state: NetworkState, channel_id: ChannelId) -> bool:
    """Return whether a channel is open."""
    return find_column(state, channel_id) is not None if state.is_composed else channel_id in state.fixed_channels


def channel_limit(state: NetworkState, channel_id: ChannelId) -> int:
    """Return how many unacknowledged messages an open channel may hold."""
    column = find_column(state, channel_id) if state.is_composed else None
    return state.network.max_channel_messages if column is None else column.capacity


def unread_in_channel(state: NetworkState, channel_id: ChannelId) -> int:
    """Return the number of a channel's unacknowledged messages."""
    sender, recipient = channel_id
    queue = state.queues.get(recipient)
    return 0 if queue is None else queue.unread_of(sender)


def unread_of_recipient(state: NetworkState, recipient: ParaId) -> int:
    """Return the number of a recipient's unacknowledged messages."""
    queue = state.queues.get(recipient)
    return 0 if queue is None else queue.count


def find_entry(state: NetworkState, recipient: ParaId, sent_at: BlockNumber, sender: ParaId) -> Entry | None:
    """Return an unacknowledged message, or None."""
    queue = state.queues.get(recipient)
    return None if queue is None else queue.find(sent_at, sender)


def entries(state: NetworkState) -> Iterator[tuple[ParaId, Entry]]:
    """Yield every entry with its recipient: by recipient, then in queue order."""
    for recipient in sorted(state.queues):
        for entry in state.queues[recipient]:
            yield recipient, entry


def touch_channel(state: NetworkState, channel_id: ChannelId) -> None:
    """Mark a channel's headroom, and its recipient's page and headroom, as changed."""
    touched = state.touched
    touched.channels[channel_id] = None
    touched.pages[channel_id[1]] = touched.paras[channel_id[1]] = None
