# SPDX-License-Identifier: Apache-2.0
"""Handlers of upward messages with which a para pays another from its sovereign account: calls of the relay chain's Balances pallet.

Source: polkadot-sdk, substrate/frame/balances/src/lib.rs (``pallet::call``, ``pallet::event``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from validator.plugin.api import Context, Handler, Manifest, MessageWeight, Writer, hookimpl
from validator_balances.calls import (
    PALLET_INDEX,
    TRANSFER_ALLOW_DEATH,
    TRANSFER_KEEP_ALIVE,
    Transfer,
    decode_transfer,
    encode_transfer,
    para_of,
    sovereign_account,
)

__all__ = [
    "TRANSFER_ALLOW_DEATH",
    "TRANSFER_KEEP_ALIVE",
    "BelowMinimum",
    "Config",
    "NotExpendable",
    "Transfer",
    "decode_transfer",
    "encode_transfer",
    "para_of",
    "sovereign_account",
    "transfer_allow_death",
    "transfer_keep_alive",
]

__version__ = "1.0.0"

WEIGHT: Final = MessageWeight(1_000)
"""Base weight of a message. Context calls cost extra; bytes cost nothing, because the size is bounded."""

EXISTENTIAL_DEPOSIT: Final = 10_000_000_000
"""Minimum balance of an account on Polkadot: 1 DOT, in its smallest unit."""


class BelowMinimum(Exception):
    """The transfer would leave its recipient with less than the existential deposit."""


class NotExpendable(Exception):
    """The transfer would leave its sender with less than the existential deposit, which it must keep."""


@dataclass(frozen=True, slots=True)
class Config:
    """The relay chain's Balances pallet.

    ``pallet_index`` is a byte, ``existential_deposit`` a u128 in the smallest unit of the chain's token. Raises ``ValueError`` for values
    out of range.
    """

    pallet_index: int = PALLET_INDEX
    existential_deposit: int = EXISTENTIAL_DEPOSIT

    def __post_init__(self) -> None:
        if not 0 <= self.pallet_index <= 255:
            raise ValueError(f"pallet_index: expected 0 to 255, found {self.pallet_index}")
        if not 0 <= self.existential_deposit < 2**128:
            raise ValueError(f"existential_deposit: expected 0 to 2**128 - 1, found {self.existential_deposit}")


def transfer_allow_death(context: Context, call: Transfer) -> None:
    """Move ``call.value`` from the sovereign account of the message's origin to that of ``call.dest``.

    Emits ``transfer`` with the event's fields as SCALE: from and to, 32 bytes each, and the amount, a u128. The sender may keep less than
    the existential deposit; its account then stays. Raises the errors of `Context.transfer`, then `BelowMinimum`.
    """
    context.transfer(call.dest, call.value)
    deposit = context.config.existential_deposit
    if call.value and (left := context.free_balance(call.dest)) < deposit:
        raise BelowMinimum(
            f"para {call.dest} would hold {left}, expected at least the existential deposit of {deposit}"
        )
    out = Writer()
    out.hash(sovereign_account(context.origin))
    out.hash(sovereign_account(call.dest))
    out.u128(call.value)
    context.emit("transfer", bytes(out.buffer))


def transfer_keep_alive(context: Context, call: Transfer) -> None:
    """Do the same as `transfer_allow_death`. Raises its errors, then `NotExpendable` if the sender would keep less than the deposit."""
    transfer_allow_death(context, call)
    deposit = context.config.existential_deposit
    if (left := context.free_balance(context.origin)) < deposit:
        raise NotExpendable(
            f"para {context.origin} would keep {left}, expected at least the existential deposit of {deposit}"
        )


@hookimpl
def validator_manifest() -> Manifest:
    """Return the plugin's manifest."""
    return Manifest(name="balances", version=__version__, api_version=(2, 0), config_type=Config)


@hookimpl
def validator_handlers(config: Config) -> Iterable[Handler]:
    """Yield a handler for each call; its prefix is the two index bytes."""
    for index, handle in ((TRANSFER_ALLOW_DEATH, transfer_allow_death), (TRANSFER_KEEP_ALIVE, transfer_keep_alive)):
        prefix = bytes((config.pallet_index, index))
        yield Handler(kind=handle.__name__, handle=handle, weight=WEIGHT, prefix=prefix, decode=decode_transfer)
