# SPDX-License-Identifier: Apache-2.0
"""What the worker believes of what a lane's process says: only what a lane may say, and nothing that the worker or a reader fails at."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

from validator.codec.encode import BlockOutput, OutputRecord, reason_of, source_header, source_of
from validator.codec.inflight import Arrival, has_only_inputs, unpack
from validator.codec.orders import LaneOrder
from validator.codec.schemas import HEADER_SIZE, schemas
from validator.codec.strict import StrictReader, record_reader
from validator.core.inputs import DeadReason, Source
from validator.core.limits import PARK_REASON_CHARACTERS_MAX, RECORD_BYTES_MAX, U32_MAX
from validator.core.scale import DecodeError
from validator.core.types import BlockNumber
from validator.lanes.apart.wire import Nonsense
from validator.lanes.arrived import Chunk
from validator.lanes.parked import Partition, Span, held_with, stored_parts
from validator.lanes.store import Head
from validator.metrics.report import LANE, Report
from validator.topics import DEAD_LETTERS, LANES, METRICS

OF_NO_BLOCK: Final = frozenset({DEAD_LETTERS, LANES, METRICS})
"""Topics of records that belong to no block; each block has records of all others."""
RECEIPTS: Final = "receipts"

VALUE_BYTES_MAX: Final = 2 * RECORD_BYTES_MAX
"""Bytes of a record's value; a dead letter is larger than the record in it."""
KEY_BYTES_MAX: Final = 1024
"""Bytes of a record's key, and of the name and the value of a header."""


class Given:
    """The inputs that a lane's process may take, hold or ask for: those of its batch, those that its orders name, and those it holds."""

    def __init__(self, head: bytes | None) -> None:
        try:
            parked = stored_parts(head)[0]
        except DecodeError:  # the lane says so
            parked = None
        self._spans = {} if parked is None else dict(parked.held)

    def add(self, chunk: Chunk) -> None:
        """Add inputs of the batch, and what the orders among them name."""
        self._add((chunk.topic, chunk.partition), Span(chunk.first_offset, chunk.end_offset))
        if not has_only_inputs(chunk.packed):
            for order in unpack(chunk.packed):
                for topic, partition, first, end in order.inputs if isinstance(order, LaneOrder) else ():
                    self._add((topic, partition), Span(first, end))

    def add_read(self, items: Iterable[Arrival]) -> None:
        """Add inputs that were read again."""
        for place, span in held_with({}, items).items():
            self._add(place, span)

    def check(self, place: Partition, span: Span) -> None:
        """Raise `Nonsense` if some of a span has not been given."""
        known = self._spans.get(place)
        if known is None or not known.first <= span.first <= span.end <= known.end:
            raise Nonsense(f"inputs {span.first} to {span.end} of {place[0]}[{place[1]}], which it does not have")

    def check_taken(self, place: Partition, offset: int) -> None:
        """Raise `Nonsense` if the inputs of a place do not go as far."""
        known = self._spans.get(place)
        if known is None or not known.first <= offset <= known.end:
            raise Nonsense(f"{place[0]}[{place[1]}] taken up to {offset}, which it does not have")

    def check_head(self, lane: str, data: bytes) -> None:
        """Raise `Nonsense` or an error of decoding if a head is not one that this lane has."""
        parked, head = stored_parts(data)
        if parked is None:
            Head.decode(head or b"")
            return
        for place, span in parked.held.items():
            self.check(place, span)
        if len(parked.reason) > PARK_REASON_CHARACTERS_MAX or not parked.reason.isprintable():
            raise Nonsense("a reason of more than a line")
        parked.record(lane)

    def _add(self, place: Partition, span: Span) -> None:
        known = self._spans.get(place, span)
        self._spans[place] = Span(min(known.first, span.first), max(known.end, span.end))


class Emitted:
    """What a lane emits in a batch: each block's records once, in the order of blocks. ``last`` is the block before, if it is known."""

    def __init__(self, lane: str, last: BlockNumber | None) -> None:
        self._lane = lane
        self.last = last

    def check(self, outputs: Iterable[BlockOutput]) -> None:
        """Raise `Nonsense` for what no lane emits here."""
        for block, records in outputs:
            for each in records:
                _check(each, self._lane, block)
            topics = [each.topic for each in records]
            if block is None:
                if not OF_NO_BLOCK.issuperset(topics):
                    raise Nonsense(f"records of no block on {', '.join(sorted({*topics} - OF_NO_BLOCK))}")
                continue
            if block > U32_MAX or (self.last is not None and block != self.last + 1):
                raise Nonsense(f"block {block} after block {self.last}")
            self.last = block
            if not OF_NO_BLOCK.isdisjoint(topics):
                raise Nonsense(f"records of block {block} on {', '.join(sorted(OF_NO_BLOCK.intersection(topics)))}")
            if topics[-1:] != [RECEIPTS] or topics.count(RECEIPTS) != 1:
                raise Nonsense(f"block {block} without its one receipt at the end")


def _check(record: OutputRecord, lane: str, block: BlockNumber | None) -> None:
    """Raise `Nonsense` for a record that a reader of its topic fails at, or that says something of another lane or block."""
    topic, key, value, headers = record
    if len(value) > VALUE_BYTES_MAX or len(key) > KEY_BYTES_MAX:
        raise Nonsense(f"a record on {topic} of {len(key)} and {len(value)} bytes")
    if headers and topic != DEAD_LETTERS:
        raise Nonsense(f"a record on {topic} with headers")
    if topic == METRICS:
        report = Report.decode(value)
        if (report.of, report.reporter) != (LANE, lane) or report.own:
            raise Nonsense(f"a report of the {report.of} {report.reporter}")
        return
    read = _readers().get((topic, value[:HEADER_SIZE]))
    if read is None:
        raise Nonsense(f"a record on {topic} of a schema that it does not have")
    datum = read(value, HEADER_SIZE)
    if block is not None:
        if datum["block"] != block:
            raise Nonsense(f"a record on {topic} of block {datum['block']} among those of block {block}")
    elif topic == DEAD_LETTERS:
        _check_dead_letter(record, datum)
    elif not all(each.isprintable() for each in datum.values() if isinstance(each, str)):
        raise Nonsense(f"a record on {topic} of more than a line")


def _check_dead_letter(record: OutputRecord, datum: dict[str, Any]) -> None:
    source = Source(datum["topic"], datum["partition"], datum["offset"])
    if record.headers != (("reason", datum["reason"].encode()), ("source", source_header(source))):
        raise Nonsense("a dead letter without its headers")
    if datum["reason"] not in DeadReason.__members__ or (reason_of(record), source_of(record)) != (
        DeadReason[datum["reason"]],
        source,
    ):
        raise Nonsense(f"a dead letter of {source} because of {datum['reason']}")


@cache
def _readers() -> dict[tuple[str, bytes], StrictReader]:
    """Return what reads records of each topic, by the header of the current schema."""
    current = schemas().current.values()
    return {(each.topic, each.header): record_reader(each, each) for each in current if each.topic is not None}
