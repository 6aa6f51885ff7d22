# SPDX-License-Identifier: Apache-2.0
"""Row roots for the naive model. Source: xcmp_rules 1.1."""

from __future__ import annotations

from validator.simulate import blake2b_256


def le32(number: int) -> bytes:
    """Return a u32 in little endian."""
    return number.to_bytes(4, "little")


def tree_hash(leaves: list[bytes]) -> bytes:
    """Return the root of one or more leaf hashes, in the shape of RFC 9162 2.1.1."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return blake2b_256(b"\x01" + tree_hash(leaves[:split]) + tree_hash(leaves[split:]))


def row_root(columns: list[tuple[int, int, str | None]]) -> str:
    """Return the root, in hex, of a row of one or more ``(recipient, last_updated, message_root)``."""
    leaves = []
    for recipient, last_updated, root in columns:
        option = b"\x00" if root is None else b"\x01" + bytes.fromhex(root)
        leaves.append(blake2b_256(b"\x00xcmp/cst\x01" + le32(recipient) + le32(last_updated) + option))
    return blake2b_256(b"\x02xcmp/cst\x01" + le32(len(leaves)) + tree_hash(leaves)).hex()
