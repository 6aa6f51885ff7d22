# SPDX-License-Identifier: Apache-2.0
"""How far a lane has followed its chain: everything that the next block needs, so that a restart asks no node for the past.

A position is the transport's cursor: it is committed with the records of the blocks that lead to it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from validator_relay_chain.channels import Channels
from validator_relay_chain.errors import ChainContradiction
from validator_relay_chain.limits import CURSOR_BYTES_MAX, RECENT_HASHES

VERSION: Final = 1
PLAIN_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of a cursor that is not compressed."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A candidate of the lane that waits for availability."""

    para_id: int
    commitments_hash: bytes
    backed_at: int
    """The block whose record has it."""


@dataclass(frozen=True, slots=True)
class Position:
    """The last block of which the lane has the records."""

    genesis: bytes
    number: int
    hash: bytes
    spec_name: str
    spec_version: int
    """Of the runtime that executed the block."""
    next_runtime: bool
    """Whether the blocks after it run under other code."""
    new_session: bool
    """Whether a session began with it: nothing that was pending is any more."""
    recent: tuple[bytes, ...]
    """Hashes of the last blocks, this one last."""
    pending: tuple[Pending, ...]
    """In the order in which they were backed."""
    lifecycles: Mapping[int, int]
    """The index of each para's lifecycle at the last session change."""
    configuration: Mapping[str, int]
    """The Router's limits at the last session change."""
    heads: Mapping[int, bytes]
    """Heads of downward queues; a para without one has never had a message."""
    channels: Channels
    """Channels and requests."""
    parents: Mapping[bytes, int] = field(default_factory=dict)
    """Numbers of older blocks by hash, on which candidates have built."""

    def number_of(self, block_hash: bytes) -> int | None:
        """Return the number of a recent block or of a known relay parent, or None."""
        for back, each in enumerate(reversed(self.recent)):
            if each == block_hash:
                return self.number - back
        return self.parents.get(block_hash)

    def encode(self) -> bytes:
        """Return the cursor. Raises `ChainContradiction` if it is too long."""
        document: dict[str, Any] = {
            "version": VERSION,
            "genesis": self.genesis.hex(),
            "number": self.number,
            "hash": self.hash.hex(),
            "spec": [self.spec_name, self.spec_version, self.next_runtime],
            "new_session": self.new_session,
            "recent": b"".join(self.recent[-RECENT_HASHES:]).hex(),
            "pending": [[each.para_id, each.commitments_hash.hex(), each.backed_at] for each in self.pending],
            "lifecycles": sorted(self.lifecycles.items()),
            "configuration": dict(sorted(self.configuration.items())),
            "heads": [[para, head.hex()] for para, head in sorted(self.heads.items())],
            "channels": self.channels.to_json(),
        }
        if self.parents:
            document["parents"] = [[each.hex(), number] for each, number in self.parents.items()]
        packed = zlib.compress(json.dumps(document, separators=(",", ":")).encode())
        if len(packed) > CURSOR_BYTES_MAX:
            raise ChainContradiction(
                f"block {self.number}: expected a cursor of at most {CURSOR_BYTES_MAX} bytes, found {len(packed)}"
            )
        return packed

    @classmethod
    def decode(cls, cursor: bytes) -> Position:
        """Return the position of a cursor. Raises ``ValueError`` for bytes that are none."""
        try:
            unpack = zlib.decompressobj()
            plain = unpack.decompress(cursor, PLAIN_BYTES_MAX)
            if unpack.unconsumed_tail or not unpack.eof:
                raise ValueError("it is too long, or cut off")
            document = json.loads(plain)
            if document["version"] != VERSION:
                raise ValueError(f"expected version {VERSION}, found {document['version']!r}")
            return cls._of(document)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, zlib.error) as error:
            raise ValueError(f"cursor: {error or type(error).__name__}") from error

    @classmethod
    def _of(cls, document: Mapping[str, Any]) -> Position:
        recent = bytes.fromhex(document["recent"])
        spec_name, spec_version, next_runtime = document["spec"]
        return cls(
            bytes.fromhex(document["genesis"]),
            int(document["number"]),
            bytes.fromhex(document["hash"]),
            str(spec_name),
            int(spec_version),
            bool(next_runtime),
            bool(document["new_session"]),
            tuple(recent[at : at + 32] for at in range(0, len(recent), 32)),
            tuple(Pending(int(para), bytes.fromhex(name), int(at)) for para, name, at in document["pending"]),
            {int(para): int(index) for para, index in document["lifecycles"]},
            {str(name): int(value) for name, value in document["configuration"].items()},
            {int(para): bytes.fromhex(head) for para, head in document["heads"]},
            Channels.of(document["channels"]),
            {bytes.fromhex(each): int(number) for each, number in document.get("parents", ())},
        )
