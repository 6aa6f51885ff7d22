# SPDX-License-Identifier: Apache-2.0
"""The hashes of a relay chain: BLAKE2b-256 of headers, extrinsics and trie nodes; xxHash and BLAKE2b-128 of storage keys."""

from __future__ import annotations

from hashlib import blake2b

from xxhash import xxh64_intdigest


def blake2b_256(data: bytes) -> bytes:
    """Return the 32 bytes of BLAKE2b-256."""
    return blake2b(data, digest_size=32).digest()


def blake2b_128(data: bytes) -> bytes:
    """Return the 16 bytes of BLAKE2b-128."""
    return blake2b(data, digest_size=16).digest()


def twox_64(data: bytes, seed: int = 0) -> bytes:
    """Return the 8 bytes of xxHash64, little-endian."""
    return xxh64_intdigest(data, seed).to_bytes(8, "little")


def twox_128(data: bytes) -> bytes:
    """Return 16 bytes: xxHash64 with seed 0, then with seed 1."""
    return twox_64(data) + twox_64(data, 1)
