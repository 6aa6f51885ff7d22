# SPDX-License-Identifier: Apache-2.0
"""What an operator asks of a parked lane: to continue, without some records if need be, or from its beginning.

An order is a record of the topic `blocks`, where the lane's other inputs are. So it is durable, each batch has it exactly once, it wakes a
lane that nothing else arrives for, and a lane that starts over meets it again.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from validator.codec.codec import ORDER_SCHEMA
from validator.codec.encode import write
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.codec.strict import NotCanonical, record_reader
from validator.core.inputs import Source
from validator.core.limits import (
    ORDER_CHECKPOINT_LENGTH_MAX,
    ORDER_SKIPS_MAX,
    ORDER_SPANS_MAX,
    RECORD_BYTES_MAX,
    TOPIC_LENGTH_MAX,
    U32_MAX,
    U64_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from validator.codec.strict import StrictReader


class InputSpan(NamedTuple):
    """Offsets of one partition of an input topic, ``end`` excluded; the topic has its prefix."""

    topic: str
    partition: int
    first: int
    end: int


class LaneOrder(NamedTuple):
    """An order to one lane, and the record that holds it."""

    lane: str
    skips: frozenset[Source]
    """Records that become dead letters instead of inputs."""
    source: Source
    inputs: tuple[InputSpan, ...] = ()
    """What a lane that starts over takes again; none if it keeps its state."""
    checkpoint: str = ""
    """The checkpoint that has consumed these inputs."""


def encode_order(lane: str, skips: frozenset[Source], inputs: Iterable[InputSpan] = (), checkpoint: str = "") -> bytes:
    """Return an order as a Kafka value."""
    datum = {
        "lane": lane,
        "skips": [source._asdict() for source in sorted(skips)],
        "inputs": [span._asdict() for span in sorted(inputs)],
        "checkpoint": checkpoint,
    }
    return write(schemas()[ORDER_SCHEMA], datum)


def decode_order(value: bytes | None, source: Source) -> LaneOrder | None:
    """Return the order that a Kafka value holds; None if it is anything else, or more than an order may be."""
    if value is None or len(value) > RECORD_BYTES_MAX:
        return None
    read = _readers().get(value[:HEADER_SIZE])
    if read is None:
        return None
    try:
        datum = read(value, HEADER_SIZE)
    except NotCanonical:
        return None
    skips = [Source(skip["topic"], skip["partition"], skip["offset"]) for skip in datum["skips"]]
    inputs = tuple(InputSpan(**span) for span in datum["inputs"])
    if len(skips) > ORDER_SKIPS_MAX or not all(map(_is_place, skips)):
        return None
    if len(inputs) > ORDER_SPANS_MAX or not all(map(_is_span, inputs)):
        return None
    if len(datum["checkpoint"]) > ORDER_CHECKPOINT_LENGTH_MAX:
        return None
    return LaneOrder(datum["lane"], frozenset(skips), source, inputs, datum["checkpoint"])


@cache
def _readers() -> dict[bytes, StrictReader]:
    """Return, by a record's first bytes, how to read each version of an order."""
    versions = schemas().versions[ORDER_SCHEMA]
    return {schema.header: record_reader(schema, versions[-1]) for schema in versions}


def _is_span(span: InputSpan) -> bool:
    return _is_place(Source(span.topic, span.partition, span.first)) and span.first < span.end <= U64_MAX


def _is_place(source: Source) -> bool:
    """Return whether a record can be there; anything else could not be kept with a parked lane."""
    topic, partition, offset = source
    return len(topic) <= TOPIC_LENGTH_MAX and 0 <= partition <= U32_MAX and 0 <= offset <= U64_MAX
