# SPDX-License-Identifier: Apache-2.0
"""What the gateway needs of the product: the public transport API 1.1, stated here so that only `gateway.plugin` imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol


class OutputRecord(Protocol):
    """A committed record of an output topic."""

    @property
    def topic(self) -> str:
        """The topic without its prefix."""

    @property
    def partition(self) -> int:
        """The partition."""

    @property
    def offset(self) -> int:
        """The offset."""

    @property
    def value(self) -> bytes:
        """The record in the encoding of its topic."""


class OutputReader(Protocol):
    """Reads committed records from chosen positions; one thread at a time."""

    def seek(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Continue from these next offsets by topic and partition. Raises ``ValueError`` for an offset beyond the end."""

    def receive(self, timeout_s: float) -> OutputRecord | None:
        """Return the next record, or None if none arrives in time."""

    def positions(self) -> dict[tuple[str, int], int]:
        """Return each partition's next offset; it reaches that of `ends` once every record has been received."""

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the offset after each partition's last committed record."""

    def close(self) -> None:
        """Close the connections."""


class Kafka(Protocol):
    """The transport's context."""

    def encode(self, topic: str, record: Mapping[str, Any]) -> tuple[bytes, bytes]:
        """Return key and value of an input record in JSON form. Raises ``ValueError`` that says what is wrong."""

    def decode(self, topic: str, value: bytes) -> dict[str, Any]:
        """Return a record in JSON form. Raises ``ValueError``."""

    def enqueue(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        done: Callable[[str | None], None],
        headers: Mapping[str, bytes] = {},
    ) -> bool:
        """Write a record in the background, or return False if the queue is full; ``done`` is called once, from another thread."""

    def reader(self, topics: Iterable[str]) -> OutputReader:
        """Return a reader of output topics."""

    @property
    def stopping(self) -> bool:
        """Whether the gateway should stop."""
