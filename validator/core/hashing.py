# SPDX-License-Identifier: Apache-2.0
"""Hashes, and the SCALE encoding of what they cover."""

from __future__ import annotations

from hashlib import blake2b

from validator.core.types import BlockNumber, Hash


def blake2b_256(data: bytes) -> Hash:
    """Return the 32-byte BLAKE2b digest of ``data`` (RFC 7693)."""
    return blake2b(data, digest_size=32).digest()


def compact(value: int) -> bytes:
    """Return the SCALE compact encoding of a non-negative integer below 2**536."""
    if value < 1 << 6:
        return bytes((value << 2,))
    if value < 1 << 14:
        return (value << 2 | 1).to_bytes(2, "little")
    if value < 1 << 30:
        return (value << 2 | 2).to_bytes(4, "little")
    size = (value.bit_length() + 7) // 8
    return bytes(((size - 4) << 2 | 3,)) + value.to_bytes(size, "little")


def message_hash(message: bytes) -> Hash:
    """Return H(M): the BLAKE2b-256 of the message as a SCALE ``Vec<u8>``, its length prefix included."""
    return blake2b(compact(len(message)) + message, digest_size=32).digest()


def mqc_link(previous_head: Hash, block: BlockNumber, hashed_message: Hash) -> Hash:
    """Return the head of a message queue chain after one more message.

    ``block`` is the block of enactment (HRMP) or of queueing (DMP).
    """
    return blake2b(previous_head + block.to_bytes(4, "little") + hashed_message, digest_size=32).digest()
