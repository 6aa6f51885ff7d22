# SPDX-License-Identifier: Apache-2.0
"""What a lane tells, written exactly once: decided here, against any log that takes records and a marker together.

A batch may be done again, with other borders, by another worker, or from the first block of a lane whose state is gone. Whatever of it has
been told is left out, by the marker; the rest and the marker that covers it become true together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from validator.codec.encode import BlockOutput, OutputRecord
from validator.core.types import BlockNumber
from validator.lanes.marker import Consumed, Marker

TRANSACTION_BYTES_MAX = 256 * 1024 * 1024
"""Bytes of record values after which a batch that tells more goes on in another transaction, at the border of a block: what a broker and
the readers of committed records have to hold for a lane has a bound, and no batch takes longer than a transaction may."""


class Sink(Protocol):
    """Takes what the lanes of one state partition tell in a batch."""

    def write(self, lane: str, told: list[BlockOutput]) -> None:
        """Take a part of what a lane told; a lane's parts arrive in order."""

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Make a lane's batch, which took inputs up to ``consumed``, true for good, and return how many records went to each topic."""


class BatchWriter(Protocol):
    """Writes one lane's batches to a log, each as one transaction; after any exception it is of no more use.

    Whoever opens one fences off every writer of the lane that was opened before.
    """

    def is_current(self) -> bool:
        """Say whether nobody has written the lane since this writer last did; raises where another job has."""

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return what the lane has told, as far as the offsets of ``places`` (topic and partition of inputs) go."""

    def told_dead_letters(self) -> Container[bytes]:
        """Return the sources (`codec.encode.source_header`) of the lane's dead letters that are committed."""

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Add records to the batch's transaction."""

    def commit(self, marker: Marker) -> None:
        """Commit the batch's records and the new marker, both or neither."""


class TransactionalSink:
    """Tells everything exactly once: a lane's batch and its marker are one transaction of its `BatchWriter`.

    A batch that tells more than `TRANSACTION_BYTES_MAX` is several of them, each with the marker of its last block. Lets through what the
    writer raises, and is of no more use then.
    """

    def __init__(self, open_writer: Callable[[str], BatchWriter]) -> None:
        self._open_writer = open_writer
        self._writers: dict[str, BatchWriter] = {}
        self._batches: dict[str, _Batch] = {}

    def write(self, lane: str, told: list[BlockOutput]) -> None:
        """Write what belongs to blocks at once; the rest waits for `commit`, which knows what the batch took."""
        writer, batch = self._begin(lane)
        marker = writer.marker(())
        for block, records in told:
            if block is None:
                batch.beside_blocks += records
            elif not marker.has_told(block):
                writer.write(records)
                batch.count(records)
                batch.last_block = block
                if batch.open_bytes >= TRANSACTION_BYTES_MAX:
                    marker = marker.after(block, {})
                    writer.commit(marker)
                    batch.last_block, batch.open_bytes = None, 0

    def commit(self, lane: str, consumed: Consumed) -> dict[str, int]:
        """Commit a lane's batch; one that has been told already is left out."""
        writer, batch = self._begin(lane)
        del self._batches[lane]
        marker = writer.marker(consumed)
        beside = marker.untold(batch.beside_blocks, writer.told_dead_letters)
        dead = any(record.topic == "dead-letters" for record in beside)
        if batch.last_block is None and not dead and not marker.is_news(consumed):
            return batch.written
        writer.write(beside)
        batch.count(beside)
        writer.commit(marker.after(batch.last_block, consumed))
        return batch.written

    def _begin(self, lane: str) -> tuple[BatchWriter, _Batch]:
        """Return a lane's writer and its batch; a writer of an earlier batch only if no other worker has written the lane since."""
        batch = self._batches.get(lane)
        if batch is None:
            batch = self._batches[lane] = _Batch()
            writer = self._writers.get(lane)
            if writer is None or not writer.is_current():
                self._writers[lane] = self._open_writer(lane)
        return self._writers[lane], batch


@dataclass(slots=True)
class _Batch:
    """A lane's batch so far."""

    beside_blocks: list[OutputRecord] = field(default_factory=list)
    last_block: BlockNumber | None = None
    open_bytes: int = 0
    """Of record values in the open transaction."""
    written: dict[str, int] = field(default_factory=dict)

    def count(self, records: list[OutputRecord]) -> None:
        for record in records:
            self.written[record.topic] = self.written.get(record.topic, 0) + 1
            self.open_bytes += len(record.value)
