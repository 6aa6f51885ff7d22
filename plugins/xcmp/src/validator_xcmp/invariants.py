# SPDX-License-Identifier: Apache-2.0
"""All invariants of the storage, recomputed from ground truth."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from validator.plugin.protocol_api import Balance, ParaId
from validator.protocols.kit import broken_deposits, channel_name, raise_if_broken
from validator_xcmp.row_trees import row_root
from validator_xcmp.state import XcmpState


def check_invariants(state: XcmpState) -> None:
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
