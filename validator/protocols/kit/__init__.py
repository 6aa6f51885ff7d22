# SPDX-License-Identifier: Apache-2.0
"""What protocols of relay chains have in common, for authors of rule sets to compose.

Accounts with deposits (`ledger`), candidates that wait for their inclusion (`pending`), the list of open requests (`requests`), marks for
what has changed and the layout of pages (`pages`), indexes of channels (`indexes`), and the invariants of all of these (`invariants`).
Within a major version of the plugin API names are added, never removed or changed in meaning.
"""

from __future__ import annotations

from validator.protocols.kit.indexes import channel_name, decrease, increase, insert_sorted, remove_sorted
from validator.protocols.kit.invariants import ascends, broken_deposits, broken_index, raise_if_broken
from validator.protocols.kit.ledger import Account, Ledger, endow, free_balance, missing_funds, reserve, unreserve
from validator.protocols.kit.pages import PageLayout, Touched
from validator.protocols.kit.pending import (
    InclusionCandidateNotPending,
    PendingCandidate,
    PendingCandidates,
    TimeoutCandidateNotPending,
    read_pending,
    write_pending,
)
from validator.protocols.kit.requests import OpenRequest, OpenRequests

__all__ = [
    "Account",
    "InclusionCandidateNotPending",
    "Ledger",
    "OpenRequest",
    "OpenRequests",
    "PageLayout",
    "PendingCandidate",
    "PendingCandidates",
    "TimeoutCandidateNotPending",
    "Touched",
    "ascends",
    "broken_deposits",
    "broken_index",
    "channel_name",
    "decrease",
    "endow",
    "free_balance",
    "increase",
    "insert_sorted",
    "missing_funds",
    "raise_if_broken",
    "read_pending",
    "remove_sorted",
    "reserve",
    "unreserve",
    "write_pending",
]
