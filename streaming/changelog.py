# SPDX-License-Identifier: Apache-2.0
"""Reads the changelogs that Spark writes next to its RocksDB snapshots: one file per version of a state store, with its changes in order.

A file is a stream of LZ4 blocks (Spark's codec ``lz4``), which hold the version of the format and then records: a kind, the key and the
value, each after its size. Source: `StateStoreChangelogWriterV2` of Spark 4, and `LZ4BlockOutputStream` of lz4-java.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

_BLOCK = Struct("<8sBiiI")
"""Magic, method and level, compressed size, size, checksum; the last block of a stream has size 0."""
_MAGIC = b"LZ4Block"
_STORED, _COMPRESSED = 0x10, 0x20
_VERSION = b"\x00\x02v2"
_SIZE = Struct(">i")
_NO_VALUE = -1

BLOCK_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of the largest block that the format allows."""


class StoreUnreadable(Exception):
    """A file of a state store is damaged, or is not in the expected format. The message is one line."""


class Kind(IntEnum):
    """What a change does."""

    END = 0x00
    PUT = 0x01
    DELETE = 0x10
    MERGE = 0x11
    """Append to the value."""


_KINDS = frozenset(Kind)


class Change(NamedTuple):
    """A change of one key; ``value`` is empty if the key is deleted."""

    kind: Kind
    key: bytes
    value: bytes


def read_changes(path: Path) -> Iterator[Change]:
    """Yield a file's changes. Raises `OSError`, `StoreUnreadable`."""
    data = b"".join(_blocks(path, path.read_bytes()))
    if not data.startswith(_VERSION):
        raise StoreUnreadable(f"{path} is not a changelog of version v2")
    at = len(_VERSION)
    while True:
        kind = data[at : at + 1]
        if not kind or kind[0] not in _KINDS:
            raise _damaged(path, at)
        if kind[0] == Kind.END:
            return
        key, at = _sized(path, data, at + 1)
        value, at = _sized(path, data, at)
        yield Change(Kind(kind[0]), key, value)


def _sized(path: Path, data: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes after a size, and the place after them."""
    start = at + _SIZE.size
    if start > len(data):
        raise _damaged(path, at)
    (size,) = _SIZE.unpack_from(data, at)
    if size == _NO_VALUE:
        return b"", start
    if size < 0 or start + size > len(data):
        raise _damaged(path, at)
    return data[start : start + size], start + size


def _blocks(path: Path, data: bytes) -> Iterator[bytes]:
    codec = pa.Codec("lz4_raw")
    at = 0
    while at + _BLOCK.size <= len(data):
        magic, token, packed_size, size, _ = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        packed = data[at : at + packed_size] if packed_size >= 0 else b""
        if magic != _MAGIC or len(packed) != packed_size or not 0 <= size <= BLOCK_BYTES_MAX:
            raise _damaged(path, at)
        at += packed_size
        if size == 0:
            return
        method = token & 0xF0
        if method == _STORED:
            yield packed
        elif method == _COMPRESSED:
            try:
                yield codec.decompress(packed, size, asbytes=True)
            except (OSError, pa.ArrowException) as error:
                raise _damaged(path, at) from error
        else:
            raise _damaged(path, at)
    raise StoreUnreadable(f"{path} is incomplete")


def _damaged(path: Path, at: int) -> StoreUnreadable:
    return StoreUnreadable(f"{path} is damaged near byte {at}")
