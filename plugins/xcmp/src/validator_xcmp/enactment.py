# SPDX-License-Identifier: Apache-2.0
"""Candidate enactment and downward messages. They change the state and cannot fail.

Source: xcmp_channels.txt "Enactment", xcmp_rules 1.2.
"""

from __future__ import annotations

from collections import deque

from validator.plugin.protocol_api import ZERO_HASH, BlockNumber, DownwardMessage, Environment, MessageRef, ParaId
from validator_xcmp.acceptance import marked_columns
from validator_xcmp.commitments import hrmp_link, message_hash
from validator_xcmp.records import Candidate
from validator_xcmp.state import DownwardTail, QueuedMessage, XcmpState


def enact_candidate(state: XcmpState, env: Environment, candidate: Candidate) -> tuple[MessageRef, ...]:
    """Set the root and the height of enactment in every marked column, then the row's root once, then the watermark."""
    para = candidate.para_id
    touched = state.touched
    touched.pages[para] = touched.paras[para] = None
    marked = marked_columns(candidate.bitfield)
    if marked:
        row = state.rows[para]
        for index in marked:
            column = row[index]
            column.last_updated = env.now
            column.message_root = candidate.message_root
            touched.paras[column.recipient] = None
        state.cst_roots[para] = state.row_trees.root(para, row, marked)
    state.watermarks[para] = candidate.watermark
    prune_downward_queue(state, para, candidate.watermark[0])
    return ()


def queue_downward_message(state: XcmpState, env: Environment, message: DownwardMessage) -> MessageRef:
    """Append a message to a para's downward queue and return its position. The para need not exist."""
    para, msg, data_hash = message
    head, sent = state.downward_tails.get(para, DownwardTail(ZERO_HASH, 0))
    tail = DownwardTail(hrmp_link(head, env.now, data_hash or message_hash(msg)), sent + 1)
    state.downward_tails[para] = tail
    state.downward_queues.setdefault(para, deque()).append(QueuedMessage(env.now, msg))
    state.touched.pages[para] = state.touched.paras[para] = None
    return MessageRef(para, tail.sent, tail.head)


def prune_downward_queue(state: XcmpState, para: ParaId, block: BlockNumber) -> None:
    """Drop a para's queued messages up to a block, inclusive: within a block the relay chain's messages precede those of paras."""
    queue = state.downward_queues.get(para)
    if queue is None:
        return
    while queue and queue[0].sent_at <= block:
        queue.popleft()
    if not queue:
        del state.downward_queues[para]
