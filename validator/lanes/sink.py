# SPDX-License-Identifier: Apache-2.0
"""Exactly-once output of lanes, for any log that takes records and a marker together.

A batch may be processed again: with other borders, by another worker, or from the first block of a lane whose state is gone. The marker
says what has already been emitted, and that is left out. The rest is committed together with the marker that covers it, or not at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

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


class BatchWriter(Protocol):
    """Writes one lane's batches to a log, each as one transaction; unusable after any exception.

    Opening one fences off every earlier writer of the lane.
    """

    def is_current(self) -> bool:
        """Return whether nobody else has written the lane since this writer last did; raises if another job has."""

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return the lane's marker, with the offsets of ``places`` (topic and partition of inputs)."""

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


class TransactionalSink:
    """Emits everything exactly once: a lane's batch and its marker are one transaction of its `BatchWriter`.

    A batch larger than `TRANSACTION_BYTES_MAX` is several transactions, each with the marker of its last block; all its dead letters are
    in the last one, with the marker of what the batch took. Exceptions of the writer propagate; after one the sink is unusable.
    """

    def __init__(self, open_writer: Callable[[str], BatchWriter]) -> None:
        self._open_writer = open_writer
        self._writers: dict[str, BatchWriter] = {}
        self._batches: dict[str, _Batch] = {}

    def write(self, lane: str, output: list[BlockOutput]) -> None:
        """Write the output at once, except for what belongs to no block: it waits for `commit`, dead letters up to `HELD_BYTES_MAX`."""
        writer, batch = self._begin(lane)
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
        writer, batch = self._begin(lane)
        del self._batches[lane]
        marker = writer.marker(consumed)
        has_news = batch.has_news or any(map(_is_news, batch.held))
        if batch.last_block is None and not has_news and not marker.is_news(consumed):
            return batch.written
        _hand_on(writer, batch, batch.held)
        writer.commit(marker.after(batch.last_block, consumed))
        return batch.written

    def _begin(self, lane: str) -> tuple[BatchWriter, _Batch]:
        """Return a lane's writer and batch; an earlier batch's writer only if no other worker has written the lane since."""
        batch = self._batches.get(lane)
        if batch is None:
            batch = self._batches[lane] = _Batch()
            writer = self._writers.get(lane)
            if writer is None or not writer.is_current():
                self._writers[lane] = self._open_writer(lane)
        return self._writers[lane], batch


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
