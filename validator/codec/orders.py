# SPDX-License-Identifier: Apache-2.0
"""What an operator asks of a parked lane: to continue, without some records if need be.

An order is a record of the topic `blocks`, where the lane's other inputs are. So it is durable, each batch has it exactly once, it wakes a
lane that nothing else arrives for, and a lane that starts over meets it again.
"""

from __future__ import annotations

from typing import NamedTuple

from validator.codec.codec import ORDER_SCHEMA
from validator.codec.encode import write
from validator.codec.reading import record_reader
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.codec.strict import NotCanonical
from validator.core.inputs import Source
from validator.core.limits import ORDER_SKIPS_MAX, RECORD_BYTES_MAX, TOPIC_LENGTH_MAX, U32_MAX, U64_MAX


class LaneOrder(NamedTuple):
    """An order to one lane, and the record that holds it."""

    lane: str
    skips: frozenset[Source]
    """Records that become dead letters instead of inputs."""
    source: Source


def encode_order(lane: str, skips: frozenset[Source]) -> bytes:
    """Return an order as a Kafka value."""
    return write(schemas()[ORDER_SCHEMA], {"lane": lane, "skips": [source._asdict() for source in sorted(skips)]})


def decode_order(value: bytes | None, source: Source) -> LaneOrder | None:
    """Return the order that a Kafka value holds; None if it is anything else, or more than an order may be."""
    schema = schemas()[ORDER_SCHEMA]
    if value is None or not value.startswith(schema.header) or len(value) > RECORD_BYTES_MAX:
        return None
    try:
        datum = record_reader(schema, schema)(value, HEADER_SIZE)
    except NotCanonical:
        return None
    skips = [Source(skip["topic"], skip["partition"], skip["offset"]) for skip in datum["skips"]]
    if len(skips) > ORDER_SKIPS_MAX or not all(map(_is_place, skips)):
        return None
    return LaneOrder(datum["lane"], frozenset(skips), source)


def _is_place(source: Source) -> bool:
    """Return whether a record can be there; anything else could not be kept with a parked lane."""
    topic, partition, offset = source
    return len(topic) <= TOPIC_LENGTH_MAX and 0 <= partition <= U32_MAX and 0 <= offset <= U64_MAX
