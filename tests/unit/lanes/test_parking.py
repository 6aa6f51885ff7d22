# SPDX-License-Identifier: Apache-2.0
"""Ten lanes of which nine fail, each in another way: they are parked, the tenth continues, and nothing is lost or emitted twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.lanes.backend import Attempt
from tests.unit.lanes.running import (
    BATCHES,
    FAULTY_BATCH,
    Break,
    Running,
    batches_of,
    failing,
    undisturbed,
)
from validator.core.handlers.errors import HandlerFault
from validator.core.lane import Lane
from validator.lanes.parked import Fault, point_of
from validator.lanes.parking import Suspect
from validator.lanes.store import restore_lane

# --- nine ways to fail --------------------------------------------------------------------------------------------------------------------


def worker_dies(_: pytest.MonkeyPatch, running: Running) -> None:
    running.suspects[running.chain.lane] = Suspect(point_of(running.store.committed.head), "its worker died 3 times")


def head_is_damaged(_: pytest.MonkeyPatch, running: Running) -> None:
    running.cache.take(running.chain.lane)
    running.store.committed.head = (running.store.committed.head or b"")[:-5]


def page_is_damaged(_: pytest.MonkeyPatch, running: Running) -> None:
    running.cache.take(running.chain.lane)
    slots = running.store.committed.slots
    number = min(slots)
    slots[number] = slots[number][:-1] + bytes([slots[number][-1] ^ 1])


def journal_is_damaged(_: pytest.MonkeyPatch, running: Running) -> None:
    running.cache.take(running.chain.lane)
    running.store.committed.journal[0] = running.store.committed.journal[0][:-1]


def too_much_waits(patch: pytest.MonkeyPatch, running: Running) -> None:
    settings = replace(running.definition.settings, waiting_bytes_max=1)
    init = Lane.__init__

    def small(self: Lane, name: str, rules: Any, executed: int, _: Any = None) -> None:
        init(self, name, rules, executed, settings if name == running.chain.lane else None)

    patch.setattr(Lane, "__init__", small)
    running.cache.take(running.chain.lane)


FAULTS: dict[str, tuple[Break, Fault, str]] = {
    "handler": (failing(lambda: HandlerFault("tally", "a", "it did not end")), Fault.HANDLER, "it did not end"),
    "memory": (failing(MemoryError), Fault.MEMORY, r"raise \[job\] worker_memory"),
    "exits": (failing(lambda: SystemExit(3)), Fault.BUG, "SystemExit at running.py"),
    "bug": (failing(lambda: KeyError("x")), Fault.BUG, "KeyError at running.py"),
    "dies": (worker_dies, Fault.WORKER, "its worker died 3 times"),
    "head": (head_is_damaged, Fault.STATE, "cannot be used.*--rebuild"),
    "page": (page_is_damaged, Fault.STATE, "cannot be used.*--rebuild"),
    "journal": (journal_is_damaged, Fault.STATE, "cannot be used.*--rebuild"),
    "waiting": (too_much_waits, Fault.WAITING, "waiting_bytes_max"),
}  # fmt: skip


def test_nine_lanes_fail_in_nine_ways_and_the_tenth_goes_on(make: Callable[..., Running]) -> None:
    lanes = {name: make(seed, name) for seed, name in enumerate((*FAULTS, "healthy"), 30)}
    batches = {name: batches_of(running.chain) for name, running in lanes.items()}
    before: dict[str, Attempt] = {}
    for number in range(BATCHES):
        for name, running in lanes.items():
            with pytest.MonkeyPatch.context() as patch:
                if number == FAULTY_BATCH and name in FAULTS:
                    committed = running.store.committed
                    before[name] = replace(committed, slots=dict(committed.slots), journal=list(committed.journal))
                    FAULTS[name][0](patch, running)
                running.run(batches[name][number])
    for name, (_, fault, reason) in FAULTS.items():
        parked = lanes[name].parked()
        assert parked is not None, name
        assert parked.fault is fault, parked
        assert re.search(reason, parked.reason), parked.reason
        assert parked.reason.startswith(f"lane {name}") or fault is Fault.WORKER
        rest = [item.source for number in range(FAULTY_BATCH, BATCHES) for item in batches[name][number]]
        for place, span in parked.held.items():
            offsets = [source.offset for source in rest if source[:2] == place]
            assert span == (min(offsets), max(offsets) + 1)
        assert {source[:2] for source in rest} == set(parked.held)
    alone = undisturbed(lanes["healthy"])
    assert lanes["healthy"].log.records == alone.log.records, "byte for byte what it emits without the others"

    for name, running in lanes.items():
        if name == "healthy":
            continue
        running.suspects.clear()
        _repair(running, before[name])
        running.order()
        assert running.parked() is None, name
        alone = undisturbed(running)
        assert sorted(running.output()) == sorted(alone.output())
        assert running.output("dead-letters") == alone.output("dead-letters"), name
        restored = restore_lane(running.definition, running.store.attempt())
        expected = restore_lane(running.definition, alone.store.attempt())
        assert restored is not None
        assert expected is not None
        assert restored.snapshot() == expected.snapshot()


def _repair(running: Running, before: Attempt) -> None:
    """Put the state of before the fault back, as a backup of the checkpoint would, with what is held."""
    parked = running.parked()
    assert parked is not None
    running.store.committed = replace(before, head=parked.encode(before.head))


def test_overflow_while_executed_blocks_are_taken_again_names_the_last_executed_block(
    make: Callable[..., Running],
) -> None:
    running = make(30)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lane, "_check_memory", lambda lane: (_ for _ in ()).throw(lane._overflow()))
        running.run([item for batch in batches_of(running.chain) for item in batch])
    parked = running.parked()
    assert parked is not None
    executed = parked.since_block
    assert executed is not None
    assert parked.reason.endswith(f"waiting for the record of the block after {executed}")

    settings = replace(running.definition.settings, waiting_bytes_max=1)
    running.definition = replace(running.definition, settings=settings)
    running.order()
    parked = running.parked()
    assert parked is not None
    assert parked.since_block == executed
    assert parked.reason == (
        f"lane {running.chain.lane}: waiting records occupy more than 1 bytes (waiting_bytes_max); "
        f"it was taking the inputs of executed blocks, up to block {executed}, again"
    )
