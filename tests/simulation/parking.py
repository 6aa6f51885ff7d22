# SPDX-License-Identifier: Apache-2.0
"""Lanes that cannot continue, and the operator who lets them.

A lane's fault belongs to its batch: every attempt at it meets the same one, as a handler that hangs would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias
from unittest.mock import patch

from tests.simulation.inputs import ORDERS, Item, Partition
from tests.simulation.schedule import Schedule
from tests.simulation.spark import Checkpoint
from validator.codec.encode import BlockOutput
from validator.codec.orders import InputSpan, LaneOrder
from validator.core.execute import Executor
from validator.core.handlers.errors import HandlerFault
from validator.core.inputs import Source
from validator.core.lane import WaitingOverflow
from validator.lanes import parking as parking_module
from validator.lanes.marker import consumed_by
from validator.lanes.parked import Fault, Parked
from validator.lanes.parking import LaneBatch
from validator.lanes.processor import LaneProcessor
from validator.lanes.slots import Slots

WHILE_SAVING = -1
"""Stands for a fault while the lane's pages are written, after all its output."""

Key: TypeAlias = tuple[str, tuple[tuple[Partition, int], ...]]

FAULTS: tuple[Callable[[], BaseException], ...] = (
    lambda: HandlerFault("made", "up", "it did not end within 10 seconds"),
    lambda: WaitingOverflow("too many bytes wait", 0, "waiting for the record of the block after 0"),
    MemoryError,
    lambda: SystemExit(3),
    lambda: KeyError("a bug"),
)


class LaneFaults:
    """Decides which batches of which lanes fail, and after how many outputs."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._after: dict[Key, int | None] = {}
        self._here = threading.local()

    @contextmanager
    def injected(self) -> Iterator[None]:
        """Make lanes fail as decided; restore the classes afterwards."""
        run, process, put, faults = LaneBatch.run, LaneProcessor.process, Slots._put, self

        def run_batch(self: LaneBatch) -> Iterator[BlockOutput]:
            self.on_bug = lambda _: None
            faults._here.puts = 0
            faults._here.key = (self.lane, tuple(sorted(consumed_by(self.items).items())))
            yield from run(self)

        def process_some(self: LaneProcessor, items: Iterable[Any], execute: Executor) -> Iterator[BlockOutput]:
            after = faults._decide(faults._here.key)
            for at, output in enumerate(process(self, items, execute)):
                if at == after:
                    break
                yield output
            if after is not None and after != WHILE_SAVING:
                make = FAULTS[len(faults._here.key[1]) % len(FAULTS)]
                raise make()

        def put_some(self: Slots, store: Any, number: int, data: bytes) -> None:
            faults._here.puts += 1
            if faults._here.puts == 3 and faults._decide(faults._here.key) == WHILE_SAVING:
                raise MemoryError
            put(self, store, number, data)

        sizes = self._schedule.choose((5, 40, parking_module.RESUMED_OFFSETS_MAX))
        with (
            patch.object(LaneBatch, "run", run_batch),
            patch.object(LaneProcessor, "process", process_some),
            patch.object(Slots, "_put", put_some),
            patch.object(parking_module, "RESUMED_OFFSETS_MAX", sizes),
            patch.object(parking_module, "RESUMED_BYTES_MAX", self._schedule.choose((400, 1 << 20))),
        ):
            yield

    def _decide(self, key: Key) -> int | None:
        if key not in self._after:
            fault = self._schedule.step(f"lane {key[0]} executes", "lane parked", often=5)
            self._after[key] = None if fault is None else self._schedule.choose((0, 1, 2, 5, WHILE_SAVING))
        return self._after[key]


class Operator:
    """Writes orders to the lanes that are parked, sooner or later, and some that nobody needs.

    A lane whose state is damaged is ordered to start over, mostly.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.orders: list[tuple[str, Item]] = []
        """What the partition of orders holds."""
        self.starts_over = 0
        """How many of them are to start over."""

    def look(self, parked: Mapping[str, Parked], checkpoint: Checkpoint, *, idle: bool) -> None:
        """Look at the lanes; if the job is ``idle``, nothing else happens any more."""
        for lane, found in parked.items():
            if idle or self._schedule.chance(0.3):
                damaged = found.fault is Fault.STATE and not found.resuming
                self.write(lane, checkpoint if damaged and self._schedule.chance(0.9) else None)
        if self._schedule.chance(0.02):
            self.write(self._schedule.choose(("kusama", "gaps")))

    def write(self, lane: str, starts_over: Checkpoint | None = None) -> None:
        """Order a lane to continue, or to start over with what the job of a checkpoint has read."""
        self._schedule.note(f"order to {lane}{' to start over' * bool(starts_over)}")
        source = Source(*ORDERS, len(self.orders))
        order = LaneOrder(lane, frozenset(), source)
        if starts_over is not None:
            consumed = sorted(starts_over.consumed().items())
            spans = tuple(InputSpan(*place, 0, end) for place, end in consumed if end)
            order = order._replace(inputs=spans, checkpoint=starts_over.id)
            self.starts_over += 1
        self.orders.append((lane, order))
