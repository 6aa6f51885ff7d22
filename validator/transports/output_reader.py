# SPDX-License-Identifier: Apache-2.0
"""Reads committed records of output topics for a transport, from chosen positions."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from validator.kafka.reader import TopicReader
from validator.kafka.settings import ONE_BY_ONE
from validator.plugin.api import OutputRecord
from validator.plugin.limits import COMMIT_S_MAX, POLL_S_MAX
from validator.plugin.submission import check_timeout, start_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from validator.kafka.reader import TopicRecord
    from validator.kafka.settings import KafkaTable
    from validator.plugin.submission import Partition


class KafkaOutputReader:
    """A reader of the partitions that the topics have now (`validator.plugin.api.OutputReader`).

    ``check`` raises if nothing may be delivered any more; ``stopping`` returns whether to stop waiting. Every method raises `UserError` if
    a topic does not exist or Kafka does not answer within `COMMIT_S_MAX`.
    """

    def __init__(
        self,
        kafka: KafkaTable,
        prefix: str,
        topics: Sequence[str],
        check: Callable[[], None],
        stopping: Callable[[], bool],
    ) -> None:
        self._prefix, self._check, self._stopping = prefix, check, stopping
        self._lock = Lock()
        """Held while the reader is in use, so that it can be closed from another thread."""
        self.is_closed = False
        """Whether `close` was called."""
        cannot = "output records cannot be read at"
        self._reader = TopicReader(kafka, prefix, topics, reading=ONE_BY_ONE, patience_s=COMMIT_S_MAX, cannot=cannot)
        try:
            self._reader.begin()
        except BaseException:
            self.close()
            raise

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Continue from the given offsets, and from the first record of the partitions that are not named. Raises ``ValueError``."""
        with self._open():
            spans = self._reader.spans()
            begins = {place: first for place, (first, _) in spans.items()}
            self._reader.start_at(start_offsets(offsets, begins, {place: end for place, (_, end) in spans.items()}))
            self._reader.begin()

    def receive(self, timeout_s: float) -> OutputRecord | None:
        """Return the next committed record, or None at the timeout or a request to stop. Raises ``ValueError``."""

        def poll(seconds: float) -> list[TopicRecord]:
            with self._open():
                records = self._reader.poll(seconds)
            self._check()
            return records

        record = next_record(self._reader, poll, timeout_s, self._stopping)
        return None if record is None else OutputRecord(*record[:3], record.key or b"", record.value)

    def positions(self) -> dict[Partition, int]:
        """Return each partition's next offset."""
        return self._reader.positions()

    def ends(self, *, committed: bool = True) -> dict[Partition, int]:
        """Return the offset after each partition's last committed record, or after the last one of all."""
        with self._open():
            if committed:
                return {place: end for place, (_, end) in self._reader.spans().items()}
            ends = self._reader.ends()
            return {(topic.removeprefix(self._prefix), number): end for (topic, number), end in ends.items()}

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if not self.is_closed:
                self.is_closed = True
                self._reader.close()

    @contextmanager
    def _open(self) -> Iterator[None]:
        with self._lock:
            if self.is_closed:
                raise ValueError("reader: expected an open one, found a closed one")
            self._check()
            yield


def next_record(
    reader: TopicReader,
    poll: Callable[[float], list[TopicRecord]],
    timeout_s: float,
    stopping: Callable[[], bool],
) -> TopicRecord | None:
    """Return the next record of a reader of one at a time, or None at the timeout or a request to stop. Raises ``ValueError``."""
    check_timeout(timeout_s)
    deadline = time.monotonic() + timeout_s
    while True:
        left, heard = max(0.0, deadline - time.monotonic()), reader.heard
        if records := poll(min(left, POLL_S_MAX)):
            return records[0]
        if reader.heard == heard and (left <= POLL_S_MAX or stopping()):
            return None
