# SPDX-License-Identifier: Apache-2.0
"""The records that a transport has enqueued and that Kafka has not answered yet: bounded, each reported exactly once.

A queue, on Kafka or in memory, adds a record before it hands it over, and settles it in its own thread. What it reports twice, or after
everything was settled, is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final

from validator.plugin.limits import ENQUEUED_BYTES_MAX, ENQUEUED_RECORDS_MAX

Done = Callable[[str | None], None]
"""Called with None once Kafka has the record, else with a reason."""

CLOSED: Final = "the transport ended before Kafka had confirmed the record, which it may have or not"


def size_of(key: bytes, value: bytes, headers: Mapping[str, bytes]) -> int:
    """Return the bytes that a record counts for."""
    return len(key) + len(value) + sum(len(name.encode()) + len(each) for name, each in headers.items())


class Enqueued:
    """The records that wait, by a number; safe for use by several threads."""

    def __init__(self, records_max: int = ENQUEUED_RECORDS_MAX, bytes_max: int = ENQUEUED_BYTES_MAX) -> None:
        self._records_max, self._bytes_max = records_max, bytes_max
        self._lock = Lock()
        self._waiting: dict[int, tuple[int, Done]] = {}
        self._bytes = 0
        self._last = 0
        self._raised: Exception | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, size: int, done: Done) -> int | None:
        """Return the number of one more record, or None if too many records or bytes wait."""
        with self._lock:
            if len(self._waiting) >= self._records_max or self._bytes + size > self._bytes_max:
                return None
            self._last += 1
            self._waiting[self._last] = size, done
            self._bytes += size
            return self._last

    def withdraw(self, number: int) -> Done | None:
        """Take a record out without a report; return its ``done``, or None if it is not waiting."""
        with self._lock:
            size, done = self._waiting.pop(number, (0, None))
            self._bytes -= size
            return done

    def settle(self, number: int, reason: str | None) -> None:
        """Report a record's result, unless it was reported before. The place is free by then, so ``done`` may enqueue the next record."""
        done = self.withdraw(number)
        if done is None:
            return
        try:
            done(reason)
        except Exception as error:  # noqa: BLE001 - raised by `check`, in the transport's own thread
            self._raised = self._raised or error

    def settle_all(self, reason: str) -> None:
        """Report the same result for every record that waits, in their order."""
        for number in sorted(self._waiting):
            self.settle(number, reason)

    @property
    def has_failed(self) -> bool:
        """Whether a ``done`` has raised."""
        return self._raised is not None

    def check(self) -> None:
        """Raise ``RuntimeError`` if a ``done`` has raised."""
        if self._raised is not None:
            raise RuntimeError(f"done raised {type(self._raised).__name__}: {self._raised}") from self._raised
