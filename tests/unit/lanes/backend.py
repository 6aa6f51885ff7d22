# SPDX-License-Identifier: Apache-2.0
"""A state store in memory with the contract of Spark's: an attempt is committed whole, or nothing of it is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace


@dataclass
class Attempt:
    """The state of one lane as one attempt at a batch sees and changes it."""

    head: bytes | None = None
    snapshot: list[bytes] = field(default_factory=list)
    journal: list[bytes] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def load_head(self) -> bytes | None:
        self.calls.append("load_head")
        return self.head

    def save_head(self, head: bytes) -> None:
        self.calls.append("save_head")
        self.head = head

    def load_snapshot(self) -> list[bytes]:
        self.calls.append("load_snapshot")
        return list(self.snapshot)

    def save_snapshot(self, parts: Sequence[bytes]) -> None:
        self.calls.append("save_snapshot")
        self.snapshot = list(parts)

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
        return replace(now, snapshot=list(now.snapshot), journal=list(now.journal), calls=[])

    def commit(self, attempt: Attempt) -> None:
        """Keep what an attempt has written."""
        self.committed = attempt
