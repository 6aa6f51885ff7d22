# SPDX-License-Identifier: Apache-2.0
"""Bounds on what a schema registry answers: bytes, and seconds for a whole answer.

The registry's client has neither. Its time-out is for each wait, so an answer that drips may never end; and it decompresses whatever
comes. The bounds are hooks of the HTTP client that it uses.
"""

from __future__ import annotations

import socket
from collections import deque
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import httpx

from validator.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

SOCKETS_MAX: Final = 16
"""Connections that are remembered, to end them; a client asks one question at a time."""


class AnswerTooLong(UserError):
    """An answer has more bytes than allowed."""


class BoundedAnswers:
    """Ends what takes too long, and refuses what is too long or compressed.

    An answer that is not whole after ``whole_s`` seconds ends with ``httpx.HTTPError``, and ``is_late`` is set. Its bytes raise
    `AnswerTooLong`, a compressed one `UserError`. It is for a client that one thread uses at a time.
    """

    def __init__(self, session: httpx.Client, *, whole_s: float, bytes_max: int) -> None:
        self._whole_s, self._bytes_max = whole_s, bytes_max
        self._sockets: deque[socket.socket] = deque(maxlen=SOCKETS_MAX)
        self._timer: Timer | None = None
        self.is_late = False
        """Whether the last answer was ended."""
        session.headers["Accept-Encoding"] = "identity"
        session.event_hooks = {"request": [self._begin], "response": [self._check]}

    def end(self) -> None:
        """Note that the last answer is whole, or has failed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self, request: httpx.Request) -> None:
        self.end()
        self.is_late = False
        request.extensions = {**request.extensions, "trace": self._trace}
        self._timer = Timer(self._whole_s, self._interrupt)
        self._timer.daemon = True
        self._timer.start()

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    def _interrupt(self) -> None:
        self.is_late = True
        for each in tuple(self._sockets):
            with suppress(OSError):  # closed, or the socket of another layer has taken its place
                socket.socket.shutdown(each, socket.SHUT_RDWR)  # not TLS's own, which the waiting thread uses

    def _check(self, response: httpx.Response) -> None:
        coding = response.headers.get("Content-Encoding", "identity")
        if coding != "identity":
            raise UserError(f"expected an answer that is not compressed, found Content-Encoding {coding[:60]}")
        if not isinstance(response.stream, httpx.SyncByteStream):
            raise TypeError("expected a stream of bytes")
        response.stream = _Bounded(response.stream, self._bytes_max)


class _Bounded(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, bytes_max: int) -> None:
        self._stream, self._bytes_max = stream, bytes_max

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > self._bytes_max:
                raise AnswerTooLong(f"expected an answer of at most {self._bytes_max} bytes, found a longer one")
            yield chunk

    def close(self) -> None:
        self._stream.close()
