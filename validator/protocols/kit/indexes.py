# SPDX-License-Identifier: Apache-2.0
"""Per-para counts and indexes that never hold a zero or an empty row."""

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
    """Subtract one from a count, saturating at zero. Return whether the count was positive."""
    count = counts.get(para, 0)
    if count > 1:
        counts[para] = count - 1
    elif count == 1:
        del counts[para]
    return count > 0


def insert_sorted(index: dict[ParaId, list[ParaId]], key: ParaId, item: ParaId) -> None:
    """Insert an item into an index row, keeping the row ascending."""
    insort(index.setdefault(key, []), item)


def remove_sorted(index: dict[ParaId, list[ParaId]], key: ParaId, item: ParaId) -> None:
    """Remove an item from an index row. Remove the row if it becomes empty."""
    row = index[key]
    del row[bisect_left(row, item)]
    if not row:
        del index[key]
