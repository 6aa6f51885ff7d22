# SPDX-License-Identifier: Apache-2.0
"""Invariants shared by the states of several protocols, recomputed from ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from validator.core.errors import InvariantBroken
from validator.core.types import Balance, ChannelId, ParaId
from validator.protocols.kit.ledger import Ledger


def raise_if_broken(broken: Iterable[str]) -> None:
    """Raise `InvariantBroken` with all sentences, if there are any."""
    sentences = list(broken)
    if sentences:
        raise InvariantBroken("; ".join(sentences))


def broken_deposits(state: Ledger, deposits: Iterable[tuple[ParaId, Balance]]) -> Iterator[str]:
    """Yield a sentence for each account whose reserved balance differs from its deposits, or whose free balance is negative."""
    owed: Counter[ParaId] = Counter()
    for para, deposit in deposits:
        owed[para] += deposit
    for para in sorted(dict.fromkeys((*owed, *state.accounts))):
        account = state.accounts.get(para)
        reserved = account.reserved if account else 0
        if reserved != owed[para]:
            yield f"{para} has {reserved} reserved, its deposits are {owed[para]}"
        if account and account.free < 0:
            yield f"the free balance of {para} is {account.free}"


def broken_index(
    channels: Iterable[ChannelId], ingress: dict[ParaId, list[ParaId]], egress: dict[ParaId, list[ParaId]]
) -> Iterator[str]:
    """Yield a sentence for each index that differs from the set of channels, and for each row that is empty or not ascending."""
    once = Counter(dict.fromkeys(channels, 1))
    if Counter((sender, para) for para, row in ingress.items() for sender in row) != once:
        yield "the ingress index is not the set of channels"
    if Counter((para, recipient) for para, row in egress.items() for recipient in row) != once:
        yield "the egress index is not the set of channels"
    for name, index in (("ingress", ingress), ("egress", egress)):
        for key, row in index.items():
            if not row or not ascends(row):
                yield f"the {name} index row of {key} is empty, unsorted or not unique: {row}"


def ascends(items: Sequence[int]) -> bool:
    """Return whether each item is greater than the one before."""
    return all(earlier < later for earlier, later in pairwise(items))
