# SPDX-License-Identifier: Apache-2.0
"""Candidate enactment, and one round of upward message dispatch."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from validator.core.handlers.context import Host
from validator.core.handlers.upward import UpwardDispatcher
from validator.core.hashing import message_hash, mqc_link
from validator.core.outcomes import ChannelEventKind, Dispatch, MessageRange, MessageRef
from validator.core.rules import Environment
from validator.core.types import ZERO_HASH, BlockNumber, DownwardMessage, ParaId, maker
from validator.protocols.router.errors import ExceedsMaxMessageSize
from validator.protocols.router.records import Candidate, HorizontalMessage, split_upward
from validator.protocols.router.state import (
    NO_CHANNELS,
    HrmpChannel,
    InboundDownwardMessage,
    InboundHrmpMessage,
    RouterState,
)

if TYPE_CHECKING:
    from validator.protocols.router.profile import Profile


# --- enactment ------------------------------------------------------------------------------------------------------------------------


_inbound, _message_ref, _range = maker(InboundHrmpMessage), maker(MessageRef), maker(MessageRange)


def enact_candidate(state: RouterState, env: Environment, candidate: Candidate) -> tuple[MessageRef, ...]:
    """Apply an accepted candidate and return the queue positions of its horizontal messages.

    ``env.received`` gets what leaves the para's queues: downward messages first, then those of each channel.
    """
    rules: Profile = env.profile
    para = candidate.para_id
    touched = state.touched
    touched.pages[para] = touched.paras[para] = None
    if candidate.processed_downward_messages:
        env.received += prune_dmq(state, para, candidate.processed_downward_messages)
    upward = candidate.upward_messages
    if upward and rules.signals is not None:
        upward, _ = split_upward(upward)
    if upward:
        report_oversized(env, para, rules.upward.enact(state, para, upward))
    env.received += prune_hrmp(state, para, candidate.hrmp_watermark)
    if candidate.horizontal_messages:
        return queue_outbound_hrmp(state, para, candidate.horizontal_messages, env.now, repeat=rules.repeat_senders)
    return ()


def prune_dmq(state: RouterState, para: ParaId, processed: int) -> tuple[MessageRange, ...]:
    """Drop the first ``processed`` messages of a downward queue, or all if there are fewer; return their range.

    Source: router.txt ``prune_dmq``.
    """
    queue = state.downward_message_queues.get(para)
    if queue is None:
        return ()
    first = state.downward_messages_sent.get(para, 0) - len(queue) + 1
    processed = min(processed, len(queue))
    size = sum([len(queue.popleft().msg) for _ in range(processed)])
    if not queue:
        del state.downward_message_queues[para]
    return (_range((None, first, first + processed - 1, size)),)


def waiting_downward(state: RouterState, para: ParaId) -> tuple[MessageRange, ...]:
    """Return the range of a para's downward queue, nothing if it is empty."""
    queue = state.downward_message_queues.get(para)
    if queue is None:
        return ()
    last = state.downward_messages_sent.get(para, 0)
    return (MessageRange(None, last - len(queue) + 1, last, sum([len(message.msg) for message in queue])),)


def report_oversized(env: Environment, para: ParaId, dropped: tuple[MessageRange, ...]) -> None:
    """Emit an event for upward messages that no page can hold, if there are any."""
    if dropped:
        env.events.add(ChannelEventKind.MESSAGES_DROPPED, (para, para), reason="oversized", dropped=dropped)


def enact_upward_messages(state: RouterState, para: ParaId, messages: Sequence[bytes]) -> tuple[MessageRange, ...]:
    """Append to a para's dispatch queue, which holds any message, and mark the para as needing dispatch.

    Source: router.txt ``enact_upward_messages``.
    """
    if not messages:
        return ()
    queue = state.relay_dispatch_queues.get(para)
    if queue is None:
        queue = state.relay_dispatch_queues[para] = deque()
        insort(state.needs_dispatch, para)
    queue.extend(messages)
    count, size = state.relay_dispatch_queue_size.get(para, (0, 0))
    state.relay_dispatch_queue_size[para] = (count + len(messages), size + sum(map(len, messages)))
    return ()


