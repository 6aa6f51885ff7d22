# SPDX-License-Identifier: Apache-2.0
"""Sovereign accounts: the balance a para can spend, and the balance reserved for deposits."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Protocol

from validator.core.state import Touched
from validator.core.types import Balance, Balances, Para, ParaId


@dataclass(slots=True)
class Account:
    """A para's sovereign account: its spendable balance and its reserved deposits."""

    free: Balance = 0
    reserved: Balance = 0


class Ledger(Protocol):
    """The part of a state that holds accounts. Accounts outlive their para."""

    accounts: dict[ParaId, Account]
    balances_mode: Balances

    @property
    def touched(self) -> Touched:
        """Return the change marks."""


def reserve(state: Ledger, para: ParaId, amount: Balance) -> None:
    """Reserve a deposit on a para's account. The caller has already checked the funds (`missing_funds`)."""
    account = state.accounts.setdefault(para, Account())
    if state.balances_mode is Balances.LEDGER:
        account.free -= amount
    account.reserved += amount
    state.touched.pages[para] = None


def unreserve(state: Ledger, para: ParaId, amount: Balance) -> Balance:
    """Move a deposit back to a para's free balance, up to the reserved balance. Return the amount moved."""
    account = state.accounts.setdefault(para, Account())
    returned = min(amount, account.reserved)
    account.reserved -= returned
    if state.balances_mode is Balances.LEDGER:
        account.free += returned
    state.touched.pages[para] = None
    return returned


def endow(state: Ledger, para: Para) -> None:
    """Add a para's onboarding balance to the balance that its account has kept."""
    account = state.accounts.setdefault(para.para_id, Account())
    if state.balances_mode is Balances.LEDGER:
        account.free += para.balance
    state.touched.pages[para.para_id] = None


def free_balance(state: Ledger, para: ParaId) -> Balance:
    """Return the balance that a para can spend; 0 on a chain without a ledger."""
    account = state.accounts.get(para)
    return 0 if account is None else account.free


def accounts_view(state: Ledger, paras: Container[ParaId]) -> dict[str, dict[str, Balance]]:
    """Return the accounts as the conformance format has them: those of ``paras``, and those that hold anything."""
    return {
        str(para): {"free": account.free, "reserved": account.reserved}
        for para, account in sorted(state.accounts.items())
        if para in paras or account.free or account.reserved
    }


def missing_funds(state: Ledger, para: ParaId, needed: Balance) -> Balance | None:
    """Return a para's free balance if it is below ``needed``, else None. On a chain without a ledger every para can pay."""
    if state.balances_mode is Balances.UNLIMITED:
        return None
    free = free_balance(state, para)
    return free if free < needed else None
