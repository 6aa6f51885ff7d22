# SPDX-License-Identifier: Apache-2.0
"""The protocol's storage and the few ways in which it is touched.

Invariants stand on the fields; `invariants.check_invariants` recomputes all of them. Absent and empty are different: no map keeps an empty
value.
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
    ParaId,
    ParaKind,
    SessionIndex,
)
from validator.protocols.kit import Account, OpenRequests, PendingCandidate, Touched
from validator_xcmp.configuration import XcmpConfiguration
from validator_xcmp.records import Watermark
from validator_xcmp.row_trees import RowTrees, row_root


@dataclass(slots=True)
class Column:
    """A channel: its column of the channel state table and, in parallel, of the metadata.

    ``message_root`` is the root of the sender's message queue heads (the text calls it ``mqc_head``), None where nothing has been sent;
    ``last_updated`` is the height at which it was enacted. ``capacity`` is in messages; the deposits are what was really reserved (X-I15).
    """

    recipient: ParaId
    capacity: int
    sender_deposit: Balance
    recipient_deposit: Balance
    last_updated: BlockNumber = 0
    message_root: Hash | None = None


class QueuedMessage(NamedTuple):
    """A message that waits in a para's downward queue."""

    sent_at: BlockNumber
    msg: bytes


class DownwardTail(NamedTuple):
    """The MQC head of a para's downward queue, and how many messages were ever put into it."""

    head: Hash
    sent: int


@dataclass(slots=True)
class XcmpState:
    """Everything the rules may look at, except the block number, which is an argument."""

    configuration: XcmpConfiguration
    balances_mode: Balances = Balances.LEDGER
    session_index: SessionIndex = 0

    paras: dict[ParaId, ParaKind] = field(default_factory=dict)
    """Registered paras."""
    accounts: dict[ParaId, Account] = field(default_factory=dict)
    """Accounts outlive their para. Invariant: ``reserved`` is the sum of the para's deposits in requests and channels."""
    pending_candidates: dict[ParaId, deque[PendingCandidate]] = field(default_factory=dict)
    """Accepted, not enacted, oldest first (only with enactment on inclusion); gone at every session boundary (X-I12)."""

    rows: dict[ParaId, list[Column]] = field(default_factory=dict)
    """``cst`` and ``cmt`` in one: a sender's columns by index. Never empty. Invariant: both ends of a channel are registered."""
    cst_roots: dict[ParaId, Hash] = field(default_factory=dict)
    """Invariant: for each row, the root over its columns; a row without columns has no entry (X-I14)."""
    ingress: dict[ParaId, dict[ParaId, Column]] = field(default_factory=dict)
    """By recipient, by sender. Invariant: the columns of all rows, each once. Not in the text."""
    watermarks: dict[ParaId, Watermark] = field(default_factory=dict)

    open_requests: OpenRequests = field(default_factory=OpenRequests)
    """Positions are public API."""
    close_requests: dict[ChannelId, ParaId] = field(default_factory=dict)
    """Channels to close at the next boundary, in order of request, each with its initiator."""
    condemned: dict[ChannelId, int] = field(default_factory=dict)
    """Channels that are being closed, in order, each with its counter. Invariant: they exist."""

    downward_queues: dict[ParaId, deque[QueuedMessage]] = field(default_factory=dict)
    """Messages of the relay chain that the para's watermark has not passed. Never empty, in order of ``sent_at``."""
    downward_tails: dict[ParaId, DownwardTail] = field(default_factory=dict)

    touched: Touched = field(default_factory=Touched)
    row_trees: RowTrees = field(default_factory=RowTrees)
    """Derived from `rows`, not part of the state."""


def find_column(state: XcmpState, channel_id: ChannelId) -> Column | None:
    """Return a channel's column, None where there is no such channel."""
    sender, recipient = channel_id
    return state.ingress.get(recipient, {}).get(sender)


def column_index(state: XcmpState, channel_id: ChannelId) -> int:
    """Return where a channel that exists stands in its sender's row."""
    sender, recipient = channel_id
    return next(at for at, column in enumerate(state.rows[sender]) if column.recipient == recipient)


def append_column(state: XcmpState, sender: ParaId, column: Column) -> None:
    """Add a channel behind the sender's others; the root is for the caller to recompute."""
    state.rows.setdefault(sender, []).append(column)
    state.ingress.setdefault(column.recipient, {})[sender] = column
    _touch(state, sender, column.recipient)


def remove_column(state: XcmpState, channel_id: ChannelId) -> Column:
    """Take a channel out of its row, whose later columns move down; the root is for the caller to recompute."""
    sender, recipient = channel_id
    column = state.rows[sender].pop(column_index(state, channel_id))
    if not state.rows[sender]:
        del state.rows[sender]
    senders = state.ingress[recipient]
    del senders[sender]
    if not senders:
        del state.ingress[recipient]
    _touch(state, sender, recipient)
    return column


def recompute_root(state: XcmpState, sender: ParaId) -> None:
    """Set the root of a row that has gained or lost columns to what they give, none where it has none (X-I14)."""
    state.row_trees.forget(sender)
    row = state.rows.get(sender)
    if row is None:
        state.cst_roots.pop(sender, None)
    else:
        state.cst_roots[sender] = row_root(row)


def is_empty(state: XcmpState, sender: ParaId, column: Column) -> bool:
    """Return whether nothing of a channel is unread: never used, or passed by its recipient's watermark (X-I03)."""
    if column.message_root is None:
        return True
    watermark = state.watermarks.get(column.recipient)
    return watermark is not None and watermark >= (column.last_updated, sender)


def _touch(state: XcmpState, sender: ParaId, recipient: ParaId) -> None:
    """Note that a channel has changed: its sender's page holds it, its recipient has something to read or not."""
    state.touched.pages[sender] = None
    state.touched.paras[sender] = state.touched.paras[recipient] = None