def prune_hrmp(state: RouterState, recipient: ParaId, new_watermark: BlockNumber) -> list[MessageRange]:
    """Drop the messages that the para has received up to the new watermark, and set the watermark; return a range for each channel.

    Digest entries with ``block <= new_watermark`` are removed; the watermark's own block need not have one.
    Source: router.txt ``prune_hrmp``, router_rules 1.4.
    """
    state.hrmp_watermarks[recipient] = new_watermark
    digests = state.hrmp_channel_digests.get(recipient)
    if digests is None:
        return []

    passed = []
    for block in digests:
        if block > new_watermark:
            break
        passed.append(block)
    senders: dict[ParaId, None] = {}
    for block in passed:
        senders.update(dict.fromkeys(digests.pop(block)))
    if not digests:
        del state.hrmp_channel_digests[recipient]

    inbound, touched = state.hrmp_channels.inbound.get(recipient, NO_CHANNELS), state.touched
    received = []
    for sender in sorted(senders):
        channel = inbound.get(sender)
        # a channel that has been removed since has no messages
        if channel is not None and channel.contents is not None:
            first = channel.messages_sent - len(channel.contents) + 1
            pruned, size = prune_channel(channel, channel.contents, new_watermark)
            if pruned:
                received.append(_range((sender, first, first + pruned - 1, size)))
            if channel.marked != touched.round:
                channel.marked = touched.round
                touched.channels[sender, recipient] = None
    return received


def prune_channel(
    channel: HrmpChannel, contents: list[InboundHrmpMessage], new_watermark: BlockNumber
) -> tuple[int, int]:
    """Drop the messages among a channel's contents that were sent up to the watermark; return their number and their bytes."""
    pruned = size = 0
    for sent_at, data, mqc_head in contents:
        if sent_at > new_watermark:
            break
        pruned += 1
        size += len(data)
        channel.pruned_head = mqc_head
    channel.used_places -= pruned
    channel.used_bytes -= size
    if pruned < len(contents):
        del contents[:pruned]
    else:
        channel.contents = None
        channel.pruned_head = channel.mqc_head
    return pruned, size


def queue_outbound_hrmp(
    state: RouterState, sender: ParaId, messages: Sequence[HorizontalMessage], now: BlockNumber, *, repeat: bool = False
) -> tuple[MessageRef, ...]:
    """Append messages to their channels and return their queue positions.

    Limits are not checked again. A message whose channel no longer exists is skipped (I-20b). ``sent_at``, digest and link hold
    ``now``, the block of enactment. The digest has each sender once, unless they ``repeat``.
    Source: router.txt ``queue_outbound_hrmp``, router_rules 1.4.
    """
    inbound, touched = state.hrmp_channels.inbound, state.touched
    queued = []
    for recipient, data, data_hash in messages:
        channel = inbound.get(recipient, NO_CHANNELS).get(sender)
        if channel is None:
            continue
        channel.used_places += 1
        channel.used_bytes += len(data)
        channel.messages_sent += 1
        channel.bytes_sent += len(data)
        channel.mqc_head = head = mqc_link(channel.mqc_head, now, data_hash or message_hash(data))

        message = _inbound((now, data, head))
        if channel.contents is None:
            channel.contents = [message]
        else:
            channel.contents.append(message)

        digests = state.hrmp_channel_digests.get(recipient)
        if digests is None:
            digests = state.hrmp_channel_digests[recipient] = {}
        senders = digests.get(now)
        if senders is None:
            digests[now] = [sender]
        elif repeat or sender not in senders:
            senders.append(sender)

        touched.pages[recipient] = touched.paras[recipient] = None
        if channel.marked != touched.round:
            channel.marked = touched.round
            touched.channels[sender, recipient] = None
        queued.append(_message_ref((recipient, channel.messages_sent, head)))
    return tuple(queued)


