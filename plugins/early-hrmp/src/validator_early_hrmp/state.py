# SPDX-License-Identifier: Apache-2.0
"""The storage of early HRMP, by the names of early_hrmp.txt, and the few ways in which it is touched.

Invariants stand on the fields; `invariants.check_invariants` recomputes all of them from ground truth. No map keeps an empty value or a
zero count.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from validator.plugin.api import (
    Account,
    Balance,
    Balances,
    BlockNumber,
    ChannelId,
    Hash,
    OrderedSet,
    ParaId,
    PendingCandidate,
    SessionIndex,
)
from validator_early_hrmp.configuration import EarlyHrmpConfiguration


@dataclass(slots=True)
class OpenRequest:
    """A request to open a channel, with the deposits that have been reserved for it (H-I07)."""

    sender: ParaId
    recipient: ParaId
    sender_deposit: Balance
    recipient_deposit: Balance = 0
    confirmed: bool = False
    age: SessionIndex = 0


class CloseRequest(NamedTuple):
    """A request to close a channel; ``initiator`` is one of its ends."""

    initiator: ParaId
    sender: ParaId
    recipient: ParaId


@dataclass(slots=True)
class Channel:
    """A channel, open or sealed; its messages are in the recipient's downward queue.

    ``instance`` is the session whose start opened it: a pair is opened at most once at a session boundary, so it tells this channel from
    one of the same two paras that went with its sender (H-I11). Invariant: ``used_places`` and ``used_bytes`` are number and payload
    bytes of the messages of this instance in the recipient's queue.
    """

    sender_deposit: Balance
    recipient_deposit: Balance
    instance: SessionIndex
    used_places: int = 0
    used_bytes: int = 0
    sealed: bool = False


class QueuedMessage(NamedTuple):
    """A message that waits in a downward queue: of the relay chain where ``sender`` is None, else of the named instance of a channel."""

    sender: ParaId | None
    instance: SessionIndex
    data: bytes


class QueueTail(NamedTuple):
    """How many messages have ever been put into a downward queue, and the head of the chain of their hashes."""

    count: int  # type: ignore[assignment]  # shadows tuple.count
    head: Hash


@dataclass(slots=True)
class Touched:
    """What has changed since somebody last looked: derived, not part of the state."""

    pages: OrderedSet = field(default_factory=dict)
    """Paras whose page of the state encoding has changed."""
    paras: OrderedSet = field(default_factory=dict)
    """Paras whose own headroom has changed."""
    channels: dict[ChannelId, None] = field(default_factory=dict)
    """Channels whose headroom has changed."""


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
    """Accepted, not enacted, oldest first (only with enactment on inclusion)."""

    open_requests: list[OpenRequest] = field(default_factory=list)
    """A request is addressed by its place here, which only changes at a session boundary."""
    requested: dict[ChannelId, OpenRequest] = field(default_factory=dict)
    """Invariant: the open requests by channel, each once."""
    request_counts: dict[ParaId, int] = field(default_factory=dict)
    """Invariant: the number of open requests by each sender."""
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
    """The DMQs, by the block in which messages were put in, blocks ascending. Neither level is ever empty."""
    downward_queue_tails: dict[ParaId, QueueTail] = field(default_factory=dict)
    """Of every queue that has ever had a message since its para was last offboarded."""
    dmq_watermarks: dict[ParaId, BlockNumber] = field(default_factory=dict)

    touched: Touched = field(default_factory=Touched)


def channel_name(channel_id: ChannelId) -> str:
    """Return ``"sender->recipient"``."""
    return f"{channel_id[0]}->{channel_id[1]}"


def reserve(state: EarlyHrmpState, para: ParaId, amount: Balance) -> None:
    """Hold back a deposit on a para's account; the caller has checked that it is there."""
    account = state.accounts.setdefault(para, Account())
    if state.balances_mode is Balances.LEDGER:
        account.free -= amount
    account.reserved += amount
    state.touched.pages[para] = None


def unreserve(state: EarlyHrmpState, para: ParaId, amount: Balance) -> None:
    """Return a deposit; what is returned was reserved before."""
    account = state.accounts.setdefault(para, Account())
    account.reserved -= amount
    if state.balances_mode is Balances.LEDGER:
        account.free += amount
    state.touched.pages[para] = None


def add_open_request(state: EarlyHrmpState, request: OpenRequest) -> None:
    """Append an open request to the list."""
    state.open_requests.append(request)
    state.requested[request.sender, request.recipient] = request
    state.request_counts[request.sender] = state.request_counts.get(request.sender, 0) + 1


def forget_open_request(state: EarlyHrmpState, request: OpenRequest) -> None:
    """Remove an open request from everything but the list, which the caller writes anew."""
    del state.requested[request.sender, request.recipient]
    count = state.request_counts.pop(request.sender) - 1
    if count:
        state.request_counts[request.sender] = count


def add_close_request(state: EarlyHrmpState, request: CloseRequest) -> None:
    """Append a close request to the list."""
    state.close_requests.append(request)
    state.closing[request.sender, request.recipient] = None


def add_channel(state: EarlyHrmpState, channel_id: ChannelId, channel: Channel) -> None:
    """Insert a channel and its entries in the indexes."""
    sender, recipient = channel_id
    state.channels[channel_id] = channel
    insort(state.ingress.setdefault(recipient, []), sender)
    insort(state.egress.setdefault(sender, []), recipient)
    if channel.sealed:
        state.sealed[channel_id] = None
    state.touched.pages[recipient] = state.touched.channels[channel_id] = None


def pop_channel(state: EarlyHrmpState, channel_id: ChannelId) -> Channel:
    """Remove a channel and its entries in the indexes, and return it."""
    sender, recipient = channel_id
    channel = state.channels.pop(channel_id)
    _remove_sorted(state.ingress, recipient, sender)
    _remove_sorted(state.egress, sender, recipient)
    state.sealed.pop(channel_id, None)
    state.touched.pages[recipient] = state.touched.channels[channel_id] = None
    return channel


def _remove_sorted(index: dict[ParaId, list[ParaId]], key: ParaId, item: ParaId) -> None:
    row = index[key]
    del row[bisect_left(row, item)]
    if not row:
        del index[key]
