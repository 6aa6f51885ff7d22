# SPDX-License-Identifier: Apache-2.0
"""The file to which the checkpoint reader exports lanes."""

from __future__ import annotations

from pathlib import Path

from tests.unit.lanes.backend import Store, rows_of
from tests.unit.lanes.batches import CHAIN, DEFINITION, cut, run
from validator.lanes.store import LaneCache, restore_lane
from validator.lanes.stored import MemoryState, Part, StateExport, write_export

CONSUMED = {("t.blocks", 0): 7, ("t.blocks", 11): 0, ("t.candidates", 0): 2**40}


def test_lanes_are_read_from_entries_in_any_order(tmp_path: Path) -> None:
    big = bytes(3_000_000)
    rows = [
        ("b", Part.JOURNAL, 1, b"second"),
        ("a", Part.HEAD, 0, b"head of a"),
        ("b", Part.SLOT, 1024, big),
        ("b", Part.JOURNAL, 0, b"first"),
        ("b", Part.HEAD, 0, b"head of b"),
        ("b", Part.SLOT, 3, b""),
        ("c", Part.SLOT, 3, b"headless"),
    ]
    for _ in range(2):  # a second attempt begins again
        write_export(tmp_path / "lanes", 12, CONSUMED, rows)
    lanes = StateExport(tmp_path / "lanes")
    assert (lanes.batch, lanes.consumed, lanes.lanes) == (12, CONSUMED, ["a", "b"])
    assert lanes.load("a") == MemoryState(b"head of a")
    assert lanes.load("b") == MemoryState(b"head of b", {1024: big, 3: b""}, [b"first", b"second"])
    assert lanes.load("d") == MemoryState()


def test_lane_is_restored_from_export(tmp_path: Path) -> None:
    store, cache = Store(), LaneCache()
    for batch in cut(CHAIN.records):
        run(DEFINITION, store, cache, batch)
    write_export(tmp_path / "lanes", 12, CONSUMED, rows_of("x", store.committed))
    backend = StateExport(tmp_path / "lanes").load("x")
    restored, expected = restore_lane(DEFINITION, backend), restore_lane(DEFINITION, store.attempt())
    assert restored is not None
    assert expected is not None
    assert restored.snapshot() == expected.snapshot()
