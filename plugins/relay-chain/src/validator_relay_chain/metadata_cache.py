# SPDX-License-Identifier: Apache-2.0
"""Metadata of runtimes on disk, by genesis and version. A file that is damaged is as good as none."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Final

from validator_relay_chain.errors import FollowError
from validator_relay_chain.hashing import blake2b_256
from validator_relay_chain.limits import METADATA_BYTES_MAX

HASH_BYTES: Final = 32
_PLAIN: Final = re.compile(r"[^A-Za-z0-9_-]")


class MetadataCache:
    """A folder of files ``<genesis>/<spec name>-<spec version>.metadata``: BLAKE2b-256 of the metadata, then the metadata with zlib."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, genesis: bytes, spec_name: str, spec_version: int) -> bytes | None:
        """Return the metadata of a runtime, or None."""
        try:
            kept = self._path(genesis, spec_name, spec_version).read_bytes()
            unpack = zlib.decompressobj()
            metadata = unpack.decompress(kept[HASH_BYTES:], METADATA_BYTES_MAX + 1)
        except (OSError, zlib.error):
            return None
        return metadata if unpack.eof and blake2b_256(metadata) == kept[:HASH_BYTES] else None

    def write(self, genesis: bytes, spec_name: str, spec_version: int, metadata: bytes) -> None:
        """Keep the metadata of a runtime. Raises `FollowError` if the folder cannot be written."""
        path = self._path(genesis, spec_name, spec_version)
        new = path.with_suffix(".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(blake2b_256(metadata) + zlib.compress(metadata))
            new.replace(path)
        except OSError as error:
            raise FollowError(f"{path}: cannot be written: {error.strerror}") from error

    def _path(self, genesis: bytes, spec_name: str, spec_version: int) -> Path:
        return self._folder / genesis.hex()[:16] / f"{_PLAIN.sub('_', spec_name)}-{spec_version}.metadata"
