# SPDX-License-Identifier: Apache-2.0
"""The initial state of a lane, kept as pages next to the file that people write.

A large chain's STATE.json takes a minute to read and check, at every start of the job. So the job keeps what it read, encoded as pages. The
file name depends on everything that the pages were made from: another file, configuration or encoding has another name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

from validator.core.scale import DecodeError, Reader, Writer
from validator.core.types import BlockNumber

Genesis: TypeAlias = tuple[BlockNumber, tuple[bytes, ...]]
"""First block, and the pages of the state before it."""

GENESIS_VERSION = 1
_KEY_BYTES = 8
_CHECKSUM_BYTES = 16
_SUFFIX = ".genesis"


def genesis_path(folder: Path, lane: str, runtime_digest: bytes, encoding_version: int) -> Path:
    """Return where a lane's genesis is kept; the name depends on everything that it is made from.

    ``encoding_version`` is the version of the pages of the lane's protocol (`plugin.api.ProtocolDefinition.encoding_version`).
    """
    versions = GENESIS_VERSION.to_bytes(1, "little") + encoding_version.to_bytes(4, "little")
    key = blake2b(runtime_digest + versions, digest_size=_KEY_BYTES)
    return folder / f"{lane}-{key.hexdigest()}{_SUFFIX}"


def kept_genesis(path: Path, make: Callable[[], Genesis]) -> Genesis:
    """Return the first block and the pages stored at ``path``; make and store them if they are missing or unreadable."""
    try:
        return read_genesis(path)
    except (FileNotFoundError, DecodeError):
        genesis = make()
    keep_genesis(path, genesis)
    return genesis


def keep_genesis(path: Path, genesis: Genesis) -> None:
    """Write a genesis, replacing the lane's earlier one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lane = path.name.removesuffix(_SUFFIX).rpartition("-")[0]
    for other in path.parent.glob(f"{lane}-{'?' * 2 * _KEY_BYTES}{_SUFFIX}"):
        other.unlink()
    written = path.with_name(f"{path.name}.new")
    written.write_bytes(_encode(*genesis))
    written.replace(path)


def read_genesis(path: Path) -> Genesis:
    """Return the genesis in a file of `keep_genesis`. Raises `OSError`, `core.scale.DecodeError`."""
    data = path.read_bytes()
    body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if blake2b(body, digest_size=_CHECKSUM_BYTES).digest() != checksum:
        raise DecodeError(f"{path} is damaged")
    reader = Reader(body)
    first_block, pages = reader.u32(), tuple(reader.items(reader.bytes))
    reader.end()
    return first_block, pages


def _encode(first_block: BlockNumber, pages: Sequence[bytes]) -> bytes:
    out = Writer()
    out.u32(first_block)
    out.compact(len(pages))
    for page in pages:
        out.bytes(page)
    return bytes(out.buffer) + blake2b(out.buffer, digest_size=_CHECKSUM_BYTES).digest()
