# SPDX-License-Identifier: Apache-2.0
"""A lane with its store, its log and Kafka's copy of its inputs, which can be parked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from tests.unit.lanes.backend import Store
from tests.unit.lanes.chains import PREFIX, Chain, inputs_of
from validator.codec.encode import BlockOutput, OutputRecord
from validator.codec.inflight import Arrival, pack
from validator.codec.orders import InputSpan, LaneOrder
from validator.core.execute import Executor
from validator.core.inputs import Source
from validator.lanes import arrived
from validator.lanes.arrived import Chunk, Inputs, PackedInputs
from validator.lanes.auditing import Auditor
from validator.lanes.definition import LaneDefinition
from validator.lanes.marker import Marker
from validator.lanes.parked import Parked, Partition, Span, stored_parts
from validator.lanes.parking import InputsGone, LaneBatch, Suspect
from validator.lanes.processor import LaneProcessor
from validator.lanes.sink import TransactionalSink
from validator.lanes.store import LaneCache

BATCHES = 6
FAULTY_BATCH = 3
ORDERS: Partition = (f"{PREFIX}blocks", 9)


@dataclass
class Log:
    """What is committed of one lane (`validator.lanes.sink.BatchWriter`)."""

    records: list[OutputRecord] = field(default_factory=list)
    last: Marker = field(default_factory=Marker)
    open: list[OutputRecord] = field(default_factory=list)

    def confirm(self, *, corrects: bool) -> None:
        """Believe the marker."""

    def marker(self, places: Any) -> Marker:
        return self.last.after(None, dict.fromkeys(places, 0))

    def note_dead_letters(self) -> None:
        pass

    def written_dead_letters(self) -> set[bytes]:
        return {dict(each.headers)["source"] for each in self.records if each.topic == "dead-letters"}

    def write(self, records: Any) -> None:
        self.open += records

    def commit(self, marker: Marker) -> None:
        self.records += self.open
        self.open, self.last = [], marker


@dataclass
class Running:
    """One lane with its store, its log, and Kafka's copy of its inputs."""

    chain: Chain
    definition: LaneDefinition
    store: Store = field(default_factory=Store)
    cache: LaneCache = field(default_factory=LaneCache)
    log: Log = field(default_factory=Log)
    kafka: dict[Source, Arrival] = field(default_factory=dict)
    suspects: dict[str, Suspect] = field(default_factory=dict)
    gone: bool = False
    was_parked: bool = False
    noted: list[tuple[str, str]] = field(default_factory=list)
    auditor: Callable[[], Auditor | None] = lambda: None
    parts: int = 1
    """Parts of each batch."""

    def run(self, items: list[Arrival]) -> None:
        """Run one batch and commit it."""
        self.kafka |= {item.source: item for item in items}
        attempt = self.store.attempt()
        batch = LaneBatch(
            self.definition, attempt, self.cache, in_parts(items, self.parts), self.held, self.suspects,
            checkpoint="here", was_parked=self.was_parked, noted=lambda *point: self.noted.append(point), on_bug=lambda _: None,
            audit=self.auditor(), confirms=lambda corrects: self.log.confirm(corrects=corrects),
        )  # fmt: skip
        sink = TransactionalSink(lambda _: self.log)
        sink.write(self.chain.lane, list(batch.run()))
        sink.commit(self.chain.lane, batch.consumed)
        self.store.commit(attempt)

    def held(self, lane: str, place: Partition, span: Span, bytes_max: int) -> tuple[list[Arrival], int]:
        """Read inputs again."""
        assert lane == self.chain.lane
        assert bytes_max > 0
        if self.gone:
            raise InputsGone("retention removed them")
        offsets = range(span.first, span.end)
        return [self.kafka[Source(*place, at)] for at in offsets if Source(*place, at) in self.kafka], span.end

    def order(self, *skips: Source, start_over: bool = False, checkpoint: str = "here") -> None:
        """Order the lane to continue, or to start over with all that Kafka has."""
        self.run([self.ordered(*skips, start_over=start_over, checkpoint=checkpoint)])

    def ordered(self, *skips: Source, start_over: bool = False, checkpoint: str = "here") -> LaneOrder:
        """Return such an order."""
        orders = sum(source[:2] == ORDERS for source in self.kafka)
        ends: dict[Partition, int] = {}
        for topic, partition, offset in self.kafka if start_over else ():
            ends[topic, partition] = max(offset + 1, ends.get((topic, partition), 0))
        inputs = tuple(InputSpan(*place, 0, end) for place, end in sorted(ends.items()))
        return LaneOrder(self.chain.lane, frozenset(skips), Source(*ORDERS, orders), inputs, checkpoint)

    def parked(self) -> Parked | None:
        """Return how the lane is parked."""
        return stored_parts(self.store.committed.head)[0]

    def output(self, *but: str) -> list[OutputRecord]:
        """Return what is committed, without statuses and some topics."""
        return [each for each in self.log.records if each.topic not in ("lanes", *but)]


def in_parts(items: list[Arrival], parts: int, chunks_of: int = 3) -> Inputs:
    """Return a batch in parts, as a large one is, with borders inside blocks."""
    if parts == 1:
        return Inputs(items)
    with patch.object(arrived, "PART_RECORDS", max(1, -(-len(items) // parts))):
        return PackedInputs(chunks_of_items(items, chunks_of))


def chunk(items: list[Arrival]) -> Chunk:
    """Return a chunk of inputs of one partition."""
    return Chunk(*items[0].source, items[-1].source.offset + 1, len(items), pack(items))


def chunks_of_items(items: list[Arrival], size: int) -> list[Chunk]:
    """Return inputs in chunks."""
    by_place: dict[Partition, list[Arrival]] = {}
    for item in sorted(items, key=lambda item: item.source):
        by_place.setdefault((item.source.topic, item.source.partition), []).append(item)
    return [chunk(run[at : at + size]) for run in by_place.values() for at in range(0, len(run), size)]


def batches_of(of: Chain) -> list[list[Arrival]]:
    items: list[Arrival] = list(inputs_of(of.records))
    at = [len(items) * number // BATCHES for number in range(BATCHES + 1)]
    return [items[begin:end] for begin, end in pairwise(at)]


def undisturbed(running: Running) -> Running:
    """Return the same lane after the same batches without a fault."""
    alone = Running(running.chain, running.definition)
    for items in batches_of(running.chain):
        alone.run(items)
    return alone


Break = Callable[[pytest.MonkeyPatch, Running], None]


def failing(make_error: Callable[[], BaseException]) -> Break:
    """Return a fault after a lane's first block of a batch."""

    def fail(patch: pytest.MonkeyPatch, running: Running) -> None:
        process = LaneProcessor.process

        def some(self: LaneProcessor, items: Any, execute: Executor) -> Iterator[BlockOutput]:
            for at, output in enumerate(process(self, items, execute)):
                if at == 1 and self.lane.name == running.chain.lane:
                    break
                yield output
            if self.lane.name == running.chain.lane:
                raise make_error()

        patch.setattr(LaneProcessor, "process", some)

    return fail
