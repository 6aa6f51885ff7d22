# SPDX-License-Identifier: Apache-2.0
"""Records of output topics as peers get them, and the keys that say which peers get each. Source: channel_rules 5.2.

A dead letter is the peer's whose record it was. The record itself decides, by its topic, lane and para as the registry judges them when a
peer submits it. Nobody gets the bytes: two peers may speak for one para, and producers without a peer write to the same topics. A record
that cannot be decoded is not one of a peer, since the gateway encodes what peers submit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from validator_channel.application import DEAD_LETTERS, SUBMIT_TOPICS, write_watched
from validator_channel.gateway.registry import PARA_FIELDS, Grant, PeerPolicy, para_of

DeadLetterKey: TypeAlias = tuple[str, int | None, str]
"""A lane, a para of it, and a topic on which records about it are submitted.

None for the para stands for every one. Requests that no para makes have `Grant.ROOT_REQUESTS` as their topic.
"""

SHOWN: Final = ("lane", "topic", "partition", "offset", "block", "index", "reason", "detail")
"""The fields of a dead letter that a peer gets, besides `para_id` and `record_hash`."""

Decode = Callable[[str, bytes], dict[str, Any]]
"""Returns a record of a topic in JSON form. Raises ``ValueError``."""


def record_hash(topic: str, record: Mapping[str, Any], value: bytes) -> str:
    """Return in bare hex the hash that names a record: its `candidate_hash`, otherwise BLAKE2b-256 of its bytes on Kafka."""
    given = record.get("candidate_hash") if topic == "candidates" else None
    return given.removeprefix("0x") if isinstance(given, str) else blake2b(value, digest_size=32).hexdigest()


def read_dead_letter(letter: Mapping[str, Any], decode: Decode) -> tuple[tuple[DeadLetterKey, ...], dict[str, Any]]:
    """Return the keys under which feeds look for a dead letter, none if it is of no peer, and what a peer gets of it."""
    topic = _without_prefix(str(letter["topic"]))
    value = bytes.fromhex(letter["raw"].removeprefix("0x"))
    shown = {name: letter.get(name) for name in SHOWN} | {"topic": topic}
    try:
        record = decode(topic, value) if topic in SUBMIT_TOPICS else None
    except ValueError:
        record = None
    if record is None or not isinstance(record.get("lane"), str):
        return (), shown
    shown |= {"para_id": para_of(topic, record), "record_hash": f"0x{record_hash(topic, record, value)}"}
    return _keys(topic, record["lane"], shown["para_id"]), shown


def dead_letter_keys(policy: PeerPolicy) -> frozenset[DeadLetterKey]:
    """Return the keys of a peer's feed: what it may submit, for the lanes and paras that it speaks for."""
    keys: set[DeadLetterKey] = set()
    for lane, paras in policy.lanes.items():
        for topic in policy.submit:
            every = paras is None or topic == "blocks"
            keys.update((lane, para, topic) for para in ((None,) if every else paras or ()))
        if "channel-requests" in policy.submit and Grant.ROOT_REQUESTS in policy.grants:
            keys.add((lane, None, Grant.ROOT_REQUESTS))
    return frozenset(keys)


def _without_prefix(topic: str) -> str:
    """Return a topic of this deployment without its prefix, which a transport does not know; no input's name ends with another one's."""
    return next((name for name in SUBMIT_TOPICS if topic.endswith(name)), topic)


def _keys(topic: str, lane: str, para: int | None) -> tuple[DeadLetterKey, ...]:
    if para is not None:
        return (lane, para, topic), (lane, None, topic)
    return ((lane, None, Grant.ROOT_REQUESTS if topic == "channel-requests" else topic),)


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
