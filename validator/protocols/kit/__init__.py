# SPDX-License-Identifier: Apache-2.0
"""Building blocks that relay-chain protocols share. Authors of rule sets compose them.

- `ledger`: accounts with deposits
- `requests`: channel requests, their records, and the list of open ones
- `pages`: the layout of pages
- `indexes`: indexes of channels
- `levels`: how full queues are, for those who watch over them
- `invariants`: the invariants of all of these

A major version of the plugin API may add names. It never removes a name or changes its meaning.
"""

from __future__ import annotations

from validator.core.state import (
    InclusionCandidateNotPending,
    PendingCandidate,
    TimeoutCandidateNotPending,
    Touched,
    read_pending,
    write_pending,
)
from validator.protocols.kit.indexes import channel_name, decrease, increase, insert_sorted, remove_sorted
from validator.protocols.kit.invariants import ascends, broken_deposits, broken_index, raise_if_broken
from validator.protocols.kit.ledger import (
    Account,
    Ledger,
    accounts_view,
    endow,
    free_balance,
    missing_funds,
    reserve,
    unreserve,
)
from validator.protocols.kit.levels import downward_level, lane_level, wanted_subjects
from validator.protocols.kit.pages import PageLayout
from validator.protocols.kit.requests import (
    AcceptOpenChannel,
    AcceptOpenChannelFrom,
    InitOpenChannel,
    OpenRequest,
    OpenRequests,
    RequestRecords,
)

__all__ = [
    "AcceptOpenChannel",
    "AcceptOpenChannelFrom",
    "Account",
    "InclusionCandidateNotPending",
    "InitOpenChannel",
    "Ledger",
    "OpenRequest",
    "OpenRequests",
    "PageLayout",
    "PendingCandidate",
    "RequestRecords",
    "TimeoutCandidateNotPending",
    "Touched",
    "accounts_view",
    "ascends",
    "broken_deposits",
    "broken_index",
    "channel_name",
    "decrease",
    "downward_level",
    "endow",
    "free_balance",
    "increase",
    "insert_sorted",
    "lane_level",
    "missing_funds",
    "raise_if_broken",
    "read_pending",
    "remove_sorted",
    "reserve",
    "unreserve",
    "wanted_subjects",
    "write_pending",
]
