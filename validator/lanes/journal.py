# SPDX-License-Identifier: Apache-2.0
"""The inputs of one batch as canonical, versioned bytes, for the journal of a lane.

Records are kept as they came from Kafka: their Avro schemas define what they mean, not this program's classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from struct import Struct

from validator.codec.codec import Codec
from validator.core.inputs import DeadLetter, Input, RecordKind, Source
from validator.core.scale import DecodeError, Encoding, decoding
from validator.lanes.definition import decode_again

ENTRY = Encoding("journal")

_RECORD = Struct("<BHIQI")
"""Kind, number of the topic in the entry's table, partition, offset, size of the raw bytes."""

_KIND_OF, _SOURCE_OF, _RAW_OF = map(attrgetter, ("kind", "source", "raw"))
_TOPIC_OF, _PARTITION_OF, _OFFSET_OF = map(attrgetter, Source._fields)


def encode_entry(items: Sequence[Input | DeadLetter]) -> bytes:
    """Encode a batch's inputs in order; of records that were dead on arrival, encode only their number."""
    inputs = [item for item in items if isinstance(item, Input)]
    kinds = map(_KIND_OF, inputs)
    sources = list(map(_SOURCE_OF, inputs))
    raws = list(map(_RAW_OF, inputs))
    topics = list(map(_TOPIC_OF, sources))
    numbers = {topic: number for number, topic in enumerate(dict.fromkeys(topics))}
    heads = map(
        _RECORD.pack,
        kinds,
        map(numbers.__getitem__, topics),
        map(_PARTITION_OF, sources),
        map(_OFFSET_OF, sources),
        map(len, raws),
    )
    out = ENTRY.begin()
    out.compact(len(items) - len(inputs))
    out.compact(len(numbers))
    for topic in numbers:
        out.bytes(topic.encode())
    out.compact(len(inputs))
    return bytes(out.buffer) + b"".join(chain.from_iterable(zip(heads, raws, strict=True)))


def decode_entry(codec: Codec, entry: bytes) -> tuple[list[Input], int]:
    """Return the inputs of an entry and the number of records that were dead on arrival.

    Raises `core.scale.DecodeError`, `definition.JournalUnreadable`.
    """
    with decoding("journal"):
        reader = ENTRY.read(entry)
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
