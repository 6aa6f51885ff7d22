# SPDX-License-Identifier: Apache-2.0
"""A topic's records as server-sent events.

The ``id`` of an event is the cursor behind its record, so a reader that sends the last id it has seen continues with the next record: a
reader takes an event and its id together, or neither. A heartbeat has an id without data, which moves on a reader whose filter leaves
records out.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread

from validator.client.streams import POLL_S
from validator.errors import UserError
from validator.serve.cursors import Cursor
from validator.serve.limits import CHUNK_BYTES, RETRY_S
from validator.serve.pages import Wanted, text_of, tried
from validator.visible import printable_lines
from validator.web.limits import HEARTBEAT_S

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Iterator

    from validator.client.backend import Reading


class EventStream:
    """What one reader gets. It polls in a thread of ``threads``, for at most `POLL_S` seconds at a time."""

    def __init__(self, reading: Reading, wanted: Wanted, threads: CapacityLimiter, stopping: asyncio.Event) -> None:
        self._reading, self._wanted, self._threads, self._stopping = reading, wanted, threads, stopping
        self._offsets = reading.positions()

    def close(self) -> None:
        """Close the connections."""
        self._reading.close()

    async def events(self) -> AsyncIterator[str]:
        """Yield events, several at once if there are many, until the server stops or Kafka cannot be read."""
        yield f"retry: {1000 * RETRY_S}\n{self._place()}\n"
        sent_s = time.monotonic()
        while not self._stopping.is_set():
            try:
                chunks = await to_thread.run_sync(partial(self._next, POLL_S), limiter=self._threads)
            except UserError as error:  # the reader comes back with its last id, and then learns why
                yield f": {printable_lines(str(error))}\n\n"
                return
            for chunk in chunks:
                yield chunk
                sent_s = time.monotonic()
            if time.monotonic() - sent_s >= HEARTBEAT_S:
                yield f": heartbeat\n{self._place()}\n"
                sent_s = time.monotonic()

    def _next(self, timeout_s: float) -> list[str]:
        return list(self._chunks(timeout_s))

    def _chunks(self, timeout_s: float) -> Iterator[str]:
        chunk: list[str] = []
        size = 0
        for record in self._reading.poll(timeout_s):
            self._offsets[record.partition] = record.offset + 1
            found = tried(self._wanted, record)
            if found is None:
                continue
            if isinstance(found, UserError):
                why = printable_lines(f"partition {record.partition}, offset {record.offset}: {found}")
                chunk.append(f": cannot be read: {why.replace(chr(10), ' ')}\n{self._place()}\n")
            else:
                chunk.append(f"{self._place()}data: {text_of(found)}\n\n")
            size += len(chunk[-1])
            if size >= CHUNK_BYTES:
                yield "".join(chunk)
                chunk, size = [], 0
        self._offsets.update(self._reading.positions())
        if chunk:
            yield "".join(chunk)

    def _place(self) -> str:
        return f"id: {Cursor(self._wanted.topic, self._reading.topic_id, 'oldest', self._offsets)}\n"
