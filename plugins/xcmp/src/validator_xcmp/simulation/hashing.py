# SPDX-License-Identifier: Apache-2.0
"""Bytes of roots and queue heads, spelled out for the naive model. Source: xcmp_rules 1.1."""

from __future__ import annotations

from hashlib import blake2b


def digest(data: bytes) -> bytes:
    """Return the 32-byte BLAKE2b digest."""
    return blake2b(data, digest_size=32).digest()


def le32(number: int) -> bytes:
    """Return a u32 in little endian."""
    return number.to_bytes(4, "little")


def compact(number: int) -> bytes:
    """Return the SCALE compact form of a number below 2**30, which is more bytes than any message has."""
    if number < 1 << 6:
        return bytes([number * 4])
    if number < 1 << 14:
        return (number * 4 + 1).to_bytes(2, "little")
    return (number * 4 + 2).to_bytes(4, "little")


def next_head(previous: bytes, block: int, message: bytes) -> bytes:
    """Return the head of a downward queue's chain after one more message."""
    return digest(previous + le32(block) + digest(compact(len(message)) + message))


def tree_hash(leaves: list[bytes]) -> bytes:
    """Return the root of hashed leaves, at least one, in the shape of RFC 9162 2.1.1."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return digest(b"\x01" + tree_hash(leaves[:split]) + tree_hash(leaves[split:]))


def row_root(columns: list[tuple[int, int, str | None]]) -> str:
    """Return the root of a row of ``(recipient, last_updated, message_root)``, at least one, in hex."""
    leaves = []
    for recipient, last_updated, root in columns:
        option = b"\x00" if root is None else b"\x01" + bytes.fromhex(root)
        leaves.append(digest(b"\x00xcmp/cst\x01" + le32(recipient) + le32(last_updated) + option))
    return digest(b"\x02xcmp/cst\x01" + le32(len(leaves)) + tree_hash(leaves)).hex()
