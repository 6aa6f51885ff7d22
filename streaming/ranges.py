# SPDX-License-Identifier: Apache-2.0
"""How a batch's inputs are divided: offsets into ranges, and ranges among tasks.

Offsets are written by topic and partition: ``{"blocks": {"0": 17}}``, the form of Spark's Kafka source, which earlier versions read with.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

Offsets: TypeAlias = dict[str, dict[str, int]]
"""By topic and partition, the offset after the last record that was read."""

RECORDS_PER_TASK_MIN: Final = 10_000
"""Records of a batch for each further task: below, starting a task costs more than it saves."""


class OffsetRange(NamedTuple):
    """Offsets of one partition: ``first`` is the first one, ``end`` the one after the last. Kafka itself uses some of them for markers."""

    topic: str
    partition: int
    first: int
    end: int


def ranges_between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """Return the ranges between two offsets, by topic and partition; a partition that ``start`` lacks is new, and begins at 0."""
    found = [
        OffsetRange(topic, int(partition), start.get(topic, {}).get(partition, 0), offset)
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]
    return sorted(each for each in found if each.first < each.end)


def records_between(start: Offsets, end: Offsets) -> int:
    """Return how many offsets lie between two."""
    return sum(each.end - each.first for each in ranges_between(start, end))


def limited(start: Offsets, latest: Offsets, records_max: int) -> Offsets:
    """Return the end of a batch that begins at ``start``: ``latest``, or so much of it that the batch has about ``records_max`` records.

    Each partition gives a share as large as its part of the backlog, at least one record: records of one block arrive at about the same
    time on all topics.
    """
    total = records_between(start, latest)
    if total <= records_max:
        return latest
    ends: Offsets = {topic: dict(partitions) for topic, partitions in latest.items()}
    for topic, partition, first, end in ranges_between(start, latest):
        ends[topic][str(partition)] = first + max(1, (end - first) * records_max // total)
    return ends


def divided(
    start: Offsets, end: Offsets, tasks_max: int, task_records_min: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """Return the ranges of each task of a batch, about as many records for each; at most ``tasks_max`` tasks, none for an empty batch.

    A further task has ``task_records_min`` records, by default `RECORDS_PER_TASK_MIN`.
    """
    total = records_between(start, end)
    count = min(tasks_max, -(-total // (task_records_min or RECORDS_PER_TASK_MIN)))
    tasks: list[list[OffsetRange]] = [[] for _ in range(count)]
    before = 0
    for each in ranges_between(start, end):
        at = each.first
        while at < each.end:
            task = before * count // total
            ends_at = -(-total * (task + 1) // count)  # where the next task begins
            until = min(each.end, at + ends_at - before)
            tasks[task].append(each._replace(first=at, end=until))
            before += until - at
            at = until
    return [tuple(ranges) for ranges in tasks]
