# SPDX-License-Identifier: Apache-2.0
"""Streams of server-sent events: how many are open at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anyio import CancelScope, to_thread
from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.types import Receive, Scope, Send

NO_STORE: Final = {"cache-control": "no-store"}


@dataclass(slots=True)
class Streams:
    """How many streams are open."""

    open: int = 0


class CountedStream(StreamingResponse):
    """A stream of events that counts from the check of their number to the end of its answer, begun or not.

    ``on_end`` gives up what the stream needed; it runs in a thread.
    """

    def __init__(self, streams: Streams, events: AsyncIterator[str], on_end: Callable[[], None] | None = None) -> None:
        super().__init__(events, media_type="text/event-stream", headers=NO_STORE)
        self._streams, self._on_end = streams, on_end
        streams.open += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer (ASGI)."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            if self._on_end is not None:
                with CancelScope(shield=True):
                    await to_thread.run_sync(self._on_end)
            self._streams.open -= 1
