# SPDX-License-Identifier: Apache-2.0
"""Sovereign accounts: what a para may spend, and what is held back as deposits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from validator.core.rules import Touched
from validator.core.types import Balance, Balances, Para, ParaId


@dataclass(slots=True)
class Account:
    """A para's sovereign account: what it may spend and what is held back as deposits."""

    free: Balance = 0
    reserved: Balance = 0


class Ledger(Protocol):
    """The part of a state that holds accounts. Accounts outlive their para."""

    accounts: dict[ParaId, Account]
    balances_mode: Balances

    @property
    def touched(self) -> Touched:
        """Return what has changed."""


def reserve(state: Ledger, para: ParaId, amount: Balance) -> None:
    """Hold back a deposit on a para's account; the caller has checked that the funds are there (`missing_funds`)."""
    account = state.accounts.setdefault(para, Account())
    if state.balances_mode is Balances.LEDGER:
        account.free -= amount
    account.reserved += amount
    state.touched.pages[para] = None


def unreserve(state: Ledger, para: ParaId, amount: Balance) -> Balance:
    """Return a deposit to a para's free balance, at most what is held back, and return how much that was."""
    account = state.accounts.setdefault(para, Account())
    returned = min(amount, account.reserved)
    account.reserved -= returned
    if state.balances_mode is Balances.LEDGER:
        account.free += returned
    state.touched.pages[para] = None
    return returned


def endow(state: Ledger, para: Para) -> None:
    """Add what a para brings when it is onboarded to what its account has kept."""
    account = state.accounts.setdefault(para.para_id, Account())
    if state.balances_mode is Balances.LEDGER:
        account.free += para.balance
    state.touched.pages[para.para_id] = None


def free_balance(state: Ledger, para: ParaId) -> Balance:
    """Return what a para may spend; a chain without a ledger keeps no free balances."""
    account = state.accounts.get(para)
    return 0 if account is None else account.free


def missing_funds(state: Ledger, para: ParaId, needed: Balance) -> Balance | None:
    """Return a para's free balance if it is below ``needed``, None if the para can pay. A chain without a ledger never refuses."""
    if state.balances_mode is Balances.UNLIMITED:
        return None
    free = free_balance(state, para)
    return free if free < needed else None
