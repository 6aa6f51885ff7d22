# SPDX-License-Identifier: Apache-2.0
"""Reports of bodies. The relay chain never sees a body: whoever holds one reports its root and size.

Source: xcmp_rules 1.4 "Bodies".
"""

from __future__ import annotations

from validator_xcmp_network.errors import BodyDuplicate, BodyNotExpected, BodyRootMismatch, BodySizeMismatch
from validator_xcmp_network.records import ReportBody
from validator_xcmp_network.state import NetworkState, find_entry


def report_body(state: NetworkState, report: ReportBody) -> None:
    """Note that a message's body is held, until the message is acknowledged.

    Raises `BodyNotExpected` (N-I07), `BodySizeMismatch`, `BodyRootMismatch`, `BodyDuplicate`.
    """
    recipient, sender, sent_at, root, size = report
    entry = find_entry(state, recipient, sent_at, sender)
    if entry is None:
        raise BodyNotExpected(sender=sender, recipient=recipient, sent_at=sent_at)
    if size != entry.size:
        raise BodySizeMismatch(declared=entry.size, actual=size)
    if root != entry.root:
        raise BodyRootMismatch(expected=entry.root.hex())
    if entry.held:
        raise BodyDuplicate(sender=sender, recipient=recipient, sent_at=sent_at)

    entry.held = True
    state.touched.pages[recipient] = None
