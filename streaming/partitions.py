# SPDX-License-Identifier: Apache-2.0
"""Which lanes share a state partition, and with it a worker: Spark divides them by a hash of their names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

_SEED: Final = 42
_U32: Final = 0xFFFF_FFFF

TRIED: Final = 8
"""Numbers of partitions up to this many times the configured one are tried for a better division."""


def partition_of(lane: str, partitions: int) -> int:
    """Return the state partition of a lane. Source: Spark's ``HashPartitioning``, MurmurHash3 (32 bits) of the key with seed 42."""
    return _hash(lane.encode()) % partitions


def divided(lanes: Collection[str], partitions: int) -> dict[int, list[str]]:
    """Return the lanes by partition, both ascending; partitions without a lane are left out."""
    found: dict[int, list[str]] = {}
    for lane in sorted(lanes):
        found.setdefault(partition_of(lane, partitions), []).append(lane)
    return dict(sorted(found.items()))


def better_number(lanes: Collection[str], partitions: int) -> int | None:
    """Return the least number of partitions of which none has more lanes than if ``partitions`` were even.

    None if there is none, or if lanes use more than half of the partitions that they could use.
    """
    if not lanes or 2 * len(divided(lanes, partitions)) > min(len(lanes), partitions):
        return None
    even = -(-len(lanes) // partitions)
    larger = range(partitions + 1, TRIED * partitions + 1)
    return next((number for number in larger if _largest(lanes, number) <= even), None)


def note_division(lanes: Collection[str], partitions: int, log: Any) -> None:
    """Log that lanes share partitions, and with them workers, while others have none."""
    if (better := better_number(lanes, partitions)) is not None:
        together = list(divided(lanes, partitions).values())
        log.warning("uneven", state_partitions=partitions, lanes=together, better=better)


def _largest(lanes: Collection[str], partitions: int) -> int:
    return max(map(len, divided(lanes, partitions).values()), default=0)


def _hash(data: bytes) -> int:
    """Spark hashes the bytes after the last whole word one by one, as signed numbers."""
    whole = len(data) & ~3
    found = _SEED
    for at in range(0, whole, 4):
        found = _mixed(found, int.from_bytes(data[at : at + 4], "little"))
    for byte in data[whole:]:
        found = _mixed(found, byte - 256 if byte > 127 else byte)
    found ^= len(data)
    found = ((found ^ found >> 16) * 0x85EB_CA6B) & _U32
    found = ((found ^ found >> 13) * 0xC2B2_AE35) & _U32
    found ^= found >> 16
    return found - (1 << 32) if found >> 31 else found


def _mixed(found: int, word: int) -> int:
    word = (word * 0xCC9E_2D51) & _U32
    word = ((word << 15 | word >> 17) * 0x1B87_3593) & _U32
    found ^= word
    return ((found << 13 | found >> 19) * 5 + 0xE654_6B64) & _U32
