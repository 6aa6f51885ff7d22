# SPDX-License-Identifier: Apache-2.0
"""The storage of the Router, by the names of router.txt, and the books of upward messages that later rules keep.

Each field's docstring states its invariants; `invariants.check_invariants` recomputes all of them from ground truth. Absent and empty
are different: no map keeps an empty value or a zero count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from validator.core.handlers.state import HandlerStates
from validator.core.types import (
    ZERO_HASH,
    Balance,
    Balances,
    BlockNumber,
    ChannelId,
    Hash,
    ParaId,
    ParaKind,
    SessionIndex,
)
from validator.protocols.kit import Account, PendingCandidate, Touched, insert_sorted
from validator.protocols.router.configuration import HostConfiguration

# --- books ----------------------------------------------------------------------------------------------------------------------------
# The pages in which upward messages wait under the feature message_queue. Source: router_profiles 3.9.


MESSAGE_OVERHEAD_BYTES = 5
"""Bytes of a page's heap that a message takes besides its payload."""


@dataclass(slots=True)
class Page:
    """A page: its messages by index, None for a processed one.

    Invariant: at least one message is unprocessed, and ``heap_used`` is the heap of all of them, processed ones included.
    """

    messages: list[bytes | None] = field(default_factory=list)
    heap_used: int = 0
    unprocessed: int = 0

    def append(self, payload: bytes) -> None:
        """Add a message."""
        self.messages.append(payload)
        self.heap_used += len(payload) + MESSAGE_OVERHEAD_BYTES
        self.unprocessed += 1

    def process(self, index: int) -> None:
        """Mark a message as processed."""
        self.messages[index] = None
        self.unprocessed -= 1


@dataclass(slots=True)
class Book:
    """The pages of a para; ``next_index`` is the index of the first waiting message in page ``begin``.

    Messages from there on, up to page ``end - 1``, wait. Those before were processed or set aside. Invariant: the pages from ``begin`` to
    ``end - 1`` exist; older ones exist as long as they hold a message that was set aside.
    """

    begin: int = 0
    end: int = 0
    next_index: int = 0
    pages: dict[int, Page] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether any message waits."""
        return self.begin < self.end

    def waiting(self) -> Iterator[bytes]:
        """Yield the waiting messages in order."""
        for number in range(self.begin, self.end):
            start = self.next_index if number == self.begin else 0
            for payload in self.pages[number].messages[start:]:
                assert payload is not None
                yield payload

    def set_aside(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield page, index and payload of each message that was set aside, in order."""
        for number, page in sorted(self.pages.items()):
            if number > self.begin:
                return
            passed = page.messages if number < self.begin else page.messages[: self.next_index]
            for index, payload in enumerate(passed):
                if payload is not None:
                    yield number, index, payload

    def size(self) -> tuple[int, int]:
        """Return the number and the bytes of the messages that are not processed: those that wait and those set aside.

        It counts what the pages hold, so it also works for a book that breaks an invariant.
        """
        unprocessed = [payload for page in self.pages.values() for payload in page.messages if payload is not None]
        return len(unprocessed), sum(map(len, unprocessed))


@dataclass(slots=True)
class MessageQueue:
    """All books, and the ring of the paras with waiting messages, from its head on.

    Invariant: the ring has exactly the paras whose book waits, each once.
    """

    books: dict[ParaId, Book] = field(default_factory=dict)
    ring: list[ParaId] = field(default_factory=list)


# --- state ----------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class HrmpOpenChannelRequest:
    """A request to open a channel. Its limits come from the configuration at the time of the request."""

    confirmed: bool
    age: SessionIndex
    sender_deposit: Balance
    limit_used_places: int
    limit_used_bytes: int
    limit_message_size: int
    recipient_deposit: Balance = 0
    """What the recipient left when it confirmed."""


class InboundHrmpMessage(NamedTuple):
    """A message that waits in a channel; ``mqc_head`` is the channel's head right after it, or None if the message was seeded."""

    sent_at: BlockNumber
    data: bytes
    mqc_head: Hash | None


@dataclass(slots=True)
class HrmpChannel:
    """An open channel, with its messages: what a candidate touches of a channel is in one place.

    Invariants: ``used_places == len(contents) <= limit_used_places``, ``used_bytes == sum of payload sizes <= limit_used_bytes``;
    linking the contents to ``pruned_head`` gives ``mqc_head``.
    """

    sender_deposit: Balance
    recipient_deposit: Balance
    limit_used_places: int
    limit_used_bytes: int
    limit_message_size: int
    used_places: int = 0
    used_bytes: int = 0
    mqc_head: Hash = ZERO_HASH
    pruned_head: Hash | None = ZERO_HASH
    """MQC head after the newest pruned message. None in a channel that was seeded with contents, because its earlier history is unknown."""
    messages_sent: int = 0
    """Messages enacted over this channel since the lane began to follow it."""
    bytes_sent: int = field(default=0, compare=False)
    """Bytes of payload enacted over it since the state was loaded; for those who watch, not part of the state."""
    contents: list[InboundHrmpMessage] | None = None
    """`hrmp_channel_contents` of router.txt, oldest first. Never empty: None if no message waits. A list, since few messages wait and a
    deque has 600 bytes."""
    marked: int = field(default=-1, compare=False)
    """The last `Touched.round` in which its headroom was marked as changed."""


