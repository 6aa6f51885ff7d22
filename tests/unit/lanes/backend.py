# SPDX-License-Identifier: Apache-2.0
"""A state store in memory with the contract of Spark's: an attempt is committed whole, or nothing of it is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace


@dataclass
class Attempt:
    """The state of one lane as one attempt at a batch sees and changes it."""

    head: bytes | None = None
    slots: dict[int, bytes] = field(default_factory=dict)
    journal: list[bytes] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def load_head(self) -> bytes | None:
        self.calls.append("load_head")
        return self.head

    def save_head(self, head: bytes) -> None:
        self.calls.append("save_head")
        self.head = head

    def load_slots(self) -> dict[int, bytes]:
        self.calls.append("load_slots")
        return dict(self.slots)

    def save_slot(self, number: int, data: bytes) -> None:
        self.calls.append("save_slot")
        self.slots[number] = data

    def remove_slot(self, number: int) -> None:
        self.calls.append("remove_slot")
        del self.slots[number]

    def load_journal(self) -> Iterable[bytes]:
        self.calls.append("load_journal")
        return list(self.journal)

    def append_journal(self, entry: bytes) -> None:
        self.calls.append("append_journal")
        self.journal.append(entry)

    def clear_journal(self) -> None:
        self.calls.append("clear_journal")
        self.journal.clear()


@dataclass
class Store:
    """What has been committed."""

    committed: Attempt = field(default_factory=Attempt)

    def attempt(self) -> Attempt:
        """Begin an attempt at the next batch."""
        now = self.committed
        return replace(now, slots=dict(now.slots), journal=list(now.journal), calls=[])

    def commit(self, attempt: Attempt) -> None:
        """Keep what an attempt has written."""
        self.committed = attempt
