# SPDX-License-Identifier: Apache-2.0
"""All invariants of the storage, recomputed from ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from validator.plugin.protocol_api import Balance, ChannelId, ParaId
from validator.protocols.kit import ascends, broken_deposits, broken_index, channel_name, raise_if_broken
from validator_early_hrmp.state import EarlyHrmpState


def check_invariants(state: EarlyHrmpState) -> None:
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
