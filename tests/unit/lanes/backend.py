# SPDX-License-Identifier: Apache-2.0
"""A state store in memory with the contract of Spark's: an attempt is committed whole, or nothing of it is there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from validator.lanes.stored import StoredLane


@dataclass
class Attempt(StoredLane):
    """The state of one lane as one attempt at a batch sees and changes it; notes every call."""

    calls: list[str] = field(default_factory=list)

    def load_head(self) -> bytes | None:
        self.calls.append("load_head")
        return StoredLane.load_head(self)

    def save_head(self, head: bytes) -> None:
        self.calls.append("save_head")
        StoredLane.save_head(self, head)

    def load_slots(self) -> dict[int, bytes]:
        self.calls.append("load_slots")
        return StoredLane.load_slots(self)

    def save_slot(self, number: int, data: bytes) -> None:
        self.calls.append("save_slot")
        StoredLane.save_slot(self, number, data)

    def remove_slot(self, number: int) -> None:
        self.calls.append("remove_slot")
        StoredLane.remove_slot(self, number)

    def load_journal(self) -> Iterable[bytes]:
        self.calls.append("load_journal")
        return StoredLane.load_journal(self)

    def append_journal(self, entry: bytes) -> None:
        self.calls.append("append_journal")
        StoredLane.append_journal(self, entry)

    def clear_journal(self) -> None:
        self.calls.append("clear_journal")
        StoredLane.clear_journal(self)


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
