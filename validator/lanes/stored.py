# SPDX-License-Identifier: Apache-2.0
"""Stored lanes outside Spark: a file that carries them from the process that reads a checkpoint, and a store in memory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeAlias

from validator.lanes.marker import Consumed


class Part(IntEnum):
    """The variables of a lane's state."""

    HEAD = 0
    SLOT = 1
    JOURNAL = 2


StoredRow: TypeAlias = tuple[str, Part, int, bytes]
"""Lane, part, number (of a slot or a journal entry) and data."""


@dataclass(slots=True)
class MemoryState:
    """A lane's state in memory (`validator.lanes.store.StateBackend`)."""

    head: bytes | None = None
    slots: dict[int, bytes] = field(default_factory=dict)
    journal: list[bytes] = field(default_factory=list)

    def load_head(self) -> bytes | None:
        return self.head

    def save_head(self, head: bytes) -> None:
        self.head = head

    def load_slots(self) -> dict[int, bytes]:
        return dict(self.slots)

    def save_slot(self, number: int, data: bytes) -> None:
        self.slots[number] = data

    def remove_slot(self, number: int) -> None:
        del self.slots[number]

    def load_journal(self) -> Iterable[bytes]:
        return list(self.journal)

    def append_journal(self, entry: bytes) -> None:
        self.journal.append(entry)

    def clear_journal(self) -> None:
        self.journal.clear()


def write_export(path: Path, batch: int, consumed: Consumed, rows: Iterable[StoredRow]) -> None:
    """Write a file that `StateExport` reads, a database of SQLite. Raises `OSError`."""
    places = json.dumps([[*place, offset] for place, offset in consumed.items()])
    path.unlink(missing_ok=True)
    try:
        # the file is private to one command, and a job's folder may have no locks
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?nolock=1", uri=True)) as file, file:
            file.execute("PRAGMA journal_mode = OFF")  # the file lives for one command
            file.execute("PRAGMA synchronous = OFF")
            file.execute("CREATE TABLE stored (lane TEXT, part INTEGER, number INTEGER, data BLOB)")
            file.executemany("INSERT INTO stored VALUES (?, ?, ?, ?)", rows)
            file.execute("CREATE INDEX by_lane ON stored (lane, part, number)")
            file.execute("CREATE TABLE export AS SELECT ? AS batch, ? AS consumed", (batch, places))
    except sqlite3.Error as error:
        raise OSError(f"{path}: {error}") from error


class StateExport:
    """Lanes in a file: their names are known at once, each lane is loaded on demand.

    ``batch`` is the batch after which the lanes were exported, ``consumed`` what that batch and all before it have taken, by topic with the
    prefix.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        ((self.batch, places),) = self._rows("SELECT batch, consumed FROM export")
        self.consumed = {(topic, partition): offset for topic, partition, offset in json.loads(places)}
        heads = self._rows("SELECT lane FROM stored WHERE part = ? ORDER BY lane", Part.HEAD)
        self.lanes: list[str] = [lane for (lane,) in heads]
        """The lanes that have a head, ascending."""

    def _rows(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro&nolock=1", uri=True)) as file:
            return file.execute(question, values).fetchall()

    def load(self, lane: str) -> MemoryState:
        """Return a lane as stored; empty if the file does not have it."""
        parts: dict[Part, dict[int, bytes]] = {part: {} for part in Part}
        for part, number, data in self._rows(
            "SELECT part, number, data FROM stored WHERE lane = ? ORDER BY number", lane
        ):
            parts[Part(part)][number] = data
        return MemoryState(parts[Part.HEAD].get(0), parts[Part.SLOT], list(parts[Part.JOURNAL].values()))
