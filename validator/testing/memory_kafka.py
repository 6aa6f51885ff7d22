# SPDX-License-Identifier: Apache-2.0
"""What stands in for Kafka when a transport enqueues records and reads from chosen positions in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from threading import Thread
from typing import TYPE_CHECKING, Final, NamedTuple

from validator.plugin.api import OutputRecord
from validator.plugin.enqueued import CLOSED, Done, Enqueued, size_of
from validator.plugin.submission import check_timeout, start_offsets

if TYPE_CHECKING:
    from validator.testing.transport import MemoryTransport

LOOK_S: Final = 0.02
"""Seconds after which a waiting reader sees a record that a test appended to the list itself."""


class EnqueuedRecord(NamedTuple):
    """A record that a transport has enqueued, as it was written."""

    topic: str
    key: bytes
    value: bytes
    headers: dict[str, bytes]


class MemoryQueue:
    """Writes enqueued records in their order, in its own thread, while `MemoryTransport.is_held` is not set."""

    def __init__(self, memory: MemoryTransport, write: Callable[[EnqueuedRecord], str | None]) -> None:
        self._memory, self._write = memory, write
        self._changed = memory.changed
        self._records: deque[tuple[int, EnqueuedRecord]] = deque()
        self.enqueued = Enqueued(memory.enqueued_records_max)
        self._closed = self._given_up = False
        self._thread = Thread(target=self._run, name="enqueued records", daemon=True)
        self._thread.start()

    def put(self, record: EnqueuedRecord, done: Done) -> bool:
        """Take a record, or return False if the queue is full."""
        with self._changed:
            number = self.enqueued.add(size_of(*record[1:]), done)
            if number is None:
                return False
            self._records.append((number, record))
            self._changed.notify_all()
            return True

    def close(self, *, gives_up: bool) -> None:
        """Write what waits, unless it is held or the queue ``gives_up``; report all, and end the thread."""
        with self._changed:
            self._closed, self._given_up = True, gives_up
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or (self._records and not self._memory.is_held))
                if not self._records or self._given_up or self._memory.is_held:
                    break
                number, record = self._records.popleft()
            self.enqueued.settle(number, self._write(record))
        self.enqueued.settle_all(CLOSED)


class MemoryReader:
    """A reader of the outputs in memory: one partition for each topic (`validator.plugin.api.OutputReader`)."""

    def __init__(
        self, memory: MemoryTransport, topics: Sequence[str], check: Callable[[], None], stopping: Callable[[], bool]
    ) -> None:
        self._memory, self._topics, self._check, self._stopping = memory, topics, check, stopping
        self._at = 0
        """The index of the next output to look at; all before are received or before a position."""
        self._next = self._begins()
        self.is_closed = False
        """Whether `close` was called."""

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Continue from the given offsets. Raises ``ValueError``."""
        self._check_open()
        self._next, self._at = start_offsets(offsets, self._begins(), self.ends()), 0

    def receive(self, timeout_s: float) -> OutputRecord | None:
        """Return the next record, waiting for one as on Kafka. Raises ``ValueError``."""
        check_timeout(timeout_s)
        deadline = time.monotonic() + timeout_s
        while True:
            self._check_open()
            left = max(0.0, deadline - time.monotonic())
            record = self._looked(min(left, LOOK_S))
            if record is not None or left <= LOOK_S or self._stopping():
                return record

    def positions(self) -> dict[tuple[str, int], int]:
        """Return each partition's next offset."""
        return dict(self._next)

    def ends(self, *, committed: bool = True) -> dict[tuple[str, int], int]:  # noqa: ARG002 - nothing here is under way
        """Return how many records each topic has had."""
        self._check_open()
        return {(topic, 0): sum(output[0] == topic for output in self._memory.outputs) for topic in self._topics}

    def close(self) -> None:
        """Close the reader."""
        self.is_closed = True

    def _looked(self, wait_s: float) -> OutputRecord | None:
        """Return the next record, if it is there or comes within the time given: who asks again and again while stopping waits here."""
        with self._memory.changed:
            record = self._found()
            if record is None and self._memory.changed.wait(wait_s):
                record = self._found()
        return record

    def _found(self) -> OutputRecord | None:
        for place, begin in self._begins().items():
            self._next[place] = max(self._next[place], begin)
        while self._at < len(self._memory.outputs):
            topic, key, value = self._memory.outputs[self._at]
            offset = self._memory.offset_of(self._at)
            self._at += 1
            if offset == self._next.get((topic, 0)):
                self._next[topic, 0] += 1
                return OutputRecord(topic, 0, offset, key, value)
        return None

    def _begins(self) -> dict[tuple[str, int], int]:
        return {(topic, 0): self._memory.begins.get(topic, 0) for topic in self._topics}

    def _check_open(self) -> None:
        if self.is_closed:
            raise ValueError("reader: expected an open one, found a closed one")
        self._check()
