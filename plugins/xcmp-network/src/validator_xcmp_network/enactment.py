# SPDX-License-Identifier: Apache-2.0
"""Candidate enactment. It changes the state and cannot fail. Source: xcmp_rules 1.4 "Enactment"."""

from __future__ import annotations

from validator_xcmp import enactment as xcmp

from validator.plugin.protocol_api import (
    BlockNumber,
    ChannelId,
    Environment,
    IngressEventKind,
    IngressLog,
    MessageRef,
    ParaId,
)
from validator_xcmp_network.acceptance import channel_part
from validator_xcmp_network.queues import Entry, IngressQueue
from validator_xcmp_network.records import Candidate, MessageName, OutboxMessage
from validator_xcmp_network.state import NetworkState, find_entry, has_channel, touch_channel


def enact_candidate(state: NetworkState, env: Environment, candidate: Candidate) -> tuple[MessageRef, ...]:
    """Enact a candidate: its channels, if the rules of XCMP channels hold; then its acknowledgements, then its outbox.

    The second of a para in a block, which no block record may include, has no effect (N-I11).
    On a chain with fixed channels, the para has read the relay chain's own messages up to its relay parent (N-I15).
    """
    para = candidate.para_id
    if state.enacted_in.get(para) == env.now:
        return ()
    state.enacted_in[para] = env.now
    if state.is_composed:
        xcmp.enact_candidate(state, env, channel_part(state, candidate))
    else:
        xcmp.prune_downward_queue(state, para, candidate.relay_parent_number)
    state.touched.pages[para] = state.touched.paras[para] = None
    acknowledge(state, para, candidate.acks, env.ingress)
    send(state, para, candidate.outbox, env.now, env.ingress)
    return ()


def acknowledge(state: NetworkState, para: ParaId, acks: tuple[MessageName, ...], log: IngressLog) -> None:
    """Remove everything that the acknowledgements cover and is still unread; its bodies are free."""
    queue = state.queues.get(para)
    if queue is None:
        return
    for entry in queue.acknowledge(queue.covered(acks)):
        _emit(log, IngressEventKind.ACKNOWLEDGED, (entry.sender, para), entry)
        touch_channel(state, (entry.sender, para))


def send(
    state: NetworkState, para: ParaId, outbox: tuple[OutboxMessage, ...], now: BlockNumber, log: IngressLog
) -> None:
    """Append messages to their recipients' queues.

    A message is skipped if its channel has gone since acceptance, or if its name is taken by another candidate of the block (N-I16).
    """
    for recipient, root, size in outbox:
        channel_id = para, recipient
        if not has_channel(state, channel_id) or find_entry(state, recipient, now, para) is not None:
            continue
        entry = Entry(now, para, root, size)
        state.queues.setdefault(recipient, IngressQueue()).append(entry)
        _emit(log, IngressEventKind.QUEUED, channel_id, entry)
        touch_channel(state, channel_id)


def remove_messages(state: NetworkState, channel_id: ChannelId, log: IngressLog) -> None:
    """Remove the messages of a channel that is gone: fairness forbids its recipient to pass over them."""
    sender, recipient = channel_id
    touch_channel(state, channel_id)
    queue = state.queues.get(recipient)
    if queue is None:
        return
    for entry in queue.remove_sender(sender):
        _emit(log, IngressEventKind.REMOVED, channel_id, entry)
    if queue.is_blank:
        del state.queues[recipient]


def _emit(log: IngressLog, event: IngressEventKind, channel_id: ChannelId, entry: Entry) -> None:
    log.add(event, channel_id, sent_at=entry.sent_at, root=entry.root, size=entry.size)
