# SPDX-License-Identifier: Apache-2.0
"""One watched topic at its peer: a bounded queue, and the position from which the next session continues."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from validator_channel.application import After, Position, Watched


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A record of a watched topic; ``after`` is the position to name in order to continue behind it.

    ``record`` is None, and ``error`` says why, for a record that is too large for the session.
    """

    topic: str
    partition: int
    offset: int
    record: Mapping[str, Any] | None = field(repr=False)
    error: str | None
    after: Position


class Replaced(Exception):
    """Another watch of the same topic has begun."""


class Watcher:
    """The records of a topic for one reader.

    A record is acknowledged when it is in the queue, which holds ``queue_max``; the others wait with the gateway. What it has not
    acknowledged is sent again in the next session, which continues after `position`.
    """

    def __init__(self, topic: str, after: After, queue_max: int) -> None:
        self.topic = topic
        self.index: int | None = None
        """The index on `main` of the request in the present session."""
        self.error: Exception | None = None
        self._begin = after
        self._position: dict[int, int] | None = dict(after) if isinstance(after, Mapping) else None
        self._queue_max = queue_max
        self._queue: deque[WatchEvent] = deque()
        self._waiting: deque[tuple[Watched, Callable[[], None]]] = deque()
        self._is_active = False
        self._changed = asyncio.Event()

    @property
    def after(self) -> After:
        """Return where the next session continues."""
        return self._begin if self._position is None else self._position

    def begin(self, after: Position) -> None:
        """The gateway sends records after a position from now on."""
        self._is_active = True
        if self._position is None:
            self._position = dict(after)

    def end(self) -> None:
        """The session has ended."""
        self._is_active = False
        self.index = None
        self._waiting.clear()

    def fail(self, error: Exception) -> None:
        """Let the reader get an exception after the records that are queued."""
        self.error = self.error or error
        self._changed.set()

    def receive(self, watched: Watched, acknowledge: Callable[[], None]) -> None:
        """Take a record; one that belongs to an earlier request is ignored."""
        if not self._is_active:
            acknowledge()
            return
        self._waiting.append((watched, acknowledge))
        self._admit()

    async def take(self) -> WatchEvent:
        """Return the next record. Raises what `fail` was given."""
        while not self._queue:
            if self.error is not None:
                raise self.error
            self._changed.clear()
            await self._changed.wait()
        event = self._queue.popleft()
        self._admit()
        return event

    def _admit(self) -> None:
        while self._waiting and len(self._queue) < self._queue_max:
            watched, acknowledge = self._waiting.popleft()
            assert self._position is not None
            self._position[watched.partition] = watched.offset
            if watched.record is not None or watched.error is not None:
                place = watched.partition, watched.offset
                self._queue.append(WatchEvent(self.topic, *place, watched.record, watched.error, dict(self._position)))
                self._changed.set()
            acknowledge()
