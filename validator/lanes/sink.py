# SPDX-License-Identifier: Apache-2.0
"""Exactly-once output of lanes, for any log that takes records and a marker together.

A batch may be processed again: with other borders, by another worker, or from the first block of a lane whose state is gone. The marker
says what has already been emitted, and that is left out. The rest is committed together with the marker that covers it, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from validator.codec.encode import BlockOutput, OutputRecord, values_size
from validator.core.types import BlockNumber
from validator.lanes.marker import Consumed, Marker
from validator.lanes.parked import says_parked
from validator.topics import DEAD_LETTERS

TRANSACTION_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of record values after which a larger batch continues in another transaction, at the border of a block. This bounds what a broker
and the readers of committed records must hold for a lane, and no batch exceeds the transaction timeout."""

HELD_BYTES_MAX = 16 * 1024 * 1024
"""Bytes of a batch's dead letters that the sink keeps for the batch's last transaction. More of them are handed on at once, and the open
transaction becomes the last."""


_TOPIC = attrgetter("topic")


class Sink(Protocol):
    """Takes what the lanes of one state partition emit in a batch."""

    def write(self, lane: str, output: list[BlockOutput]) -> None:
        """Take a part of a lane's output; a lane's parts arrive in order."""

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Commit a lane's batch, which took inputs up to ``consumed``, and return how many records went to each topic."""

    def begin(self, lane: str, point: str) -> None:
        """Begin a lane's batch at a point of its state, which names it (`parked.point_of`)."""

    def leave(self, lane: str, point: str) -> None:
        """Note the point at which a committed batch leaves the lane."""


class LaneSink(Sink, Protocol):
    """A sink that leaves out what a lane's marker covers."""

    def confirm(self, lane: str, *, corrects: bool) -> None:
        """Check, before anything of a batch is written, that the lane wrote its marker.

        Raises `ForeignMarker`, unless the sink ``corrects`` the marker.
        """


class BatchWriter(Protocol):
    """Writes one lane's batches to a log, each as one transaction; unusable after any exception.

    Opening one fences off every earlier writer of the lane.
    """

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return the lane's marker, with the offsets of ``places`` (topic and partition of inputs)."""

    def confirm(self, *, corrects: bool) -> None:
        """Compare the marker once with what Kafka has of the lane, and replace it with `Marker.corrected` if that is wanted.

        Raises as `Marker.check_own`.
        """

    def note_dead_letters(self) -> None:
        """Note where the committed dead letters end, before a batch writes some that it does not commit at once.

        Until the batch is committed, `written_dead_letters` reads no further: the batch's own transaction is open there.
        """

    def written_dead_letters(self) -> Container[bytes]:
        """Return the sources (`codec.encode.source_header`) of the lane's committed dead letters."""

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Add records to the batch's transaction."""

    def commit(self, marker: Marker) -> None:
        """Commit the batch's records and the new marker, both or neither."""


W = TypeVar("W", bound=BatchWriter)


class KeptWriters(Generic[W]):
    """The writers of a worker, by lane.

    A writer is used for the lane's next batch if the lane is at the point where that writer's last batch left it. Otherwise another worker
    has processed the lane since, and fenced the writer off. Kafka is not asked: if the point does not show it, as after an attempt that led
    to the same state, the fenced writer's commit fails, and the batch is repeated with a new one.
    """

    def __init__(self, open_writer: Callable[[str], W]) -> None:
        self._open_writer = open_writer
        self._writers: dict[str, W] = {}
        self._left: dict[str, str] = {}
        """By lane, the point at which the last batch left it."""

    def begin(self, lane: str, point: str) -> None:
        """Drop the writer of an earlier batch if the lane is at another point than that batch left it at."""
        if self._left.pop(lane, None) != point:
            self._writers.pop(lane, None)

    def leave(self, lane: str, point: str) -> None:
        self._left[lane] = point

    def writer(self, lane: str) -> W:
        """Return the lane's writer, a new one if there is none."""
        if (writer := self._writers.get(lane)) is None:
            writer = self._writers[lane] = self._open_writer(lane)
        return writer