class HrmpChannels(MutableMapping[ChannelId, HrmpChannel]):
    """The open channels. Those to one recipient are together, as in its page."""

    __slots__ = ("inbound",)

    def __init__(self, channels: Mapping[ChannelId, HrmpChannel] | None = None) -> None:
        self.inbound: dict[ParaId, dict[ParaId, HrmpChannel]] = {}
        """By recipient and sender. No recipient has an empty row."""
        self.update(channels or {})

    def __getitem__(self, channel_id: ChannelId) -> HrmpChannel:
        sender, recipient = channel_id
        channel = self.inbound.get(recipient, NO_CHANNELS).get(sender)
        if channel is None:
            raise KeyError(channel_id)
        return channel

    def __setitem__(self, channel_id: ChannelId, channel: HrmpChannel) -> None:
        sender, recipient = channel_id
        self.inbound.setdefault(recipient, {})[sender] = channel

    def __delitem__(self, channel_id: ChannelId) -> None:
        sender, recipient = channel_id
        row = self.inbound.get(recipient, {})
        if sender not in row:
            raise KeyError(channel_id)
        del row[sender]
        if not row:
            del self.inbound[recipient]

    def __iter__(self) -> Iterator[ChannelId]:
        return ((sender, recipient) for recipient, row in self.inbound.items() for sender in row)

    def __len__(self) -> int:
        return sum(map(len, self.inbound.values()))


NO_CHANNELS: Final[dict[ParaId, HrmpChannel]] = {}
"""The row of a recipient without channels; never changed."""


class InboundDownwardMessage(NamedTuple):
    """A message that waits in a downward queue."""

    sent_at: BlockNumber
    msg: bytes


