# SPDX-License-Identifier: Apache-2.0
"""Bytes of message queue chains, spelled out for the naive model."""

from __future__ import annotations

from hashlib import blake2b


def blake2b_256(data: bytes) -> bytes:
    """Return the 32-byte BLAKE2b digest."""
    return blake2b(data, digest_size=32).digest()


def compact(number: int) -> bytes:
    """Return the SCALE compact form of a number below 2**30, which is more bytes than any message has."""
    if number < 1 << 6:
        return bytes([number * 4])
    if number < 1 << 14:
        return (number * 4 + 1).to_bytes(2, "little")
    return (number * 4 + 2).to_bytes(4, "little")


def next_head(previous: bytes, block: int, message: bytes) -> bytes:
    """Return the head of a message queue chain after one more message. Source: xcmp_rules 1.1, HRMP link."""
    return blake2b_256(previous + block.to_bytes(4, "little") + blake2b_256(compact(len(message)) + message))
