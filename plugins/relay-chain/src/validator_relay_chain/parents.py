# SPDX-License-Identifier: Apache-2.0
"""Numbers of relay parents by hash. With descriptors of version 3 they may be hundreds of blocks old, and of an earlier session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from validator_relay_chain.limits import NUMBERS_MAX
from validator_relay_chain.position import Position


class RelayParents(NamedTuple):
    """The relay parents of a block's candidates."""

    numbers: dict[bytes, int]
    kept: dict[bytes, int]
    """Those that are not recent, of earlier blocks, too, the oldest first."""


def relay_parents(position: Position, block: int, wanted: Iterable[bytes], ask: Callable[[bytes], int]) -> RelayParents:
    """Return the numbers of the relay parents of the block after a position.

    ``ask`` is called once for each that the position does not know.
    """
    numbers: dict[bytes, int] = {}
    kept = dict(position.parents)
    for parent in wanted:
        if parent in numbers:
            continue
        known = position.number_of(parent)
        numbers[parent] = ask(parent) if known is None else known
        if known is None:
            kept[parent] = numbers[parent]
    youngest = sorted((number, parent) for parent, number in kept.items() if number >= block - NUMBERS_MAX)
    return RelayParents(numbers, {parent: number for number, parent in youngest[-NUMBERS_MAX:]})
