# SPDX-License-Identifier: Apache-2.0
"""The newest record of each key of a compacted topic, also after partitions were added to the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from validator.kafka.reader import TopicRecord


class _Last(NamedTuple):
    partition: int
    timestamp_ms: int


class Newest:
    """Finds which records are older than one of their key that came before.

    Added partitions change the partition of most keys. The last record in the former one stays forever, and partitions are read in any
    order. Inside a partition the order decides, between partitions the time, which is the broker's. Clocks of brokers may differ by a
    moment, so this is for what people are shown, which is written again. What decides about output has numbers (`Marker.merged`).
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, bytes | None], _Last] = {}

    def takes(self, record: TopicRecord) -> bool:
        """Return whether nothing newer of the record's key came from another partition, and note the record."""
        key, found = (record.topic, record.key), _Last(record.partition, record.timestamp_ms)
        last = self._last.get(key, found)
        if record.partition != last.partition and record.timestamp_ms < last.timestamp_ms:
            return False
        self._last[key] = found
        return True
