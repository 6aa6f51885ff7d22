# SPDX-License-Identifier: Apache-2.0
"""The fingerprints of executed records, by which a record that arrives again is recognised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from validator.core.inputs import RecordKind
from validator.core.limits import DUPLICATE_WINDOW_BYTES_MAX
from validator.core.resident import PRINT_BYTES, PRINTED_BLOCK_BYTES
from validator.core.scale import Reader, Writer
from validator.core.types import BlockNumber

Place: TypeAlias = tuple[RecordKind, int]
"""A record's place in its block: kind and index."""

FINGERPRINT_BYTES = 8


@dataclass(slots=True)
class DuplicateWindow:
    """The last executed blocks: at most ``blocks_max``, and fewer if their fingerprints would exceed `DUPLICATE_WINDOW_BYTES_MAX`.

    The last block stays in any case. ``resident_bytes`` is what the fingerprints occupy in memory.
    """

    blocks_max: int
    resident_bytes: int = 0
    _prints: dict[BlockNumber, dict[Place, bytes]] = field(default_factory=dict)

    def of_block(self, number: BlockNumber) -> Mapping[Place, bytes]:
        """Return the fingerprints of a block's records; empty if the block is not in the window."""
        return self._prints.get(number, {})

    def remember(self, number: BlockNumber, prints: dict[Place, bytes]) -> None:
        """Add the block that has just been executed, and drop the oldest ones beyond the bounds."""
        if not self.blocks_max:
            return
        self._add(number, prints)
        while len(self._prints) > self.blocks_max or (
            self.resident_bytes > DUPLICATE_WINDOW_BYTES_MAX and len(self._prints) > 1
        ):
            self.resident_bytes -= _resident(self._prints.pop(next(iter(self._prints))))

    def write(self, out: Writer) -> None:
        """Write the window in canonical form."""
        out.compact(len(self._prints))
        for number, prints in self._prints.items():
            out.u32(number)
            out.compact(len(prints))
            for (kind, index), fingerprint in sorted(prints.items()):
                out.u8(kind)
                out.u32(index)
                out.buffer += fingerprint

    def read(self, reader: Reader) -> None:
        """Read what `write` wrote. Raises `scale.DecodeError`."""
        for _ in range(reader.compact()):
            number = reader.u32()
            prints = reader.items(lambda: ((RecordKind(reader.u8()), reader.u32()), reader.take(FINGERPRINT_BYTES)))
            self._add(number, dict(prints))

    def _add(self, number: BlockNumber, prints: dict[Place, bytes]) -> None:
        self._prints[number] = prints
        self.resident_bytes += _resident(prints)


def _resident(prints: Mapping[Place, bytes]) -> int:
    return PRINTED_BLOCK_BYTES + PRINT_BYTES * len(prints)