class TransactionalSink(KeptWriters[BatchWriter]):
    """Emits everything exactly once: a lane's batch and its marker are one transaction of its `BatchWriter`.

    A batch larger than `TRANSACTION_BYTES_MAX` is several transactions, each with the marker of its last block; all its dead letters are
    in the last one, with the marker of what the batch took. Exceptions of the writer propagate; after one the sink is unusable.
    """

    def __init__(self, open_writer: Callable[[str], BatchWriter]) -> None:
        super().__init__(open_writer)
        self._batches: dict[str, _Batch] = {}

    def begin(self, lane: str, point: str) -> None:
        """Begin a lane's batch. Of an attempt before it that was given up, nothing is kept: its transaction ends with its writer."""
        super().begin(lane, point)
        self._batches.pop(lane, None)

    def confirm(self, lane: str, *, corrects: bool) -> None:
        """Check the marker before anything is left out because of it (`LaneSink`)."""
        self.writer(lane).confirm(corrects=corrects)

    def write(self, lane: str, output: list[BlockOutput]) -> None:
        """Write the output at once, except for what belongs to no block: it waits for `commit`, dead letters up to `HELD_BYTES_MAX`."""
        writer, batch = self.writer(lane), self._batches.setdefault(lane, _Batch())
        marker = writer.marker(())
        for block, records in output:
            if block is None:
                batch.hold(marker.unwritten(records, writer.written_dead_letters))
                if batch.held_bytes > HELD_BYTES_MAX:
                    if not batch.has_news:
                        writer.note_dead_letters()
                    _hand_on(writer, batch, batch.take_news())
                    batch.has_news = True
            elif not marker.has_written(block):
                _hand_on(writer, batch, records)
                batch.last_block = block
                if batch.open_bytes >= TRANSACTION_BYTES_MAX and not batch.has_news:
                    marker = marker.after(block, {})
                    writer.commit(marker)
                    batch.last_block, batch.open_bytes = None, 0

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Commit a lane's batch; one that is already committed is left out."""
        writer, batch = self.writer(lane), self._batches.pop(lane, None) or _Batch()
        marker = writer.marker(consumed)
        has_news = batch.has_news or any(map(_is_news, batch.held))
        if batch.last_block is None and not has_news and not marker.is_news(consumed):
            return batch.written
        _hand_on(writer, batch, batch.held)
        writer.commit(marker.after(batch.last_block, consumed))
        return batch.written


def in_runs(outputs: Iterable[BlockOutput], run_bytes: int) -> Iterator[list[BlockOutput]]:
    """Yield outputs in runs of about ``run_bytes`` bytes of record values."""
    run: list[BlockOutput] = []
    size = 0
    for each in outputs:
        run.append(each)
        size += values_size(each.records)
        if size >= run_bytes:
            yield run
            run, size = [], 0
    if run:
        yield run


def _hand_on(writer: BatchWriter, batch: _Batch, records: list[OutputRecord]) -> None:
    writer.write(records)
    batch.count(records)


def _is_news(record: OutputRecord) -> bool:
    """Return whether a record that belongs to no block is emitted even if nothing else is; a status is not."""
    return record.topic == DEAD_LETTERS or says_parked(record)


@dataclass(slots=True)
class _Batch:
    """A lane's batch so far."""

    held: list[OutputRecord] = field(default_factory=list)
    """Records that belong to no block: only the marker of what the batch took may commit them."""
    held_bytes: int = 0
    """Bytes of the values of dead letters among them."""
    has_news: bool = False
    """Whether the open transaction has such records already."""
    last_block: BlockNumber | None = None
    open_bytes: int = 0
    """Bytes of record values in the open transaction."""
    written: Counter[str] = field(default_factory=Counter)
    """How many records went to each topic."""

    def hold(self, records: list[OutputRecord]) -> None:
        self.held += records
        self.held_bytes += values_size(filter(_is_news, records))

    def take_news(self) -> list[OutputRecord]:
        """Return what is held except for the lane's status, which a batch without news does not emit."""
        news = list(filter(_is_news, self.held))
        self.held = [record for record in self.held if not _is_news(record)]
        self.held_bytes = 0
        return news

    def count(self, records: list[OutputRecord]) -> None:
        self.written.update(map(_TOPIC, records))
        self.open_bytes += values_size(records)
