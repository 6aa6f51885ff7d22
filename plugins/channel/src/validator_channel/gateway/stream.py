# SPDX-License-Identifier: Apache-2.0
"""One output topic as the gateway sees it: how far it has been handed to the live feeds, and its latest records."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from validator_channel.application import DEAD_LETTERS, write_watched
from validator_channel.gateway.dead_letters import Decode, dead_letter_keys, read_dead_letter
from validator_channel.gateway.dead_letters import Key as DeadLetterKey
from validator_channel.gateway.policy import PARA_FIELDS, PeerPolicy

Key: TypeAlias = tuple[str, int | None] | DeadLetterKey
"""A lane and a para of it; None stands for every record of the lane. A dead letter also has the topic of its record."""


@dataclass(frozen=True, slots=True)
class FeedRecord:
    """A record for feeds: its place, the keys under which feeds look for it, and its payload."""

    topic: str
    partition: int
    offset: int
    keys: tuple[Key, ...]
    payload: bytes = field(repr=False)

    def is_for(self, keys: frozenset[Key]) -> bool:
        """Return whether a feed with these keys gets the record."""
        return not keys.isdisjoint(self.keys)


def read_feed_record(topic: str, partition: int, offset: int, record: Mapping[str, Any], decode: Decode) -> FeedRecord:
    """Return a decoded output record as feeds have it; ``decode`` is for the record inside a dead letter."""
    if topic == DEAD_LETTERS:
        found, shown = read_dead_letter(record, decode)
        return FeedRecord(topic, partition, offset, found, write_watched(partition, offset, shown))
    lane = str(record["lane"])
    fields = PARA_FIELDS[topic]
    paras = dict.fromkeys(record[name] for name in fields if record.get(name) is not None)
    keys: tuple[Key, ...] = (*((lane, para) for para in paras), (lane, None))
    return FeedRecord(topic, partition, offset, keys, write_watched(partition, offset, record))


def feed_keys(policy: PeerPolicy, topic: str) -> frozenset[Key]:
    """Return the keys of a peer's feed: its paras, or the lanes whose records it may see without exception."""
    if topic == DEAD_LETTERS:
        return dead_letter_keys(policy)
    keys: set[Key] = set()
    for lane, paras in policy.lanes.items():
        if paras is None or not PARA_FIELDS[topic]:
            keys.add((lane, None))
        else:
            keys.update((lane, para) for para in paras)
    return frozenset(keys)


class Stream:
    """A topic; ``next`` is by partition the offset after the last record that was handed to the live feeds.

    `recent` holds the last ones of these records: all from `floor` on. A feed at or above the floor can join the live ones.
    """

    def __init__(self, next_offsets: Mapping[int, int], records_max: int, bytes_max: int) -> None:
        self.next = dict(next_offsets)
        self.floor = dict(next_offsets)
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._recent: deque[FeedRecord] = deque()
        self._bytes = 0

    def append(self, record: FeedRecord) -> None:
        """Note a record that was handed to the live feeds."""
        self.next[record.partition] = record.offset + 1
        self._recent.append(record)
        self._bytes += len(record.payload)
        while len(self._recent) > self._records_max or self._bytes > self._bytes_max:
            oldest = self._recent.popleft()
            self._bytes -= len(oldest.payload)
            self.floor[oldest.partition] = oldest.offset + 1

    def reaches(self, next_offsets: Mapping[int, int]) -> bool:
        """Return whether a feed that has everything before these offsets, and nothing beyond `next`, can join the live ones."""
        return next_offsets.keys() <= self.floor.keys() and all(
            low <= next_offsets.get(place, 0) <= self.next[place] for place, low in self.floor.items()
        )

    def since(self, next_offsets: Mapping[int, int]) -> Iterator[FeedRecord]:
        """Yield the recent records from these offsets on."""
        return (each for each in tuple(self._recent) if each.offset >= next_offsets.get(each.partition, 0))
