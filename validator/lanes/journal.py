# SPDX-License-Identifier: Apache-2.0
"""The inputs of one batch as canonical, versioned bytes, for the journal of a lane.

Records are kept as they came from Kafka: their Avro schemas define what they mean, not this program's classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from validator.codec.codec import Codec
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.scale import DecodeError, Upgrade, Writer, decoding, upgraded
from validator.lanes.definition import decode_again

JOURNAL_VERSION = 1
UPGRADES: dict[int, Upgrade] = {}
"""By version, the upgrade of an entry to the next version."""

_RECORD = Struct("<BHIQI")
"""Kind, number of the topic in the entry's table, partition, offset, size of the raw bytes."""


def encode_entry(items: Iterable[Input | DeadLetter]) -> bytes:
    """Encode a batch's inputs in order; of records that were dead on arrival, encode only their number."""
    topics: dict[str, int] = {}
    parts: list[bytes] = []
    dead = 0
    for item in items:
        if isinstance(item, DeadLetter):
            dead += 1
            continue
        topic, partition, offset = item.source
        number = topics.setdefault(topic, len(topics))
        parts += (_RECORD.pack(item.kind, number, partition, offset, len(item.raw)), item.raw)
    out = Writer()
    out.u8(JOURNAL_VERSION)
    out.compact(dead)
    out.compact(len(topics))
    for topic in topics:
        out.bytes(topic.encode())
    out.compact(len(parts) // 2)
    return bytes(out.buffer) + b"".join(parts)


def decode_entry(codec: Codec, entry: bytes) -> tuple[list[Input], int]:
    """Return the inputs of an entry and the number of records that were dead on arrival.

    Raises `core.scale.DecodeError`, `definition.JournalUnreadable`.
    """
    with decoding("journal"):
        reader = upgraded(entry, JOURNAL_VERSION, UPGRADES, "journal")
        dead = reader.compact()
        topics = [topic.decode() for topic in reader.items(reader.bytes)]
        inputs = []
        used: dict[int, None] = {}
        for _ in range(reader.count()):
            kind, number, partition, offset, size = _RECORD.unpack(reader.take(_RECORD.size))
            used[number] = None
            source = Source(topics[number], partition, offset)
            inputs.append(decode_again(codec, RecordKind(kind), reader.take(size), source))
        reader.end()
    if len(set(topics)) != len(topics) or list(used) != list(range(len(topics))):
        raise DecodeError("journal is damaged: its topics are not each once in the order of their first records")
    return inputs, dead
