# SPDX-License-Identifier: Apache-2.0
"""Encoding and decoding of the Balances pallet's transfers and of paras' sovereign accounts.

A call is the pallet's index (a byte), the call's index (a byte), ``dest`` as a ``MultiAddress`` (a byte 0 for ``Id``, then the account's 32
bytes) and ``value`` as a compact u128. A para's sovereign account is ``para``, its id as u32, and zeros. Source: polkadot-sdk,
substrate/frame/balances/src/lib.rs (``call_index``), substrate/primitives/runtime/src/multiaddress.rs, polkadot/parachain/src/primitives.rs
(``TypeId for Id``), substrate/primitives/runtime/src/traits (``AccountIdConversion``); the pallet's index comes from Polkadot's runtime
(polkadot-fellows/runtimes, relay/polkadot/src/lib.rs ``construct_runtime``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from validator.plugin.api import DecodeError, ParaId, Reader, Writer

PALLET_INDEX: Final = 5
"""The Balances pallet's index on Polkadot."""

TRANSFER_ALLOW_DEATH: Final = 0
TRANSFER_KEEP_ALIVE: Final = 3
"""Indices of the calls."""

INDEX_BYTES: Final = 2
ACCOUNT_BYTES: Final = 32
ACCOUNT_START: Final = b"para"
MULTI_ADDRESS_ID: Final = 0
VALUE_MAX: Final = 2**128 - 1


@dataclass(frozen=True, slots=True)
class Transfer:
    """Pay ``value``, in the smallest unit of the relay chain's token, to the sovereign account of para ``dest``."""

    dest: ParaId
    value: int


def sovereign_account(para: ParaId) -> bytes:
    """Return the 32 bytes of a para's account on the relay chain. Raises ``OverflowError`` if ``para`` is not a u32."""
    return (ACCOUNT_START + para.to_bytes(4, "little")).ljust(ACCOUNT_BYTES, b"\x00")


def para_of(account: bytes) -> ParaId | None:
    """Return the para that owns a sovereign account, or None if it is not a para's account."""
    para = int.from_bytes(account[len(ACCOUNT_START) : len(ACCOUNT_START) + 4], "little")
    return para if account == sovereign_account(para) else None


def encode_transfer(
    dest: ParaId, value: int, *, call_index: int = TRANSFER_ALLOW_DEATH, pallet_index: int = PALLET_INDEX
) -> bytes:
    """Return the bytes of a transfer to a para's sovereign account.

    Raises ``ValueError`` if an index is not a byte, ``OverflowError`` if ``dest`` is not a u32, ``ValueError`` if ``value`` is not a u128.
    """
    out = Writer()
    out.buffer += bytes((pallet_index, call_index))
    out.u8(MULTI_ADDRESS_ID)
    out.hash(sovereign_account(dest))
    if not 0 <= value <= VALUE_MAX:
        raise ValueError(f"value: expected 0 to 2**128 - 1, found {value}")
    out.compact(value)
    return bytes(out.buffer)


def decode_transfer(payload: bytes) -> Transfer:
    """Return the arguments of a transfer. Its prefix is skipped without a check.

    Raises `DecodeError`, in this order: ``dest`` is not an account id; ``dest`` is truncated; the account is not a para's; ``value`` is
    truncated, not in its shortest form, or above 2**128 - 1; bytes are left over.
    """
    reader = Reader(payload)
    reader.take(INDEX_BYTES)
    variant = reader.u8()
    if variant != MULTI_ADDRESS_ID:
        raise DecodeError(f"dest: expected an account id (MultiAddress variant 0), found variant {variant}")
    account = reader.take(ACCOUNT_BYTES)
    dest = para_of(account)
    if dest is None:
        raise DecodeError(f"dest: expected the sovereign account of a para, found {account.hex()}")
    value = reader.compact()
    if value > VALUE_MAX:
        raise DecodeError(f"value: expected 0 to 2**128 - 1, found a number of {value.bit_length()} bits")
    reader.end()
    return Transfer(dest, value)
