# SPDX-License-Identifier: Apache-2.0
"""The storage of early HRMP, by the names of early_hrmp.txt, with its limits, its invariants and how full it is.

Each field's docstring states its invariants; `check_invariants` recomputes all of them from ground truth. No map keeps an empty value or a
zero count."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from validator.plugin.protocol_api import (
    U32_MAX,
    U128_MAX,
    Balance,
    Balances,
    BlockNumber,
    ChannelId,
    Hash,
    Node,
    OrderedSet,
    ParaId,
    SessionIndex,
)
from validator.protocols.kit import (
    Account,
    OpenRequests,
    PendingCandidate,
    Touched,
    ascends,
    broken_deposits,
    broken_index,
    channel_name,
    insert_sorted,
    raise_if_broken,
    remove_sorted,
)

# --- configuration --------------------------------------------------------------------------------------------------------------------
# The relay chain's limits for channels, by the names of the conformance format.
#
# All channels share them. The text has no limits for a single channel, for a message's size or for a candidate's number of messages.


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


# --- state ----------------------------------------------------------------------------------------------------------------------------


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


# --- invariants -----------------------------------------------------------------------------------------------------------------------
# All invariants of the storage, recomputed from ground truth.


def check_invariants(state: EarlyHrmpState, _profile: object = None) -> None:
    """Raise `InvariantBroken` with a sentence for every invariant that the state breaks."""
    raise_if_broken(broken_invariants(state))


def broken_invariants(state: EarlyHrmpState) -> Iterator[str]:
    """Yield a sentence for each invariant that does not hold."""
    yield from _requests(state)
    yield from _channels(state)
    yield from _queues(state)
    yield from _uses(state)
    yield from broken_deposits(state, _deposits(state))


def _requests(state: EarlyHrmpState) -> Iterator[str]:
    yield from state.open_requests.broken_invariants(state.channels)
    for request in state.open_requests:
        if request.age > state.session_index:
            name = channel_name(request.channel_id)
            yield f"the request for {name} is {request.age} sessions old in session {state.session_index}"
    closing = [(sender, recipient) for _, sender, recipient in state.close_requests]
    if sorted(closing) != sorted(state.closing):
        yield f"closing has {_names(state.closing)}, the close requests are {_names(closing)}"
    for initiator, sender, recipient in state.close_requests:
        name = channel_name((sender, recipient))
        if initiator not in (sender, recipient):
            yield f"{initiator} asked to close {name}"
        channel = state.channels.get((sender, recipient))
        if channel is None or channel.sealed:
            yield f"channel {name} is going to be closed, but is {'not there' if channel is None else 'sealed'}"


def _channels(state: EarlyHrmpState) -> Iterator[str]:
    yield from broken_index(state.channels, state.ingress, state.egress)
    sealed = [channel_id for channel_id, channel in state.channels.items() if channel.sealed]
    if sorted(sealed) != sorted(state.sealed):
        yield f"sealed has {_names(state.sealed)}, the sealed channels are {_names(sealed)}"
    for channel_id, channel in state.channels.items():
        name = channel_name(channel_id)
        if channel_id[0] == channel_id[1]:
            yield f"channel {name} leads back to its sender"
        for para in channel_id:
            if para not in state.paras:
                yield f"channel {name} is open, but {para} is not registered"
        if not 0 < channel.instance <= state.session_index:
            yield f"channel {name} was opened in session {channel.instance}, this is session {state.session_index}"


def _queues(state: EarlyHrmpState) -> Iterator[str]:
    for para, queue in state.downward_queues.items():
        if not queue or not all(queue.values()):
            yield f"the downward queue of {para} has an empty level"
        if not ascends(list(queue)):
            yield f"the downward queue of {para} is not in ascending order of blocks: {list(queue)}"
        waiting = sum(map(len, queue.values()))
        count = state.downward_queue_tails[para].count if para in state.downward_queue_tails else 0
        if count < waiting:
            yield f"the downward queue of {para} holds {waiting} messages, of {count} ever"
    for para, tail in state.downward_queue_tails.items():
        if tail.count <= 0:
            yield f"the downward queue of {para} has a head without messages"


def _uses(state: EarlyHrmpState) -> Iterator[str]:
    places: Counter[tuple[ChannelId, int]] = Counter()
    sizes: Counter[tuple[ChannelId, int]] = Counter()
    for para, queue in state.downward_queues.items():
        for messages in queue.values():
            for sender, instance, data in messages:
                if sender is not None:
                    places[(sender, para), instance] += 1
                    sizes[(sender, para), instance] += len(data)
    for channel_id, channel in state.channels.items():
        key = (channel_id, channel.instance)
        if (channel.used_places, channel.used_bytes) != (places[key], sizes[key]):
            yield (
                f"channel {channel_name(channel_id)} counts {channel.used_places} messages, {channel.used_bytes} bytes; "
                f"the queue holds {places[key]}, {sizes[key]} bytes"
            )
    for channel_id, instance in places:
        there = state.channels.get(channel_id)
        if there is not None and instance > there.instance:
            yield f"a message of channel {channel_name(channel_id)} is of session {instance}, later than the channel"


def _deposits(state: EarlyHrmpState) -> Iterator[tuple[ParaId, Balance]]:
    yield from state.open_requests.deposits()
    for (sender, recipient), channel in state.channels.items():
        yield sender, channel.sender_deposit
        yield recipient, channel.recipient_deposit


def _names(channel_ids: Iterable[ChannelId]) -> str:
    return ", ".join(map(channel_name, sorted(channel_ids))) or "nothing"
