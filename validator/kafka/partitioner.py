# SPDX-License-Identifier: Apache-2.0
"""In which partition the records of a key are: the product's producers choose it as Java clients do (`kafka.client`)."""

from __future__ import annotations

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995


def partition_of(key: bytes, partitions: int) -> int:
    """Return a key's partition. Source: `org.apache.kafka.common.utils.Utils.murmur2`, as the default partitioner uses it."""
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    value = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        value = value * _M & _MASK ^ word
    if rest := data[whole:]:
        value = (value ^ int.from_bytes(rest, "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15
