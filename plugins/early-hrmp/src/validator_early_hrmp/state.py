# SPDX-License-Identifier: Apache-2.0
"""The storage of early HRMP, by the names of early_hrmp.txt.

Each field's docstring states its invariants; `invariants.check_invariants` recomputes all of them from ground truth. No map keeps an empty
value or a zero count.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from validator.plugin.protocol_api import (
    Balance,
    Balances,
    BlockNumber,
    ChannelId,
    Hash,
    OrderedSet,
    ParaId,
    SessionIndex,
)
from validator.protocols.kit import Account, OpenRequests, PendingCandidate, Touched, insert_sorted, remove_sorted
from validator_early_hrmp.configuration import EarlyHrmpConfiguration


class CloseRequest(NamedTuple):
    """A request to close a channel; ``initiator`` is one of its ends."""

    initiator: ParaId
    sender: ParaId
    recipient: ParaId


@dataclass(slots=True)
class Channel:
    """A channel, open or sealed. Its messages are in the recipient's downward queue.

    ``instance`` is the session whose start opened the channel. A pair is opened at most once per session boundary, so ``instance``
    distinguishes the channel from an earlier one of the same two paras that was removed with its sender (H-I11). Invariant:
    ``used_places`` and ``used_bytes`` are the number and payload bytes of this instance's messages in the recipient's queue.
    """

    sender_deposit: Balance
    recipient_deposit: Balance
    instance: SessionIndex
    used_places: int = 0
    used_bytes: int = 0
    sealed: bool = False


class QueuedMessage(NamedTuple):
    """A message that waits in a downward queue. It is from the relay chain if ``sender`` is None, else from this channel instance."""

    sender: ParaId | None
    instance: SessionIndex
    data: bytes


class QueueTail(NamedTuple):
    """The number of messages ever added to a downward queue, and the head of its hash chain."""

    count: int  # type: ignore[assignment]  # shadows tuple.count
    head: Hash


@dataclass(slots=True)
class EarlyHrmpState:
    """Everything the rules may look at, except the block number, which is an argument."""

    configuration: EarlyHrmpConfiguration
    balances_mode: Balances = Balances.LEDGER
    session_index: SessionIndex = 0

    paras: OrderedSet = field(default_factory=dict)
    """Registered paras."""
    accounts: dict[ParaId, Account] = field(default_factory=dict)
    """Accounts outlive their para. Invariant: ``reserved`` is the sum of the para's deposits in requests and channels."""
    pending_candidates: dict[ParaId, deque[PendingCandidate]] = field(default_factory=dict)
    """Accepted but not yet enacted, oldest first. Used only with enactment on inclusion."""

    open_requests: OpenRequests = field(default_factory=OpenRequests)
    close_requests: list[CloseRequest] = field(default_factory=list)
    closing: dict[ChannelId, None] = field(default_factory=dict)
    """Invariant: the channels of the close requests, each once, none of them sealed."""

    channels: dict[ChannelId, Channel] = field(default_factory=dict)
    """Invariant: both ends are registered and differ."""
    ingress: dict[ParaId, list[ParaId]] = field(default_factory=dict)
    """Senders to a para, ascending. Invariant: exactly the set of channels."""
    egress: dict[ParaId, list[ParaId]] = field(default_factory=dict)
    """Recipients of a para, ascending. Invariant: exactly the set of channels."""
    sealed: dict[ChannelId, None] = field(default_factory=dict)
    """Invariant: the channels that are sealed."""

    downward_queues: dict[ParaId, dict[BlockNumber, list[QueuedMessage]]] = field(default_factory=dict)
    """The downward queues, by the block in which messages were added, blocks ascending. Neither level is ever empty."""
    downward_queue_tails: dict[ParaId, QueueTail] = field(default_factory=dict)
    """For every queue that has received a message since its para was last offboarded."""
    dmq_watermarks: dict[ParaId, BlockNumber] = field(default_factory=dict)

    touched: Touched = field(default_factory=Touched)


def add_close_request(state: EarlyHrmpState, request: CloseRequest) -> None:
    """Append a close request to the list."""
    state.close_requests.append(request)
    state.closing[request.sender, request.recipient] = None


def add_channel(state: EarlyHrmpState, channel_id: ChannelId, channel: Channel) -> None:
    """Insert a channel and its entries in the indexes."""
    sender, recipient = channel_id
    state.channels[channel_id] = channel
    insert_sorted(state.ingress, recipient, sender)
    insert_sorted(state.egress, sender, recipient)
    if channel.sealed:
        state.sealed[channel_id] = None
    state.touched.pages[recipient] = state.touched.channels[channel_id] = None


def pop_channel(state: EarlyHrmpState, channel_id: ChannelId) -> Channel:
    """Remove a channel and its entries in the indexes, and return it."""
    sender, recipient = channel_id
    channel = state.channels.pop(channel_id)
    remove_sorted(state.ingress, recipient, sender)
    remove_sorted(state.egress, sender, recipient)
    state.sealed.pop(channel_id, None)
    state.touched.pages[recipient] = state.touched.channels[channel_id] = None
    return channel
