# SPDX-License-Identifier: Apache-2.0
"""Collects what a batch writes to a lane's store, so that a batch that fails writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from validator.lanes.parked import Parked
from validator.lanes.store import StateBackend


class CollectedWrites:
    """A lane's store (`StateBackend`) whose writes wait for `write`; ``failed`` once the store itself, or the log, has raised."""

    def __init__(self, backend: StateBackend, head: bytes | None) -> None:
        self._backend = backend
        self._head = head
        self._writes: list[Callable[[], None]] = []
        self.failed = False

    def load_head(self) -> bytes | None:
        """Return the head as it is in this batch."""
        return self._head

    def save_head(self, head: bytes) -> None:
        """Replace the head."""
        self._head = head

    def load_slots(self) -> dict[int, bytes]:
        """Return every slot."""
        with self.noting():
            return self._backend.load_slots()

    def load_journal(self) -> Iterator[bytes]:
        """Return the journal's entries in order."""
        with self.noting():
            entries = iter(self._backend.load_journal())
        while True:
            with self.noting():
                entry = next(entries, None)
            if entry is None:
                return
            yield entry

    def save_slot(self, number: int, data: bytes) -> None:
        """Write a slot."""
        self._writes.append(partial(self._backend.save_slot, number, data))

    def remove_slot(self, number: int) -> None:
        """Remove an existing slot."""
        self._writes.append(partial(self._backend.remove_slot, number))

    def remove_slots(self) -> None:
        """Remove every slot."""
        for number in sorted(self.load_slots()):
            self.remove_slot(number)

    def append_journal(self, entry: bytes) -> None:
        """Append an entry to the journal."""
        self._writes.append(partial(self._backend.append_journal, entry))

    def clear_journal(self) -> None:
        """Remove every entry."""
        self._writes.append(self._backend.clear_journal)

    def write(self, parked: Parked | None) -> bytes:
        """Write everything, the head last, and return it; ``parked`` goes around the head."""
        for each in self._writes:
            each()
        assert self._head is not None
        head = self._head if parked is None else parked.encode(self._head)
        self._backend.save_head(head)
        return head

    @contextmanager
    def noting(self, *of_the_lane: type[Exception]) -> Iterator[None]:
        """Note that a call outside of the lane has raised; some exceptions are the lane's own."""
        try:
            yield
        except BaseException as error:
            self.failed = not isinstance(error, of_the_lane)
            raise