def queue_downward_message(
    state: RouterState, rules: Profile, message: DownwardMessage, now: BlockNumber
) -> MessageRef:
    """Append a message to a para's downward queue; by router.txt the para need not exist (I-20).

    Raises `ExceedsMaxMessageSize`, then the violations of ``rules.downward_checks``. Source: router.txt ``queue_downward_message``.
    """
    para, msg, data_hash = message
    max_size = state.host_configuration.max_downward_message_size
    if len(msg) > max_size:
        raise ExceedsMaxMessageSize(msg_size=len(msg), max_size=max_size)
    for check in rules.downward_checks:
        check(state, para)

    head = mqc_link(state.downward_message_queue_heads.get(para, ZERO_HASH), now, data_hash or message_hash(msg))
    state.downward_message_queue_heads[para] = head
    state.downward_message_queues.setdefault(para, deque()).append(InboundDownwardMessage(now, msg))
    sequence_number = state.downward_messages_sent[para] = state.downward_messages_sent.get(para, 0) + 1
    state.touched.pages[para] = state.touched.paras[para] = None
    return MessageRef(para, sequence_number, head)


def drop_upward_messages(state: RouterState, para: ParaId) -> None:
    """Remove what an outgoing para has sent upward, and the next round's start if it was this para's turn."""
    remove_upward_queue(state, para)
    if state.next_dispatch_round_start_with == para:
        state.next_dispatch_round_start_with = None


def waiting_upward(state: RouterState, para: ParaId) -> tuple[MessageRange, ...]:
    """Return the range of a para's upward messages, nothing if none waits or was set aside."""
    count, size = state.relay_dispatch_queue_size.get(para, (0, 0))
    return (MessageRange(para, 1, count, size),) if count else ()


def remove_upward_queue(state: RouterState, para: ParaId) -> None:
    """Remove a para's dispatch queue, its size and its turn in the dispatch round."""
    if state.relay_dispatch_queues.pop(para, None) is None:
        return
    del state.relay_dispatch_queue_size[para]
    del state.needs_dispatch[bisect_left(state.needs_dispatch, para)]


# --- dispatch -------------------------------------------------------------------------------------------------------------------------
# One round of upward message dispatch.


def process_pending_upward_messages(
    state: RouterState, dispatcher: UpwardDispatcher, host: Host, now: BlockNumber, dispatched: list[Dispatch]
) -> None:
    """Serve dispatch queues one message at a time, round robin, until the weight budget is used up; append to ``dispatched``.

    The budget is checked before a message is taken (I-04). So a message heavier than the rest of the budget is processed and ends the
    round, and a budget of zero dispatches nothing. The next round starts with the para after the last one served (I-03). A message whose
    processing raises is consumed, and the round continues. Source: router.txt ``process_pending_upward_messages``, router_rules 1.5.
    """
    budget = state.host_configuration.preferred_dispatchable_upward_messages_step_weight
    needs_dispatch = state.needs_dispatch
    weight_used = 0
    turn = _first_turn(state)

    while needs_dispatch and weight_used < budget:
        para = needs_dispatch[turn]
        queue = state.relay_dispatch_queues[para]
        payload = queue.popleft()
        state.touched.pages[para] = state.touched.paras[para] = None

        if queue:
            count, size = state.relay_dispatch_queue_size[para]
            state.relay_dispatch_queue_size[para] = (count - 1, size - len(payload))
            turn += 1
        else:
            remove_upward_queue(state, para)
        if turn >= len(needs_dispatch):
            turn = 0

        processed = dispatcher.process(host, para, payload)
        weight_used += processed.weight
        dispatched.append(Dispatch(now, len(dispatched), para, payload, *processed))

    state.next_dispatch_round_start_with = needs_dispatch[turn] if needs_dispatch else None


def _first_turn(state: RouterState) -> int:
    start = state.next_dispatch_round_start_with
    if start is None:
        return 0
    turn = bisect_left(state.needs_dispatch, start)
    return turn if turn < len(state.needs_dispatch) and state.needs_dispatch[turn] == start else 0
