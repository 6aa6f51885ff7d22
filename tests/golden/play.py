# SPDX-License-Identifier: Apache-2.0
"""Plays the recorded inputs through the job's decode stage, stored lanes and sink, in this process, and records every byte."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden import product
from tests.golden.inputs import JOB, JOURNAL_BYTES, PREFIX, TRANSACTION_BYTES, Inputs
from tests.golden.product import DeadLetter, LaneCache, LaneDefinition, Marker, MemoryState, OutputRecord
from tests.golden.recording_file import Line

NO_LANE = ""
FORGETS_AFTER = 4
"""The live lanes are dropped after this many batches, so that they are rebuilt from the store."""


@dataclass(slots=True)
class LaneLog:
    """The log of one lane, and its writer (`validator.lanes.sink.BatchWriter`), whose commits always succeed."""

    lane: str
    lines: list[Line] = field(default_factory=list)
    batch: int = 0
    last_marker: Marker = field(default_factory=Marker)
    _open: list[OutputRecord] = field(default_factory=list)
    _dead: set[bytes] = field(default_factory=set)
    _transactions: int = 0
    _positions: Counter[str] = field(default_factory=Counter)

    def confirm(self, *, corrects: bool) -> None:
        """Believe the marker."""

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return the marker of the last commit."""
        return self.last_marker.after(None, dict.fromkeys(places, 0))

    def note_dead_letters(self) -> None:
        """Have no readers."""

    def written_dead_letters(self) -> Container[bytes]:
        """Return the sources of the committed dead letters."""
        return self._dead

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Add records to the open transaction."""
        self._open += records

    def commit(self, marker: Marker) -> None:
        """Record the transaction and its marker."""
        self._transactions += 1
        for record in [*self._open, marker.encode(self.lane)]:
            at = self._positions[record.topic]
            self._positions[record.topic] += 1
            line = {"group": f"record/{self.lane}/{record.topic}", "at": at, "batch": self.batch}
            line |= {"transaction": self._transactions, "key": record.key.hex(), "value": record.value.hex()}
            if record.headers:
                line["headers"] = [[name, value.hex()] for name, value in record.headers]
                self._dead.add(dict(record.headers)["source"])
            self.lines.append(line)
        self._open.clear()
        self.last_marker = marker


@dataclass(slots=True)
class Played:
    """The result: the lanes' lines, and the final stores of the lanes."""

    definitions: dict[str, LaneDefinition]
    """With the true digests."""
    lines: list[Line] = field(default_factory=list)
    stored: dict[str, MemoryState] = field(default_factory=dict)
    consumed: dict[tuple[str, int], int] = field(default_factory=dict)
    outcomes: Counter[str] = field(default_factory=Counter)


def definitions(inputs: Inputs, job: dict[str, int] | None = None) -> dict[str, LaneDefinition]:
    """Return the lanes of recorded inputs, as the job makes them."""
    with TemporaryDirectory() as folder:
        tables = dict(inputs.tables)
        for lane, state in inputs.states.items():
            path = Path(folder) / f"{lane}.json"
            path.write_text(json.dumps(state), encoding="ascii")
            tables[lane] = {**tables[lane], "state": str(path)}
        return product.definitions_of(tables, JOB if job is None else job)


def play(inputs: Inputs) -> Played:
    """Play all batches."""
    played = Played(definitions(inputs))
    with product.small_bounds(JOURNAL_BYTES, TRANSACTION_BYTES):
        _Player(played).play(inputs)
    return played


class _Player:
    def __init__(self, played: Played) -> None:
        self._played = played
        self._definitions = {lane: product.with_fixed_digests(each) for lane, each in played.definitions.items()}
        self._logs = {lane: LaneLog(lane) for lane in [*self._definitions, NO_LANE]}
        self._sink = product.TransactionalSink(self._logs.__getitem__)
        self._cache = LaneCache()
        self._stored = {lane: MemoryState() for lane in self._definitions}
        self._lines: dict[str, list[Line]] = {lane: [] for lane in self._definitions}

    def play(self, inputs: Inputs) -> None:
        for number in range(inputs.rows[-1]["batch"] + 1):
            if number % FORGETS_AFTER == FORGETS_AFTER - 1:
                self._cache = LaneCache()
            rows = [{**row, "topic": PREFIX + row["topic"]} for row in inputs.rows if row["batch"] == number]
            for lane, items in product.decoded(rows, self._played.definitions, PREFIX).items():
                self._take(number, lane, items)
        played = self._played
        played.lines += [line for log in self._logs.values() for line in log.lines]
        played.lines += [line for lines in self._lines.values() for line in lines]
        for lane, definition in self._definitions.items():
            worker = product.restore_lane(definition, self._stored[lane])
            assert worker is not None
            for at, page in enumerate(worker.snapshot()):
                played.lines.append({"group": f"stored/{lane}/snapshot", "at": at, "value": page.hex()})
        played.stored = self._stored
        played.consumed = {
            place: offset for log in self._logs.values() for place, offset in log.last_marker.consumed.items()
        }

    def _take(self, batch: int, lane: str, items: list[product.Input | DeadLetter]) -> None:
        self._logs[lane].batch = batch
        if lane == NO_LANE:
            buried = [product.encode_dead_letter(item) for item in items if isinstance(item, DeadLetter)]
            self._sink.write(lane, [product.BlockOutput(None, buried)])
        else:
            stored = self._stored[lane]
            before = dict(stored.slots), list(stored.journal)
            for output in product.process_batch(self._definitions[lane], stored, self._cache, [items]):
                self._sink.write(lane, [output])
            self._lines[lane] += _stored(lane, batch, stored, *before)
            worker = product.restore_lane(self._definitions[lane], stored)
            assert worker is not None
            own, of_lane = worker.snapshot()[:2]
            for name, page in (("own-page", own), ("lane-page", of_lane)):
                self._lines[lane].append({"group": f"stored/{lane}/{name}", "at": batch, "value": page.hex()})
        self._sink.commit(lane, product.consumed_by(items))


def _stored(
    lane: str, batch: int, stored: MemoryState, slots: dict[int, bytes], journal: list[bytes]
) -> Iterator[Line]:
    """Yield what a batch has changed in a lane's store."""
    assert stored.head is not None
    yield {"group": f"stored/{lane}/head", "at": batch, "value": stored.head.hex()}
    for number in sorted({*stored.slots, *slots}):
        if stored.slots.get(number) != slots.get(number):
            value = stored.slots[number].hex() if number in stored.slots else None
            yield {"group": f"stored/{lane}/slots", "at": number, "batch": batch, "value": value}
    if stored.journal[: len(journal)] != journal:
        yield {"group": f"stored/{lane}/journal", "at": batch, "value": None}
        journal = []
    for entry in stored.journal[len(journal) :]:
        yield {"group": f"stored/{lane}/journal", "at": batch, "value": entry.hex()}
