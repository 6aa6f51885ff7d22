# SPDX-License-Identifier: Apache-2.0
"""The storage of XCMP channels, by the names of xcmp_channels.txt, with its limits and its invariants.

Each field's docstring states its invariants; `check_invariants` recomputes all of them from ground truth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
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
    ParaId,
    ParaKind,
    SessionIndex,
)
from validator.protocols.kit import (
    Account,
    OpenRequests,
    PendingCandidate,
    Touched,
    broken_deposits,
    channel_name,
    raise_if_broken,
)
from validator_xcmp.merkle import RowTrees, row_root
from validator_xcmp.records import Watermark

# --- configuration --------------------------------------------------------------------------------------------------------------------
# The relay chain's limits for channels, by the names of the conformance format.


@dataclass(frozen=True, slots=True)
class XcmpConfiguration:
    """Counts are messages or channels, deposits are balances, the TTL and condemned sessions are numbers of session boundaries.

    Every field defaults to zero: nothing is allowed. Source: xcmp_channels.txt, xcmp_rules 1.2.
    """

    xcmp_channel_capacity: int = 0
    """Messages that a new channel may hold. The relay chain stores it for the sender and never checks it."""
    xcmp_max_outbound_channels: int = 0
    """Maximum sum of a sender's columns and open requests."""
    xcmp_sender_deposit: Balance = 0
    xcmp_recipient_deposit: Balance = 0
    xcmp_open_request_ttl: SessionIndex = 0
    """Session boundaries after which an unconfirmed request expires."""
    xcmp_condemned_sessions: SessionIndex = 0
    """Initial counter of a condemned channel. The boundary that sets it also decrements it (X-I02)."""


MAXIMA: Final[Mapping[str, int]] = {
    "xcmp_channel_capacity": U32_MAX,
    "xcmp_max_outbound_channels": U32_MAX,
    "xcmp_sender_deposit": U128_MAX,
    "xcmp_recipient_deposit": U128_MAX,
    "xcmp_open_request_ttl": U32_MAX,
    "xcmp_condemned_sessions": U32_MAX,
}
"""Maximum of each limit."""

WATERMARK_REGIME: Final = "watermark_regime"
"""How a candidate's watermark is checked (X-I01); ``tuple`` is the only regime."""
LIMITS: Final = (*MAXIMA, WATERMARK_REGIME)
"""All names that a configuration may contain."""


def read_configuration(node: Node) -> XcmpConfiguration:
    """Read the limits of an object; limits that are not given are zero. Raises `validator.errors.UserError`."""
    node.refuse_misspelt(LIMITS)
    if node.has(WATERMARK_REGIME):
        node[WATERMARK_REGIME].one_of(["tuple"])
    return XcmpConfiguration(
        **{name: node[name].integer(greatest) for name, greatest in MAXIMA.items() if node.has(name)}
    )


# --- state ----------------------------------------------------------------------------------------------------------------------------


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


# --- invariants -----------------------------------------------------------------------------------------------------------------------
# All invariants of the storage, recomputed from ground truth.


def check_invariants(state: XcmpState, _profile: object = None) -> None:
    """Raise `InvariantBroken` with a sentence for every invariant that the state breaks."""
    raise_if_broken(broken_invariants(state))


def broken_invariants(state: XcmpState) -> Iterator[str]:
    """Yield a sentence for each invariant that does not hold."""
    yield from _channels(state)
    yield from _roots(state)
    yield from _requests(state)
    yield from _downward(state)
    yield from broken_deposits(state, _deposits(state))


def _channels(state: XcmpState) -> Iterator[str]:
    by_row = {(sender, column.recipient): id(column) for sender, row in state.rows.items() for column in row}
    by_recipient = {
        (sender, recipient): id(column)
        for recipient, senders in state.ingress.items()
        for sender, column in senders.items()
    }
    if by_row != by_recipient or len(by_row) != sum(map(len, state.rows.values())):
        yield f"the rows hold {sorted(by_row)}, the index of senders {sorted(by_recipient)}"
    if not all(state.rows.values()) or not all(state.ingress.values()):
        yield "a row or an entry of the index of senders is empty"
    for sender, recipient in by_row:
        name = channel_name((sender, recipient))
        if sender == recipient:
            yield f"channel {name} leads to its sender"
        for para in (sender, recipient):
            if para not in state.paras:
                yield f"channel {name} is open, but {para} is not a registered para"
    for sender, recipient in (*state.condemned, *state.close_requests):
        if (sender, recipient) not in by_row:
            yield f"channel {channel_name((sender, recipient))} is condemned or to be closed, but does not exist"
    for sender, recipient in state.condemned:
        if (sender, recipient) in state.close_requests:
            yield f"channel {channel_name((sender, recipient))} is both condemned and to be closed"
    for para, pending in state.pending_candidates.items():
        if not pending:
            yield f"the pending candidates of {para} are none"
        for _, candidate in pending:
            if len(candidate.bitfield) > len(state.rows.get(para, ())):
                yield f"a pending candidate of {para} has more bits than its row has columns"


def _roots(state: XcmpState) -> Iterator[str]:
    roots = {sender: row_root(row) for sender, row in state.rows.items()}
    if roots != state.cst_roots:
        wrong = sorted(para for para in roots.keys() | state.cst_roots if roots.get(para) != state.cst_roots.get(para))
        yield f"the roots of the rows of {wrong} are not those of their columns"


def _requests(state: XcmpState) -> Iterator[str]:
    channels = {(sender, recipient) for recipient, senders in state.ingress.items() for sender in senders}
    yield from state.open_requests.broken_invariants(channels)


def _downward(state: XcmpState) -> Iterator[str]:
    for para, queue in state.downward_queues.items():
        if not queue:
            yield f"the downward queue of {para} is empty"
        if any(later.sent_at < earlier.sent_at for earlier, later in pairwise(queue)):
            yield f"the downward queue of {para} is not in order of sent_at"
        tail = state.downward_tails.get(para)
        if tail is None or tail.sent < len(queue):
            yield f"the downward queue of {para} holds more than was ever put into it"


def _deposits(state: XcmpState) -> Iterator[tuple[ParaId, Balance]]:
    yield from state.open_requests.deposits()
    for sender, row in state.rows.items():
        for column in row:
            yield sender, column.sender_deposit
            yield column.recipient, column.recipient_deposit