@dataclass(slots=True)
class RouterState:
    """Everything the rules may look at, except the block number, which is an argument."""

    host_configuration: HostConfiguration
    balances_mode: Balances = Balances.LEDGER
    hrmp_notifications: bool = False
    """If set, requests queue a downward message for the other party (I-11: not in router.txt)."""
    session_index: SessionIndex = 0

    paras: dict[ParaId, ParaKind] = field(default_factory=dict)
    """Valid paras."""
    accounts: dict[ParaId, Account] = field(default_factory=dict)
    """Accounts outlive their para. Invariant: ``reserved`` is the sum of the para's deposits in requests and channels, and of its
    `hrmp_stranded_deposits`."""
    outgoing_paras: list[ParaId] = field(default_factory=list)
    """Paras to be cleaned up at the end of the session, ascending, unique."""
    pending_candidates: dict[ParaId, deque[PendingCandidate]] = field(default_factory=dict)
    """Accepted but not yet enacted, oldest first. Used only with enactment on inclusion."""

    relay_dispatch_queues: dict[ParaId, deque[bytes]] = field(default_factory=dict)
    """Upward messages, FIFO. Never empty."""
    relay_dispatch_queue_size: dict[ParaId, tuple[int, int]] = field(default_factory=dict)
    """(messages, bytes). Invariant: same keys as `relay_dispatch_queues`, unless there is a `message_queue`."""
    needs_dispatch: list[ParaId] = field(default_factory=list)
    """Ascending. Invariant: the keys of `relay_dispatch_queues`."""
    next_dispatch_round_start_with: ParaId | None = None
    """Invariant: None or in `needs_dispatch`."""
    message_queue: MessageQueue | None = None
    """The upward messages under the feature of this name (router_profiles 3.9), else None. While it holds them, the three fields of
    queues and turns above are empty, and `relay_dispatch_queue_size` counts all messages that are not processed."""

    downward_message_queues: dict[ParaId, deque[InboundDownwardMessage]] = field(default_factory=dict)
    downward_message_queue_heads: dict[ParaId, Hash] = field(default_factory=dict)
    """MQC heads. A para that was never addressed has none, which reads as zero."""
    downward_messages_sent: dict[ParaId, int] = field(default_factory=dict)
    """Messages queued for a para since its queue's head was zero or seeded."""

    hrmp_open_channel_requests: dict[ChannelId, HrmpOpenChannelRequest] = field(default_factory=dict)
    hrmp_open_channel_requests_list: list[ChannelId] = field(default_factory=list)
    """Invariant: the keys of `hrmp_open_channel_requests`, each once."""
    hrmp_open_channel_request_count: dict[ParaId, int] = field(default_factory=dict)
    """Invariant: with `hrmp_uncounted_requests`, without `hrmp_lost_places`, the number of requests by each sender."""
    hrmp_uncounted_requests: dict[ParaId, int] = field(default_factory=dict)
    """Requests that outlived their sender's count: its offboarding removed it (I-06), or a forced clean-up (PR-17). Not in router.txt;
    they make the invariant exact."""
    hrmp_lost_places: dict[ParaId, int] = field(default_factory=dict)
    """Requests that are gone although their sender's count still has them (PR-03). A sender with such has no uncounted ones. Not in
    router.txt; they make the invariant exact."""
    hrmp_stranded_deposits: dict[ParaId, Balance] = field(default_factory=dict)
    """Deposits that stay reserved although their request is gone (PR-04). Not in router.txt; they make the invariant exact."""
    hrmp_accepted_channel_request_count: dict[ParaId, int] = field(default_factory=dict)
    """Invariant: with `hrmp_uncounted_acceptances`, the number of confirmed requests to each recipient."""
    hrmp_uncounted_acceptances: dict[ParaId, int] = field(default_factory=dict)
    """Confirmed requests that outlived their recipient's count (PR-17). Not in router.txt; they make the invariant exact."""
    hrmp_close_channel_requests: dict[ChannelId, None] = field(default_factory=dict)
    hrmp_close_channel_requests_list: list[ChannelId] = field(default_factory=list)
    """Invariant: the keys of `hrmp_close_channel_requests`, each once."""

    hrmp_watermarks: dict[ParaId, BlockNumber] = field(default_factory=dict)
    hrmp_channels: HrmpChannels = field(default_factory=HrmpChannels)
    """Invariant: both ends are valid paras."""
    hrmp_ingress_channels_index: dict[ParaId, list[ParaId]] = field(default_factory=dict)
    """Senders to a para, ascending. Invariant: ``(I, P)`` for each item is exactly the set of channels."""
    hrmp_egress_channels_index: dict[ParaId, list[ParaId]] = field(default_factory=dict)
    """Recipients of a para, ascending. Invariant: ``(P, E)`` for each item is exactly the set of channels."""
    hrmp_channel_digests: dict[ParaId, dict[BlockNumber, list[ParaId]]] = field(default_factory=dict)
    """By recipient and block: the senders. Blocks ascend, senders are in order of enactment, each once unless `Profile.repeat_senders`.
    Neither level is ever empty."""

    handler_states: HandlerStates = field(default_factory=HandlerStates)
    """The state of upward-message handlers."""

    touched: Touched = field(default_factory=Touched)

    @property
    def hrmp_channel_contents(self) -> dict[ChannelId, list[InboundHrmpMessage]]:
        """The messages of the channels in which any wait, collected from all channels."""
        return {
            channel_id: channel.contents
            for channel_id, channel in self.hrmp_channels.items()
            if channel.contents is not None
        }


def add_channel(state: RouterState, channel_id: ChannelId, channel: HrmpChannel) -> None:
    """Insert a channel and its entries in both indexes."""
    sender, recipient = channel_id
    state.hrmp_channels[channel_id] = channel
    insert_sorted(state.hrmp_ingress_channels_index, recipient, sender)
    insert_sorted(state.hrmp_egress_channels_index, sender, recipient)
    state.touched.pages[recipient] = None
    state.touched.channels[channel_id] = None
    channel.marked = state.touched.round


def count_exactly(state: RouterState) -> None:
    """Correct counts that have all requests: some are not counted, others are gone and still counted."""
    _take(state.hrmp_open_channel_request_count, state.hrmp_uncounted_requests)
    for para, lost in state.hrmp_lost_places.items():
        state.hrmp_open_channel_request_count[para] = state.hrmp_open_channel_request_count.get(para, 0) + lost
    _take(state.hrmp_accepted_channel_request_count, state.hrmp_uncounted_acceptances)


def _take(counts: dict[ParaId, int], uncounted: Mapping[ParaId, int]) -> None:
    for para, count in uncounted.items():
        left = counts.pop(para, 0) - count
        if left > 0:
            counts[para] = left


def mqc_heads(state: RouterState, recipient: ParaId) -> list[tuple[ParaId, Hash]]:
    """Return the heads of all channels to ``recipient``, ascending by sender; zero if nothing was ever sent (router_rules 1.2)."""
    senders = state.hrmp_ingress_channels_index.get(recipient, ())
    return [(sender, state.hrmp_channels[sender, recipient].mqc_head) for sender in senders]
