# SPDX-License-Identifier: Apache-2.0
"""Encoding and decoding of three calls of the relay chain's Hrmp pallet.

A call is the pallet's index (a byte), the call's index (a byte) and its arguments as SCALE. All arguments are little-endian u32; a
``HrmpChannelId`` is its sender and its recipient. Source: polkadot-sdk, polkadot/runtime/parachains/src/hrmp.rs (``call_index``) and
polkadot/parachain/src/primitives.rs (``HrmpChannelId``). The pallet's index comes from the runtimes of Polkadot and Kusama
(polkadot-fellows/runtimes, relay/*/src/lib.rs ``construct_runtime``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from validator.plugin.api import DecodeError, ParaId, Reader, Writer

PALLET_INDEX: Final = 60
"""The Hrmp pallet's index on Polkadot and on Kusama."""

INDEX_BYTES: Final = 2
ARGUMENT_BYTES: Final = 4


class CallKind(NamedTuple):
    """A call's name, its index in the pallet, and its number of u32 arguments."""

    name: str
    call_index: int
    arguments: int

    @property
    def size(self) -> int:
        """The size of the encoded call in bytes."""
        return INDEX_BYTES + ARGUMENT_BYTES * self.arguments


INIT_OPEN_CHANNEL: Final = CallKind("hrmp_init_open_channel", 0, 3)
ACCEPT_OPEN_CHANNEL: Final = CallKind("hrmp_accept_open_channel", 1, 1)
CLOSE_CHANNEL: Final = CallKind("hrmp_close_channel", 2, 2)


@dataclass(frozen=True, slots=True)
class InitOpenChannel:
    """Request a channel to ``recipient``, of at most ``proposed_max_capacity`` messages of ``proposed_max_message_size`` bytes."""

    recipient: ParaId
    proposed_max_capacity: int
    proposed_max_message_size: int


@dataclass(frozen=True, slots=True)
class AcceptOpenChannel:
    """Confirm the request of ``sender``."""

    sender: ParaId


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """Close the channel from ``sender`` to ``recipient``."""

    sender: ParaId
    recipient: ParaId


Call: TypeAlias = InitOpenChannel | AcceptOpenChannel | CloseChannel


def encode(call: Call, pallet_index: int = PALLET_INDEX) -> bytes:
    """Return a call's bytes.

    Raises ``ValueError`` if ``pallet_index`` is not a byte, ``OverflowError`` if an argument is not a u32.
    """
    match call:
        case InitOpenChannel():
            arguments = [call.recipient, call.proposed_max_capacity, call.proposed_max_message_size]
            kind = INIT_OPEN_CHANNEL
        case AcceptOpenChannel():
            arguments = [call.sender]
            kind = ACCEPT_OPEN_CHANNEL
        case CloseChannel():
            arguments = [call.sender, call.recipient]
            kind = CLOSE_CHANNEL
    out = Writer()
    out.buffer += bytes((pallet_index, kind.call_index))
    for argument in arguments:
        out.u32(argument)
    return bytes(out.buffer)


def decode_init_open_channel(payload: bytes) -> InitOpenChannel:
    """Return the arguments of call 0. Its prefix is skipped without a check. Raises `DecodeError` unless it has 14 bytes."""
    return InitOpenChannel(*_arguments(INIT_OPEN_CHANNEL, payload))


def decode_accept_open_channel(payload: bytes) -> AcceptOpenChannel:
    """Return the argument of call 1. Its prefix is skipped without a check. Raises `DecodeError` unless it has 6 bytes."""
    return AcceptOpenChannel(*_arguments(ACCEPT_OPEN_CHANNEL, payload))


def decode_close_channel(payload: bytes) -> CloseChannel:
    """Return the arguments of call 2. Its prefix is skipped without a check. Raises `DecodeError` unless it has 10 bytes."""
    return CloseChannel(*_arguments(CLOSE_CHANNEL, payload))


def _arguments(kind: CallKind, payload: bytes) -> list[int]:
    if len(payload) != kind.size:
        raise DecodeError(f"{kind.name}: expected {kind.size} bytes, found {len(payload)}")
    reader = Reader(payload)
    reader.take(INDEX_BYTES)
    return [reader.u32() for _ in range(kind.arguments)]
