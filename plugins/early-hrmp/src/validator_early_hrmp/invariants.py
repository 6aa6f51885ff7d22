# SPDX-License-Identifier: Apache-2.0
"""Every invariant of the storage, recomputed from ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise

from validator.plugin.api import ChannelId, InvariantBroken, ParaId
from validator_early_hrmp.state import EarlyHrmpState, channel_name


def check_invariants(state: EarlyHrmpState) -> None:
    """Raise `InvariantBroken` with everything in the state that contradicts itself."""
    broken = list(broken_invariants(state))
    if broken:
        raise InvariantBroken("; ".join(broken))


def broken_invariants(state: EarlyHrmpState) -> Iterator[str]:
    """Yield a sentence for each invariant that does not hold."""
    yield from _requests(state)
    yield from _channels(state)
    yield from _queues(state)
    yield from _uses(state)
    yield from _deposits(state)


def _requests(state: EarlyHrmpState) -> Iterator[str]:
    listed = [(request.sender, request.recipient) for request in state.open_requests]
    if sorted(listed) != sorted(state.requested) or any(
        state.requested.get((request.sender, request.recipient)) is not request for request in state.open_requests
    ):
        yield f"requested has {_names(state.requested)}, the open requests are {_names(listed)}"
    if state.request_counts != dict(Counter(sender for sender, _ in listed)):
        yield f"request_counts is {state.request_counts}, the open requests are {_names(listed)}"
    for request in state.open_requests:
        name = channel_name((request.sender, request.recipient))
        if (request.sender, request.recipient) in state.channels:
            yield f"channel {name} is both open and requested"
        if not request.confirmed and request.recipient_deposit:
            yield f"the request for {name} holds a deposit of the recipient, who has not confirmed it"
        if request.age > state.session_index:
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
    channels = Counter(dict.fromkeys(state.channels, 1))
    if Counter((sender, para) for para, row in state.ingress.items() for sender in row) != channels:
        yield "ingress is not the set of channels"
    if Counter((para, recipient) for para, row in state.egress.items() for recipient in row) != channels:
        yield "egress is not the set of channels"
    for name, index in (("ingress", state.ingress), ("egress", state.egress)):
        for para, row in index.items():
            if not row or not _ascends(row):
                yield f"the {name} row of {para} is empty, unsorted or not unique: {row}"
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
        if not _ascends(list(queue)):
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


def _deposits(state: EarlyHrmpState) -> Iterator[str]:
    owed: Counter[ParaId] = Counter()
    for request in state.open_requests:
        owed[request.sender] += request.sender_deposit
        owed[request.recipient] += request.recipient_deposit
    for (sender, recipient), channel in state.channels.items():
        owed[sender] += channel.sender_deposit
        owed[recipient] += channel.recipient_deposit
    for para in sorted(dict.fromkeys((*owed, *state.accounts))):
        account = state.accounts.get(para)
        reserved = account.reserved if account else 0
        if reserved != owed[para]:
            yield f"{para} has {reserved} reserved, its deposits are {owed[para]}"
        if account and account.free < 0:
            yield f"the free balance of {para} is {account.free}"


def _names(channel_ids: Iterable[ChannelId]) -> str:
    return ", ".join(map(channel_name, sorted(channel_ids))) or "nothing"


def _ascends(items: list[int]) -> bool:
    return all(earlier < later for earlier, later in pairwise(items))
