# SPDX-License-Identifier: Apache-2.0
"""The protocol's storage.

Each field's docstring states its invariants; `invariants.check_invariants` recomputes all of them. Absent and empty are different: no map
keeps an empty value.
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
    """A channel: its column of the channel state table, together with its column of the metadata table.

    ``message_root`` is the root of the sender's message queue heads (``mqc_head`` in the text), or None if nothing has been sent.
    ``last_updated`` is the height at which it was enacted. ``capacity`` is in messages. The deposits are the reserved amounts (X-I15).
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
    """The MQC head of a para's downward queue, and the number of messages ever added to it."""

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
    """Accepted but not yet enacted, oldest first. Used only with enactment on inclusion; dropped at session boundaries (X-I12)."""

    rows: dict[ParaId, list[Column]] = field(default_factory=dict)
    """``cst`` and ``cmt`` combined: a sender's columns by index. Never empty. Invariant: both ends of a channel are registered."""
    cst_roots: dict[ParaId, Hash] = field(default_factory=dict)
    """Invariant: for each row, the root over its columns; a row without columns has no entry (X-I14)."""
    ingress: dict[ParaId, dict[ParaId, Column]] = field(default_factory=dict)
    """By recipient, then by sender. Invariant: the columns of all rows, each once. Not in the text."""
    watermarks: dict[ParaId, Watermark] = field(default_factory=dict)

    open_requests: OpenRequests = field(default_factory=OpenRequests)
    """Requests name entries by index, so positions are part of the public interface."""
    close_requests: dict[ChannelId, ParaId] = field(default_factory=dict)
    """Channels to close at the next session boundary, in order of request, each with its initiator."""
    condemned: dict[ChannelId, int] = field(default_factory=dict)
    """Condemned channels, in order, each with its counter. Invariant: they exist."""

    downward_queues: dict[ParaId, deque[QueuedMessage]] = field(default_factory=dict)
    """Messages from the relay chain that the para's watermark has not passed. Never empty, in order of ``sent_at``."""
    downward_tails: dict[ParaId, DownwardTail] = field(default_factory=dict)

    touched: Touched = field(default_factory=Touched)
    row_trees: RowTrees = field(default_factory=RowTrees)
    """Derived from `rows`, not part of the state."""


def find_column(state: XcmpState, channel_id: ChannelId) -> Column | None:
    """Return a channel's column, or None if there is no such channel."""
    sender, recipient = channel_id
    return state.ingress.get(recipient, {}).get(sender)


def column_index(state: XcmpState, channel_id: ChannelId) -> int:
    """Return the index of an existing channel in its sender's row."""
    sender, recipient = channel_id
    return next(at for at, column in enumerate(state.rows[sender]) if column.recipient == recipient)


def append_column(state: XcmpState, sender: ParaId, column: Column) -> None:
    """Append a channel to the sender's row. The caller recomputes the root."""
    state.rows.setdefault(sender, []).append(column)
    state.ingress.setdefault(column.recipient, {})[sender] = column
    _touch(state, sender, column.recipient)


def remove_column(state: XcmpState, channel_id: ChannelId) -> Column:
    """Remove a channel from its row and move later columns down. The caller recomputes the root."""
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
    """Recompute the root of a row that has gained or lost columns. A row without columns has no root (X-I14)."""
    state.row_trees.forget(sender)
    row = state.rows.get(sender)
    if row is None:
        state.cst_roots.pop(sender, None)
    else:
        state.cst_roots[sender] = row_root(row)


def is_empty(state: XcmpState, sender: ParaId, column: Column) -> bool:
    """Return whether a channel has nothing unread: it was never used, or its recipient's watermark has passed it (X-I03)."""
    if column.message_root is None:
        return True
    watermark = state.watermarks.get(column.recipient)
    return watermark is not None and watermark >= (column.last_updated, sender)


def _touch(state: XcmpState, sender: ParaId, recipient: ParaId) -> None:
    """Mark a channel as changed: its sender's page holds it, and its recipient's unread messages may have changed."""
    state.touched.pages[sender] = None
    state.touched.paras[sender] = state.touched.paras[recipient] = None
