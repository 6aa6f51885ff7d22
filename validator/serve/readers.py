# SPDX-License-Identifier: Apache-2.0
"""Readers of topics that wait for the next request: to connect takes far longer than to read a page."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from validator.client.streams import PositionsExpired, PositionsForeign
from validator.errors import UserError
from validator.serve.limits import READERS_IDLE_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from validator.client.backend import Backend, Reading
    from validator.client.streams import Begin


class Readers:
    """Lends readers of a backend's topics, each to one request at a time. Any thread may ask."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._idle: list[tuple[str, Reading]] = []
        self._lock = Lock()

    @contextmanager
    def lent(self, topic: str, begin: Begin) -> Iterator[Reading]:
        """Lend a reader that begins at a place. Raises `UserError` as `Backend.read` does. A reader that fails is closed."""
        reading = self._begun(topic, begin)
        try:
            yield reading
            reading.rest()
        except BaseException:
            reading.close()
            raise
        self._keep(topic, reading)

    def close(self) -> None:
        """Close the readers that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, reading in idle:
            reading.close()

    def _begun(self, topic: str, begin: Begin) -> Reading:
        reading = self._waiting(topic)
        if reading is not None:
            try:
                reading.begin_again(begin)
                return reading
            except (PositionsExpired, PositionsForeign):
                reading.rest()
                self._keep(topic, reading)
                raise
            except UserError:  # the topic was made again, for example
                reading.close()
        return self._backend.read(topic, begin)

    def _waiting(self, topic: str) -> Reading | None:
        with self._lock:
            at = next((at for at, (name, _) in enumerate(self._idle) if name == topic), None)
            return None if at is None else self._idle.pop(at)[1]

    def _keep(self, topic: str, reading: Reading) -> None:
        with self._lock:
            self._idle.append((topic, reading))
            left = self._idle.pop(0)[1] if len(self._idle) > READERS_IDLE_MAX else None
        if left is not None:
            left.close()
