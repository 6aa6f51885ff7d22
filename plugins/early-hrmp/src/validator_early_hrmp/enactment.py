# SPDX-License-Identifier: Apache-2.0
"""Candidate enactment and downward messages. They change the state and cannot fail. Source: early_hrmp.txt "Enactment", xcmp_rules 1.3."""

from __future__ import annotations

from validator.plugin.protocol_api import (
    ZERO_HASH,
    BlockNumber,
    DownwardMessage,
    Environment,
    Hash,
    MessageRef,
    ParaId,
    message_hash,
    mqc_link,
)
from validator_early_hrmp.records import Candidate, HrmpMessage
from validator_early_hrmp.state import EarlyHrmpState, QueuedMessage, QueueTail


def enact_candidate(state: EarlyHrmpState, env: Environment, candidate: Candidate) -> tuple[MessageRef, ...]:
    """Apply an accepted candidate and return the queue positions of its messages.

    Pruning comes before appending, so a candidate frees its inbound channels before it fills its outbound ones.
    """
    para = candidate.para_id
    touched = state.touched
    touched.pages[para] = touched.paras[para] = None
    prune_dmq(state, para, candidate.dmq_watermark)
    queued = [queue_hrmp_message(state, para, message, env.now) for message in candidate.hrmp_messages]
    state.dmq_watermarks[para] = candidate.dmq_watermark
    return tuple(ref for ref in queued if ref is not None)


def prune_dmq(state: EarlyHrmpState, para: ParaId, new_watermark: BlockNumber) -> None:
    """Drop a para's queued messages up to the watermark, inclusive. Each message of a channel frees room in that channel.

    A message of a channel that was removed with its sender frees nothing, not even in a new channel of the same two paras (H-I05, H-I11).
    """
    queue = state.downward_queues.get(para)
    if queue is None:
        return
    passed = []
    for block in queue:
        if block > new_watermark:
            break
        passed.append(block)
    for block in passed:
        for sender, instance, data in queue.pop(block):
            if sender is None:
                continue
            channel = state.channels.get((sender, para))
            if channel is not None and channel.instance == instance:
                channel.used_places -= 1
                channel.used_bytes -= len(data)
                state.touched.channels[sender, para] = None
    if not queue:
        del state.downward_queues[para]


def queue_hrmp_message(
    state: EarlyHrmpState, sender: ParaId, message: HrmpMessage, now: BlockNumber
) -> MessageRef | None:
    """Append a message to its recipient's queue and count it in its channel.

    Limits are not checked again. A message whose channel has been removed since acceptance is skipped (H-I09).
    """
    recipient, payload = message.recipient, message.payload
    channel = state.channels.get((sender, recipient))
    if channel is None:
        return None
    channel.used_places += 1
    channel.used_bytes += len(payload)
    state.touched.channels[sender, recipient] = None
    queued = QueuedMessage(sender, channel.instance, payload)
    return _append(state, recipient, queued, message.payload_hash or message_hash(payload), now)


def queue_downward_message(state: EarlyHrmpState, env: Environment, message: DownwardMessage) -> MessageRef:
    """Append a message of the relay chain to a para's queue. Its size is not limited, and the para need not be registered."""
    para, msg, data_hash = message
    return _append(state, para, QueuedMessage(None, 0, msg), data_hash or message_hash(msg), env.now)


def _append(state: EarlyHrmpState, para: ParaId, message: QueuedMessage, hashed: Hash, now: BlockNumber) -> MessageRef:
    state.downward_queues.setdefault(para, {}).setdefault(now, []).append(message)
    count, head = state.downward_queue_tails.get(para, (0, ZERO_HASH))
    tail = state.downward_queue_tails[para] = QueueTail(count + 1, mqc_link(head, now, hashed))
    state.touched.pages[para] = state.touched.paras[para] = None
    return MessageRef(para, *tail)
