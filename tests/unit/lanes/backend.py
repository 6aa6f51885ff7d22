# SPDX-License-Identifier: Apache-2.0
"""A state store in memory with the contract of Spark's: an attempt is committed completely or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from validator.lanes.stored import MemoryState, Part, StoredRow


@dataclass
class Attempt(MemoryState):
    """One lane's state as one attempt at a batch reads and writes it; records every call."""

    calls: list[str] = field(default_factory=list)

    def load_head(self) -> bytes | None:
        self.calls.append("load_head")
        return MemoryState.load_head(self)

    def save_head(self, head: bytes) -> None:
        self.calls.append("save_head")
        MemoryState.save_head(self, head)

    def load_slots(self) -> dict[int, bytes]:
        self.calls.append("load_slots")
        return MemoryState.load_slots(self)

    def save_slot(self, number: int, data: bytes) -> None:
        self.calls.append("save_slot")
        MemoryState.save_slot(self, number, data)

    def remove_slot(self, number: int) -> None:
        self.calls.append("remove_slot")
        MemoryState.remove_slot(self, number)

    def load_journal(self) -> Iterable[bytes]:
        self.calls.append("load_journal")
        return MemoryState.load_journal(self)

    def append_journal(self, entry: bytes) -> None:
        self.calls.append("append_journal")
        MemoryState.append_journal(self, entry)

    def clear_journal(self) -> None:
        self.calls.append("clear_journal")
        MemoryState.clear_journal(self)


@dataclass
class Store:
    """The committed state."""

    committed: Attempt = field(default_factory=Attempt)

    def attempt(self) -> Attempt:
        """Begin an attempt at the next batch."""
        now = self.committed
        return replace(now, slots=dict(now.slots), journal=list(now.journal), calls=[])

    def commit(self, attempt: Attempt) -> None:
        """Commit what an attempt has written."""
        self.committed = attempt


def rows_of(lane: str, stored: MemoryState) -> list[StoredRow]:
    """Return a stored lane as rows of an export."""
    rows: list[StoredRow] = [] if stored.head is None else [(lane, Part.HEAD, 0, stored.head)]
    rows += [(lane, Part.SLOT, number, data) for number, data in stored.slots.items()]
    return rows + [(lane, Part.JOURNAL, number, data) for number, data in enumerate(stored.journal)]
