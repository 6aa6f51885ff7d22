# SPDX-License-Identifier: Apache-2.0
"""Writes one lane's outputs to Kafka, each batch with its marker in one transaction.

The marker is written twice: as a record on the compacted topic `markers`, and as offsets of the lane's own consumer group. The group's
offsets on the input topics are those that the lane has consumed; any Kafka tool shows them as lag. Its offset on `markers` is the number
of the block after the last one emitted, and that offset's metadata names the job and the writer. Records, marker and offsets are one
transaction.

librdkafka lacks KIP-890: after a failed or timed-out transactional call, the client cannot know whether the call took effect. Nothing is
therefore retried on the same producer. A new producer with the same transactional.id fences the old one off, and its `init_transactions`
finishes or aborts the open transaction. The marker is then read again (`streaming.markers`) and shows which of the two happened.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from secrets import token_hex
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition

from streaming.markers import (
    CALL_S_MAX,
    MARKER_PARTITION,
    LaneOffsets,
    LastWrite,
    dead_letter_ends,
    group_of,
    read_dead_letters,
    read_marker,
)
from validator.codec.schemas import HEADER_SIZE
from validator.errors import Unavailable, UserError
from validator.kafka.client import producer_config
from validator.kafka.retry import answer, passes
from validator.topics import DEAD_LETTERS, MARKERS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from streaming.markers import Ends
    from validator.codec.encode import OutputRecord
    from validator.kafka.client import KafkaTable
    from validator.lanes.marker import Marker

TRANSACTION_MS_MAX: Final = 300_000
"""Milliseconds after which the broker aborts an abandoned transaction. Until then, readers of committed records wait for a dead writer
whose lane nobody takes over."""

ABANDONED_S_MAX: Final = TRANSACTION_MS_MAX / 1_000 + 60.0
"""Seconds after which an abandoned transaction has ended, whoever left it."""

QUEUED_KIB_MAX: Final = 64 * 1024
"""KiB of records of one lane that wait in the worker to be sent, unless `[kafka]` says otherwise; librdkafka's default is 1 GiB.

It ends the process if it gets no memory, so `streaming.workers.WRITER_BYTES` has room for them.
"""

TAKEN_OVER_AT_ONCE: Final = 8
"""Lanes that `take_over` handles in parallel."""

_QUEUED: Final = "queue.buffering.max.kbytes"

NO_FRAMES: Final[Mapping[tuple[str, bytes], bytes]] = MappingProxyType({})
"""Every record is sent in its plain form."""

REPORT_S_MAX: Final = 2.0
"""Seconds to wait for the report on the record that failed a transaction."""

_CONSEQUENCES: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""What is reported on records that were not sent because the transaction had failed."""

_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


class WriteFailed(Exception):
    """Kafka did not accept a batch. The batch is retried from the marker."""


class KafkaGone(WriteFailed):
    """Kafka did not answer, or will answer otherwise in a moment: the batch is retried for as long as the job may wait."""


class WriterFenced(Exception):
    """Another job has taken over this lane. This job must stop."""


def take_over(kafka: KafkaTable, prefix: str, lanes: Iterable[str]) -> None:
    """End the transactions that earlier writers left open, so that no reader waits for them. Live writers are fenced off.

    Raises `WriteFailed`.
    """
    with ThreadPoolExecutor(TAKEN_OVER_AT_ONCE) as pool:
        try:
            list(pool.map(lambda lane: _open_producer(kafka, prefix, lane), lanes))
        except KafkaException as error:
            raise _failure(error.args[0], f"Kafka did not accept the batch: {error.args[0].str()}") from error


def _failure(error: KafkaError, text: str) -> WriteFailed:
    return KafkaGone(text) if passes(error) else WriteFailed(text)


def _unread(error: UserError) -> WriteFailed:
    return KafkaGone(str(error)) if isinstance(error, Unavailable) else WriteFailed(str(error))


