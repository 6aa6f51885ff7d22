# SPDX-License-Identifier: Apache-2.0
"""Feeds batches to a lane and encodes its output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import TypeAlias

from validator.codec.encode import BlockOutput, Encoder, LaneStatus, OutputRecord, encode_dead_letter
from validator.core.execute import Executor, execute
from validator.core.inputs import DeadLetter, Input
from validator.core.lane import Lane
from validator.core.limits import U64_MAX
from validator.core.outcomes import Executed, Receipt
from validator.core.scale import Encoding, Reader, Writer
from validator.core.types import BlockNumber
from validator.lanes.definition import LaneDefinition

OWN_PAGE = Encoding("worker snapshot")

_CHAIN_BYTES = 32

Observer: TypeAlias = Callable[[Executed, Lane], None]
"""Gets what a block gave, with the lane as it is after it."""


def of_new_blocks(observe: Observer | None, since: BlockNumber | None) -> Observer | None:
    """Return an observer of the blocks after ``since``; the others were observed when they were executed first."""
    if observe is None or since is None:
        return observe
    return lambda executed, lane: observe(executed, lane) if executed.receipt.block > since else None


class LaneProcessor:
    """A lane with the encoder of its records."""

    def __init__(self, lane: Lane, definition: LaneDefinition) -> None:
        self.lane = lane
        self._digest_at = definition.digest_at
        self._encoder = Encoder(lane.name, definition.digest_at(lane.executed_block))
        self.observe: Observer | None = None
        """Gets each block that `process` executes."""
        self._last_receipt: Receipt | None = None
        self._receipts_hash = bytes(_CHAIN_BYTES)
        """A hash chain over every receipt so far."""

    @classmethod
    def create(cls, definition: LaneDefinition) -> LaneProcessor:
        """Return the processor of a lane before its first block."""
        return cls(definition.create(), definition)

    def take(self, items: Iterable[Input | DeadLetter]) -> list[DeadLetter]:
        """Take a whole batch, and return its dead letters: those in it, and records that the lane refuses.

        Raises `core.lane.WaitingOverflow`.
        """
        lane = self.lane
        dead: list[DeadLetter] = []
        for item in items:
            if isinstance(item, DeadLetter):
                lane.count_dead()
                dead.append(item)
            else:
                found = lane.add(item)
                if found:
                    dead += found
        return dead

    def execute_ready(self, execute: Executor = execute) -> Iterator[tuple[Executed, list[DeadLetter]]]:
        """Execute by ``execute`` what is complete, as `Lane.execute_ready`, and keep the receipts."""
        for executed, passed in self.lane.execute_ready(execute):
            self._note(executed.receipt)
            self._encoder.runtime_digest = self._digest_at(executed.receipt.block)
            yield executed, passed

    def encoded(self, executed: Executed) -> list[OutputRecord]:
        """Return the records of the block that was executed last."""
        return self._encoder.executed(executed)

    def process(self, items: Iterable[Input | DeadLetter], execute: Executor = execute) -> Iterator[BlockOutput]:
        """Take a whole batch, then yield the output of its arrival and of each block that it completes by ``execute``.

        Raises `core.lane.WaitingOverflow`; any other exception is a bug.
        """
        if dead := self.take(items):
            yield BlockOutput(None, list(map(encode_dead_letter, dead)))
        for executed, passed in self.execute_ready(execute):
            if self.observe is not None:
                self.observe(executed, self.lane)
            yield BlockOutput(executed.receipt.block, self.encoded(executed))
            if passed:
                yield BlockOutput(None, list(map(encode_dead_letter, passed)))

    def catch_up(self, items: Iterable[Input], dead: int) -> Iterator[Executed]:
        """Execute again a batch that was processed before, with ``dead`` letters, and yield what its blocks give.

        It fit under the limit of that time, so a smaller one that is configured now only applies to what comes next.
        """
        lane, settings = self.lane, self.lane.settings
        lane.settings = replace(settings, waiting_bytes_max=U64_MAX)
        self.take(items)
        for _ in range(dead):
            lane.count_dead()
        for executed, _ in self.execute_ready():
            yield executed
        lane.settings = settings

    def snapshot(self) -> list[bytes]:
        """Return the lane as canonical, versioned bytes: `common_pages`, then the pages of paras, ascending."""
        return [self._own_page(), *self.lane.snapshot()]

    def common_pages(self) -> list[bytes]:
        """Return the pages that no para owns: the processor's and the lane's own, then those of the rules."""
        return [self._own_page(), self.lane.own_page(), *self.lane.rules.common_pages()]

    def summary(self) -> bytes:
        """Return 16 bytes over the lane's position and all its output: cheap, and equal for equal histories.

        They cover every block's receipt, and with it the state roots, the outcome counts of all records, and the number of waiting bytes.
        """
        out = Writer()
        out.hash(self._receipts_hash)
        out.u32(self.lane.executed_block)
        out.u64(self.lane.waiting_bytes)
        for count in self.lane.counters.in_order():
            out.u64(count)
        return blake2b(out.buffer, digest_size=16).digest()

    @classmethod
    def restore(cls, definition: LaneDefinition, snapshot: list[bytes]) -> LaneProcessor:
        """Return the processor that a `snapshot` describes. Raises `core.scale.DecodeError`, `definition.JournalUnreadable`."""
        reader = OWN_PAGE.read(snapshot[0])
        processor = cls(definition.restore(snapshot[1:]), definition)
        processor._last_receipt = reader.option(lambda: _read_receipt(reader))
        processor._receipts_hash = reader.hash()
        reader.end()
        return processor

    def _own_page(self) -> bytes:
        out = OWN_PAGE.begin()
        out.option(self._last_receipt, lambda receipt: _write_receipt(out, receipt))
        out.hash(self._receipts_hash)
        return bytes(out.buffer)

    def _note(self, receipt: Receipt) -> None:
        out = Writer()
        out.hash(self._receipts_hash)
        _write_receipt(out, receipt)
        self._last_receipt = receipt
        self._receipts_hash = blake2b(out.buffer, digest_size=_CHAIN_BYTES).digest()

    def status(self) -> BlockOutput:
        """Return the record of the lane's status."""
        lane = self.lane
        status = LaneStatus(
            lane.executed_block,
            lane.waiting_blocks,
            lane.waiting_bytes,
            lane.waits_for(),
            lane.counters,
            self._last_receipt,
            lane.resident_bytes(),
            lane.window_bytes,
        )
        return BlockOutput(None, [self._encoder.lane_status(status)])


def _write_receipt(out: Writer, receipt: Receipt) -> None:
    *numbers, state_root = receipt
    for number in numbers:
        out.u64(number)
    out.option(state_root, out.hash)


def _read_receipt(reader: Reader) -> Receipt:
    numbers = [reader.u64() for _ in range(len(Receipt._fields) - 1)]
    return Receipt._make([*numbers, reader.option(reader.hash)])
