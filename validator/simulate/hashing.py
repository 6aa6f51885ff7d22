# SPDX-License-Identifier: Apache-2.0
"""Hashes of message queue chains, spelled out for naive models.

This code is separate from the core on purpose, so that a mistake in one of the two shows up as a difference.
"""

from __future__ import annotations

from hashlib import blake2b


def blake2b_256(data: bytes) -> bytes:
    """Return the 32-byte BLAKE2b digest."""
    return blake2b(data, digest_size=32).digest()


def compact(number: int) -> bytes:
    """Return the SCALE compact form of a number below 2**536. Source: router_rules 1.2."""
    if number < 1 << 6:
        return bytes([number * 4])
    if number < 1 << 14:
        return (number * 4 + 1).to_bytes(2, "little")
    if number < 1 << 30:
        return (number * 4 + 2).to_bytes(4, "little")
    size = (number.bit_length() + 7) // 8
    return bytes([(size - 4) * 4 + 3]) + number.to_bytes(size, "little")


def next_head(previous: bytes, block: int, message: bytes) -> bytes:
    """Return the head of a message queue chain after one more message. Source: router_rules 1.2, xcmp_rules 1.1."""
    return blake2b_256(previous + block.to_bytes(4, "little") + blake2b_256(compact(len(message)) + message))
