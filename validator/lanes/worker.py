# SPDX-License-Identifier: Apache-2.0
"""Feeds a lane a batch and encodes what it tells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from validator.codec.encode import Encoder, LaneStatus, OutputRecord, Told, encode_dead_letter
from validator.core.inputs import DeadLetter, Input
from validator.core.lane import Lane
from validator.core.outcomes import Receipt
from validator.core.scale import DecodeError, Reader, Writer
from validator.lanes.definition import LaneDefinition

SNAPSHOT_VERSION = 1


class LaneWorker:
    """A lane and the encoder of its records."""

    def __init__(self, lane: Lane, runtime_digest: bytes) -> None:
        self.lane = lane
        self._encoder = Encoder(lane.name, runtime_digest)
        self._last_receipt: Receipt | None = None

    def process(self, items: Iterable[Input | DeadLetter]) -> Iterator[Told]:
        """Take a batch whole, then yield what its arrival told, and what each block tells that it completes.

        Raises `core.lane.LaneOverflow`; any other exception is a bug.
        """
        lane = self.lane
        dead: list[OutputRecord] = []
        for item in items:
            if isinstance(item, DeadLetter):
                lane.count_dead()
                dead.append(encode_dead_letter(item))
            else:
                dead += [encode_dead_letter(letter, item.source) for letter in lane.add(item)]
        if dead:
            yield Told(None, dead)
        for executed, passed in lane.execute_ready():
            self._last_receipt = executed.receipt
            records = self._encoder.executed(executed)
            yield Told(executed.receipt.block, records + [encode_dead_letter(letter) for letter in passed])

    def replay(self, items: Iterable[Input], dead: int) -> None:
        """Take a batch again that was told already, and tell nothing."""
        for item in items:
            self.lane.add(item)
        for _ in range(dead):
            self.lane.count_dead()
        for executed, _ in self.lane.execute_ready():
            self._last_receipt = executed.receipt

    def snapshot(self) -> list[bytes]:
        """Return lane and last receipt as canonical, versioned bytes: the receipt first, then the parts of `Lane.snapshot`."""
        out = Writer()
        out.u8(SNAPSHOT_VERSION)
        out.option(self._last_receipt, lambda receipt: _write_receipt(out, receipt))
        return [bytes(out.buffer), *self.lane.snapshot()]

    @classmethod
    def restore(cls, definition: LaneDefinition, snapshot: list[bytes]) -> LaneWorker:
        """Return what `snapshot` was taken of; raises `core.scale.DecodeError`, `definition.JournalUnreadable`."""
        reader = Reader(snapshot[0])
        version = reader.u8()
        if version != SNAPSHOT_VERSION:
            raise DecodeError(f"worker snapshot version {version}, expected {SNAPSHOT_VERSION}")
        worker = cls(definition.restore(snapshot[1:]), definition.runtime_digest)
        worker._last_receipt = reader.option(lambda: _read_receipt(reader))
        reader.end()
        return worker

    def status(self) -> Told:
        """Return the record of where the lane stands."""
        lane = self.lane
        status = LaneStatus(
            lane.executed_block,
            lane.waiting_blocks,
            lane.waiting_bytes,
            lane.waits_for(),
            lane.counters,
            self._last_receipt,
        )
        return Told(None, [self._encoder.lane_status(status)])


def _write_receipt(out: Writer, receipt: Receipt) -> None:
    *numbers, state_root = receipt
    for number in numbers:
        out.u64(number)
    out.option(state_root, out.hash)


def _read_receipt(reader: Reader) -> Receipt:
    numbers = [reader.u64() for _ in range(len(Receipt._fields) - 1)]
    return Receipt._make([*numbers, reader.option(reader.hash)])