def _open_producer(kafka: KafkaTable, prefix: str, lane: str) -> Producer:
    config = producer_config(kafka, transactional_id=group_of(prefix, lane))
    settings = {
        "transaction.timeout.ms": TRANSACTION_MS_MAX,
        # only a record that was not delivered calls back: a call for each of them took a fifth of the sink's time
        "delivery.report.only.error": True,
    }
    producer = Producer({_QUEUED: QUEUED_KIB_MAX} | config | settings)
    answer(producer.init_transactions, patience_s=CALL_S_MAX)
    return producer


class TransactionalWriter:
    """Writes one lane's batches. After any exception it must be discarded."""

    def __init__(
        self, kafka: KafkaTable, prefix: str, lane: str, job: str, frames: Mapping[tuple[str, bytes], bytes] = NO_FRAMES
    ) -> None:
        """Take over the lane for a job and fence off its previous writer. Raises `WriteFailed`.

        ``frames`` has, by topic and header of a record, the header that it is sent with (`validator.service.schema_ids`).
        """
        self._frames = frames
        self._kafka = kafka
        self._prefix = prefix
        self._lane = lane
        self._job = job
        self._topics: dict[str, str] = {}
        self._open = False
        self._failure: KafkaError | None = None
        self._refused = ""
        """Which record the failure is about."""
        self._marker: Marker | None = None
        self._writer = token_hex(8)
        self._found = LastWrite(None, None)
        """The last write when the marker was read."""
        self._seen = LastWrite(None, None)
        """The last write since then, this writer's too."""
        self._dead_letters: set[bytes] | None = None
        self._noted: Ends | None = None
        """Where the committed dead letters end while the open transaction has others."""
        try:
            self._offsets = LaneOffsets(kafka, prefix, lane)
            self._producer = _open_producer(kafka, prefix, lane)
        except KafkaException as error:
            raise self._failed(error) from error

    def is_current(self) -> bool:
        """Return whether nobody else has written the lane since this writer last checked. Raises `WriteFailed`, `WriterFenced`."""
        if self._marker is None:
            return False
        last = self._last_write()
        self._refuse_another_job(last)
        # while the last commit is in doubt, Kafka answers with the one before
        return last == self._found or last.writer == self._writer

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return the lane's marker, with offset zero for those of ``places`` that it does not have. Raises `WriteFailed`."""
        if self._marker is None:
            try:
                self._marker = read_marker(self._kafka, self._prefix, self._lane)
            except UserError as error:
                raise _unread(error) from error
            self._seen = self._found = self._last_write()
        return self._marker.after(None, dict.fromkeys(places, 0))

    def note_dead_letters(self) -> None:
        """Note where the committed dead letters end. Raises `WriteFailed`."""
        if self._dead_letters is None and self._noted is None:
            try:
                self._noted = dead_letter_ends(self._kafka, self._prefix)
            except UserError as error:
                raise _unread(error) from error

    def written_dead_letters(self) -> Container[bytes]:
        """Return the sources of the lane's committed dead letters. Reads their topic once. Raises `WriteFailed`.

        Other lanes' transactions that were open before are waited for: some of the lane's own letters may stand behind them. No two
        writers wait for each other. Whoever has dead letters in its open transaction reads up to the end that it noted before them, so it
        waits only for those who wrote earlier.
        """
        if self._dead_letters is None:
            try:
                self._dead_letters = read_dead_letters(
                    self._kafka, self._prefix, self._lane, ABANDONED_S_MAX, self._noted
                )
            except UserError as error:
                raise _unread(error) from error
        return self._dead_letters

    def write(self, records: Iterable[OutputRecord]) -> None:
        """Write records in the batch's transaction. Raises `WriteFailed`, `WriterFenced`."""
        try:
            self._begin()
            produce, names, delivered = self._producer.produce, self._topics, self._delivered
            for topic, key, value, headers in records:
                name = names.get(topic) or names.setdefault(topic, self._prefix + topic)
                sent = self._framed(topic, value) if self._frames else value
                fields = list(headers) if headers else None
                while True:
                    try:
                        produce(name, sent, key, headers=fields, on_delivery=delivered)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
                if topic == DEAD_LETTERS and self._dead_letters is not None:
                    self._dead_letters.add(dict(headers)["source"])
            self._producer.poll(0)
        except KafkaException as error:
            self._await_report(error.args[0])
            raise self._failed(error) from error

    def commit(self, marker: Marker) -> None:
        """Commit the batch's records and the new marker, both or neither. Raises `WriteFailed`, `WriterFenced`."""
        write = LastWrite(0 if marker.block is None else marker.block + 1, self._job, self._writer)
        offsets = [
            TopicPartition(topic, partition, offset)
            for (topic, partition), offset in sorted(marker.consumed.items())
            if offset
        ]
        offsets.append(TopicPartition(self._prefix + MARKERS, MARKER_PARTITION, write.offset, metadata=write.metadata))
        self.write([marker.encode(self._lane)])
        try:
            self._producer.send_offsets_to_transaction(offsets, self._offsets.group_metadata(), CALL_S_MAX)
            self._producer.commit_transaction(CALL_S_MAX)
        except KafkaException as error:
            self._await_report(error.args[0])
            raise self._failed(error) from error
        if self._failure is not None:
            raise _failure(self._failure, self._not_taken(self._failure))
        self._open = False
        self._marker = marker
        self._seen = write
        if self._noted is not None:  # what was read ends before the dead letters of this transaction
            self._noted = self._dead_letters = None

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True

    def _framed(self, topic: str, value: bytes) -> bytes:
        frame = self._frames.get((topic, value[:HEADER_SIZE]))
        return value if frame is None else frame + value[HEADER_SIZE:]

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and not self._is_explained():
            self._failure = error
            self._refused = f"a record of {message.topic()} with {len(message.value() or b'')} bytes"

    def _is_explained(self) -> bool:
        """Return whether the record is known that failed the transaction."""
        return self._failure is not None and self._failure.code() not in _CONSEQUENCES

    def _await_report(self, error: KafkaError) -> None:
        """Wait for the report on the record that failed the transaction: it says more, and may come after the transaction's error."""
        deadline = time.monotonic() + (REPORT_S_MAX if error.txn_requires_abort() else 0.0)
        with suppress(KafkaException):
            self._producer.poll(0)
            while not self._is_explained() and time.monotonic() < deadline:
                self._producer.poll(REPORT_S_MAX / 10)

    def _last_write(self) -> LastWrite:
        try:
            return self._offsets.last_write()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            raise _failure(reason, f"Kafka does not say who wrote lane {self._lane}: {reason.str()}") from error

    def _is_further(self, last: LastWrite) -> bool:
        return last.offset is not None and last.offset > (self._seen.offset or 0)

    def _refuse_another_job(self, last: LastWrite) -> None:
        if self._is_further(last) and last.job != self._job:
            raise WriterFenced(f"another job has taken over lane {self._lane}: {last.job}")

    def _not_taken(self, failure: KafkaError) -> str:
        return f"Kafka refused {self._refused}, of lane {self._lane}: {failure.str()}"

    def _failed(self, error: KafkaException) -> WriteFailed | WriterFenced:
        reason: KafkaError = error.args[0]
        if reason.code() not in _FENCED:
            # a transaction that must be aborted says that some record failed, and the record why
            if self._failure is not None:
                return _failure(self._failure, self._not_taken(self._failure))
            return _failure(reason, f"Kafka did not accept the batch of lane {self._lane}: {reason.str()}")
        try:
            self._refuse_another_job(self._last_write())
        except WriterFenced as fenced:
            return fenced
        # by another worker of this job, or by another job that has emitted nothing yet: one of the two will find the other's marker
        return WriteFailed(f"lane {self._lane} has been taken over: {reason.str()}")
