# SPDX-License-Identifier: Apache-2.0
"""What a lane starts from, kept as pages beside the file that people write.

A STATE.json of a large chain takes a minute to read and check, at every start of the job. So the job keeps what it read in the encoding of
its own pages, under a key of everything that it was made from: another file, configuration or encoding has another key.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

from validator.core.scale import DecodeError, Reader, Writer
from validator.core.types import BlockNumber

GENESIS_VERSION = 1
KEY_BYTES = 32
_CHECKSUM_BYTES = 16


def kept_genesis(
    path: Path, key: bytes, make: Callable[[], tuple[BlockNumber, list[bytes]]]
) -> tuple[BlockNumber, tuple[bytes, ...]]:
    """Return the first block and the pages that lie at ``path`` under ``key`` (32 bytes), made and put there where they do not."""
    try:
        return _decode(path.read_bytes(), key)
    except (FileNotFoundError, DecodeError):
        first_block, pages = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.new")
    written.write_bytes(encode_genesis(key, first_block, pages))
    written.replace(path)
    return first_block, tuple(pages)


def encode_genesis(key: bytes, first_block: BlockNumber, pages: list[bytes]) -> bytes:
    """Return the bytes of the file: version, key, first block, pages, and a checksum over all of it."""
    out = Writer()
    out.u8(GENESIS_VERSION)
    out.hash(key)
    out.u32(first_block)
    out.compact(len(pages))
    for page in pages:
        out.bytes(page)
    return bytes(out.buffer) + blake2b(out.buffer, digest_size=_CHECKSUM_BYTES).digest()


def _decode(data: bytes, key: bytes) -> tuple[BlockNumber, tuple[bytes, ...]]:
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    reader = Reader(body)
    if reader.u8() != GENESIS_VERSION or reader.hash() != key:
        raise DecodeError("made from something else")
    if blake2b(body, digest_size=_CHECKSUM_BYTES).digest() != checksum:
        raise DecodeError("cut short or damaged")
    first_block, pages = reader.u32(), tuple(reader.items(reader.bytes))
    reader.end()
    return first_block, pages
