# SPDX-License-Identifier: Apache-2.0
"""Records that were passed to Kafka lately: one that is submitted again after a reconnect is not written again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

Confirm = Callable[[str | None], None]
"""Called once: with None when Kafka has the record, otherwise with the reason why it never will."""


class Duplicates:
    """The records of the last ``seconds_max`` seconds, at most ``records_max`` confirmed ones, and all that are not confirmed.

    Those are bounded by the windows of the sessions and by Kafka's queue.
    """

    def __init__(self, records_max: int, seconds_max: float) -> None:
        self._records_max = records_max
        self._seconds_max = seconds_max
        self._confirmed: OrderedDict[bytes, float] = OrderedDict()
        self._pending: dict[bytes, list[Confirm]] = {}

    def __len__(self) -> int:
        return len(self._confirmed) + len(self._pending)

    @staticmethod
    def identity(topic: str, value: bytes) -> bytes:
        """Return what identifies a record: a digest of its topic and bytes."""
        return sha256(topic.encode() + b"\0" + value).digest()

    def join(self, identity: bytes, confirm: Confirm, now: float) -> bool:
        """Return whether the record was passed to Kafka before; if so, ``confirm`` is called when it is confirmed, or at once."""
        waiting = self._pending.get(identity)
        if waiting is not None:
            waiting.append(confirm)
            return True
        self._forget(now)
        if identity not in self._confirmed:
            return False
        confirm(None)
        return True

    def add(self, identity: bytes, confirm: Confirm) -> None:
        """Note that a record was passed to Kafka."""
        self._pending[identity] = [confirm]

    def settle(self, identity: bytes, error: str | None, now: float) -> None:
        """Note what Kafka said about a record, and call those that wait for it."""
        waiting = self._pending.pop(identity, [])
        if error is None:
            self._confirmed[identity] = now
            self._forget(now)
        for confirm in waiting:
            confirm(error)

    def _forget(self, now: float) -> None:
        while self._confirmed:
            first = next(iter(self._confirmed))
            if len(self._confirmed) <= self._records_max and self._confirmed[first] > now - self._seconds_max:
                return
            del self._confirmed[first]
