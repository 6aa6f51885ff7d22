# SPDX-License-Identifier: Apache-2.0
"""Reads committed records of output topics for a transport, from chosen positions."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Final

from validator.errors import LeaseLost, UserError
from validator.kafka.reader import TopicReader
from validator.kafka.refusals import why
from validator.kafka.retry import user_error
from validator.kafka.settings import OF_CURSORS, ONE_BY_ONE, producer_config
from validator.kafka.transaction import Fenced, FencedWriter, KafkaGone, WriteFailed
from validator.plugin.api import OutputRecord
from validator.plugin.limits import COMMIT_S_MAX, POLL_S_MAX
from validator.plugin.submission import check_timeout, start_offsets
from validator.topics import CURSORS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from validator.kafka.reader import TopicRecord
    from validator.kafka.settings import KafkaTable
    from validator.kafka.transaction import Sent
    from validator.plugin.api import Record
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
        return self._reader.positions()

    def ends(self, *, committed: bool = True) -> dict[Partition, int]:
        """Return the offset after each partition's last committed record, or after the last one of all."""
        with self._open():
            if committed:
                return {place: end for place, (_, end) in self._reader.spans().items()}
            ends = self._reader.ends()
            return {(topic.removeprefix(self._prefix), number): end for (topic, number), end in ends.items()}

    def close(self) -> None:
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


NUMBER_BYTES: Final = 8
"""Bytes of the number that a cursor's value begins with."""
PAUSE_S: Final = 0.5
"""Seconds between two attempts at a commit."""
READ_S_MAX: Final = 60.0
"""Seconds that reading the topic may make no progress."""


class Cursors:
    """The cursors of one transport, for the process that has its lease; ``check`` raises `LeaseLost` once it does not.

    Opening it ends what a former process left open. Raises `UserError`, also if the topic is missing.
    """

    def __init__(self, kafka: KafkaTable, prefix: str, transport: str, check: Callable[[], None]) -> None:
        self._kafka, self._prefix, self._transport, self._check = kafka, prefix, transport, check
        self._lock = Lock()
        self._id = f"{prefix}transport.{transport}"
        self._writer: FencedWriter | None = None
        self._values: dict[str, bytes] = {}
        """The committed values, numbers included, by name."""
        self._number = 0
        try:
            self._writer = self._opened()
        except WriteFailed as failed:
            raise self._error(failed) from failed

    def get(self, name: str) -> bytes | None:
        """Return the cursor that was committed last under a name, or None."""
        with self._lock:
            value = self._values.get(name)
        return None if value is None else value[NUMBER_BYTES:]

    def commit(self, records: Sequence[Record], cursors: Mapping[str, bytes]) -> None:
        """Write records and cursors in one transaction, and return once it is committed.

        Raises `LeaseLost`; `Unavailable` if Kafka does not take it in time, and then nobody may know whether it took effect; `UserError` if
        Kafka refuses it.
        """
        with self._lock:
            number = self._number + 1
            wanted = {name: number.to_bytes(NUMBER_BYTES, "big") + value for name, value in cursors.items()}
            deadline = time.monotonic() + COMMIT_S_MAX
            while True:
                self._check()
                try:
                    if self._writer is None:
                        self._writer = self._opened()
                        if self._took_effect(number, wanted):
                            return
                    self._writer.send((self._prefix + topic, key, value, None) for topic, key, value in records)
                    self._writer.commit(self._records(wanted), self._check)
                except Fenced as error:
                    self._writer = None
                    raise LeaseLost("another process of the transport has taken over its cursors") from error
                except WriteFailed as failed:
                    self._writer = None
                    if not isinstance(failed, KafkaGone) or time.monotonic() + PAUSE_S >= deadline:
                        raise self._error(failed) from failed
                    time.sleep(PAUSE_S)
                else:
                    self._number = number
                    self._values |= wanted
                    return

    def _took_effect(self, number: int, wanted: Mapping[str, bytes]) -> bool:
        """Return whether an attempt of which nobody knew is what the topic ends with. Raises `LeaseLost` if somebody else wrote since."""
        if self._number == number and all(self._values.get(name) == value for name, value in wanted.items()):
            return True
        if self._number != number - 1:
            raise LeaseLost("another process of the transport has written its cursors")
        return False

    def _opened(self) -> FencedWriter:
        """Return a writer, which ends what another one has left open, and read the cursors."""
        config = producer_config(self._kafka, OF_CURSORS, transactional_id=self._id)
        writer = FencedWriter(config, bound_s=COMMIT_S_MAX).open()
        values: dict[str, bytes] = {}
        start = f"{self._transport}/".encode()
        with TopicReader(self._kafka, self._prefix, [CURSORS], patience_s=COMMIT_S_MAX) as reader:
            for record in reader.read_past_transactions(READ_S_MAX):
                if record.key is not None and record.key.startswith(start) and len(record.value) >= NUMBER_BYTES:
                    name = record.key[len(start) :].decode()
                    values[name] = max(record.value, values.get(name, b""), key=_number)
        self._values = values
        self._number = max(map(_number, values.values()), default=0)
        return writer

    def _records(self, wanted: Mapping[str, bytes]) -> Iterator[Sent]:
        for name, value in sorted(wanted.items()):
            yield self._prefix + CURSORS, f"{self._transport}/{name}".encode(), value, None

    def _error(self, failed: WriteFailed) -> UserError:
        text = why(failed.error, self._kafka, f"Write on topics {self._prefix}*", transactional_id=self._id)
        return user_error(failed.error, f"transport {self._transport}: Kafka did not commit: {text}")


def _number(value: bytes) -> int:
    """Return the number that a cursor's value begins with."""
    return int.from_bytes(value[:NUMBER_BYTES], "big")
