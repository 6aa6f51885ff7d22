# SPDX-License-Identifier: Apache-2.0
"""Counts and indexes by para that never hold an empty row or a zero."""

from __future__ import annotations

from bisect import bisect_left, insort

from validator.core.types import ChannelId, ParaId


def channel_name(channel_id: ChannelId) -> str:
    """Return ``"sender->recipient"``."""
    return f"{channel_id[0]}->{channel_id[1]}"


def increase(counts: dict[ParaId, int], para: ParaId) -> None:
    """Add one to a count."""
    counts[para] = counts.get(para, 0) + 1


def decrease(counts: dict[ParaId, int], para: ParaId) -> bool:
    """Subtract one from a count, saturating at zero, and say whether there was anything to subtract from."""
    count = counts.get(para, 0)
    if count > 1:
        counts[para] = count - 1
    elif count == 1:
        del counts[para]
    return count > 0


def insert_sorted(index: dict[ParaId, list[ParaId]], key: ParaId, item: ParaId) -> None:
    """Add an item to a row of an index that is kept ascending."""
    insort(index.setdefault(key, []), item)


def remove_sorted(index: dict[ParaId, list[ParaId]], key: ParaId, item: ParaId) -> None:
    """Remove an item from a row of an index, and the row with its last item."""
    row = index[key]
    del row[bisect_left(row, item)]
    if not row:
        del index[key]
