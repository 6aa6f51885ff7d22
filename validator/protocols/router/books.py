# SPDX-License-Identifier: Apache-2.0
"""The pages in which upward messages wait under the feature message_queue. Source: router_profiles 3.9."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from validator.core.types import ParaId

MESSAGE_OVERHEAD_BYTES = 5
"""Bytes of a page's heap that a message takes besides its payload."""


@dataclass(slots=True)
class Page:
    """A page: its messages by index, None for a processed one.

    Invariant: at least one message is unprocessed, and ``heap_used`` is the heap of all of them, processed ones included.
    """

    messages: list[bytes | None] = field(default_factory=list)
    heap_used: int = 0
    unprocessed: int = 0

    def append(self, payload: bytes) -> None:
        """Add a message."""
        self.messages.append(payload)
        self.heap_used += len(payload) + MESSAGE_OVERHEAD_BYTES
        self.unprocessed += 1

    def process(self, index: int) -> None:
        """Mark a message as processed."""
        self.messages[index] = None
        self.unprocessed -= 1


@dataclass(slots=True)
class Book:
    """The pages of a para; ``next_index`` is the index of the first waiting message in page ``begin``.

    Messages from there on, up to page ``end - 1``, wait. Those before were processed or set aside. Invariant: the pages from ``begin`` to
    ``end - 1`` exist; older ones exist as long as they hold a message that was set aside.
    """

    begin: int = 0
    end: int = 0
    next_index: int = 0
    pages: dict[int, Page] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether any message waits."""
        return self.begin < self.end

    def waiting(self) -> Iterator[bytes]:
        """Yield the waiting messages in order."""
        for number in range(self.begin, self.end):
            start = self.next_index if number == self.begin else 0
            for payload in self.pages[number].messages[start:]:
                assert payload is not None
                yield payload

    def set_aside(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield page, index and payload of each message that was set aside, in order."""
        for number, page in sorted(self.pages.items()):
            if number > self.begin:
                return
            passed = page.messages if number < self.begin else page.messages[: self.next_index]
            for index, payload in enumerate(passed):
                if payload is not None:
                    yield number, index, payload

    def size(self) -> tuple[int, int]:
        """Return the number and the bytes of the messages that are not processed: those that wait and those set aside.

        It counts what the pages hold, so it also works for a book that breaks an invariant.
        """
        unprocessed = [payload for page in self.pages.values() for payload in page.messages if payload is not None]
        return len(unprocessed), sum(map(len, unprocessed))


@dataclass(slots=True)
class MessageQueue:
    """All books, and the ring of the paras with waiting messages, from its head on.

    Invariant: the ring has exactly the paras whose book waits, each once.
    """

    books: dict[ParaId, Book] = field(default_factory=dict)
    ring: list[ParaId] = field(default_factory=list)
