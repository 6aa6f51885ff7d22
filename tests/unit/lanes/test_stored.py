# SPDX-License-Identifier: Apache-2.0
"""The file to which the checkpoint reader exports lanes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.lanes.backend import Store
from tests.unit.lanes.batches import CHAIN, DEFINITION, cut, run
from validator.core.scale import DecodeError
from validator.lanes.store import LaneCache, restore_lane
from validator.lanes.stored import MemoryState, Part, StateExport, write_end, write_entry, write_header

CONSUMED = {("t.blocks", 0): 7, ("t.blocks", 11): 0, ("t.candidates", 0): 2**40}


def write(path: Path, entries: list[tuple[Part, str, int, bytes]], *, end: int | None = None) -> Path:
    with path.open("wb") as file:
        write_header(file, 12, CONSUMED)
        for entry in entries:
            write_entry(file, *entry)
        write_end(file, len(entries) if end is None else end)
    return path


def test_lanes_are_read_from_entries_in_any_order(tmp_path: Path) -> None:
    big = bytes(3_000_000)
    path = write(
        tmp_path / "lanes",
        [
            (Part.JOURNAL, "b", 1, b"second"),
            (Part.HEAD, "a", 0, b"head of a"),
            (Part.SLOT, "b", 1024, big),
            (Part.JOURNAL, "b", 0, b"first"),
            (Part.HEAD, "b", 0, b"head of b"),
            (Part.SLOT, "b", 3, b""),
            (Part.SLOT, "c", 3, b"headless"),
        ],
    )
    lanes = StateExport(path)
    assert (lanes.batch, lanes.consumed, lanes.lanes) == (12, CONSUMED, ["a", "b"])
    assert lanes.load("a") == MemoryState(b"head of a")
    assert lanes.load("b") == MemoryState(b"head of b", {1024: big, 3: b""}, [b"first", b"second"])
    assert lanes.load("d") == MemoryState()


def test_lane_is_restored_from_export(tmp_path: Path) -> None:
    store, cache = Store(), LaneCache()
    for batch in cut(CHAIN.records):
        run(DEFINITION, store, cache, batch)
    kept = store.committed
    entries = [(Part.HEAD, "x", 0, kept.head or b"")]
    entries += [(Part.SLOT, "x", number, data) for number, data in kept.slots.items()]
    entries += [(Part.JOURNAL, "x", number, data) for number, data in enumerate(kept.journal)]
    backend = StateExport(write(tmp_path / "lanes", entries)).load("x")
    restored, expected = restore_lane(DEFINITION, backend), restore_lane(DEFINITION, store.attempt())
    assert restored is not None
    assert expected is not None
    assert restored.snapshot() == expected.snapshot()


@pytest.mark.parametrize("left", [0, 3, 40, -1, -20])
def test_truncated_file_is_refused(tmp_path: Path, left: int) -> None:
    path = write(tmp_path / "lanes", [(Part.HEAD, "a", 0, b"head of a")])
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DecodeError):
        StateExport(path)


def test_file_with_wrong_entry_count_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "lanes", [(Part.HEAD, "a", 0, b"head of a")], end=2)
    with pytest.raises(DecodeError, match="has 1 entries, expected 2"):
        StateExport(path)


def test_file_of_other_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lanes"
    path.write_bytes((14).to_bytes(4, "little") + b"something else")
    with pytest.raises(DecodeError, match="not a file of lanes"):
        StateExport(path)
