# SPDX-License-Identifier: Apache-2.0
"""Writes one lane's outputs to Kafka, each batch with its marker in one transaction.

The marker is a record on the compacted topic `markers`. Once it is committed, the lane's own consumer group gets it as offsets, at some
time or not at all (`streaming.markers.GroupCommits`): on the input topics those that the lane has consumed, which any Kafka tool shows as
lag, on `markers` the number of the block after the last one emitted.

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

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.kafka_calls import (
    ABANDONED_S_MAX,
    BEGIN,
    CALL_S_MAX,
    COMMIT,
    OPEN_WRITER,
    PROGRESS_S_MAX,
    REPORT,
    REPORT_S_MAX,
    SEND,
    TRANSACTION_MS_MAX,
    waited_for,
    within,
)
from streaming.markers import (
    DOUBTFUL_HEADER,
    GROUPS,
    JOB_HEADER,
    WRITER_HEADER,
    ReceiptsGone,
    block_of_group,
    dead_letter_ends,
    group_of,
    input_ends,
    last_receipt,
    last_written,
    read_dead_letters,
    read_written,
)
from validator.codec.schemas import HEADER_SIZE
from validator.errors import Unavailable, UserError
from validator.kafka.client import producer_config
from validator.kafka.retry import answer, passes
from validator.lanes.marker import ForeignMarker, Marker, MarkerBehind
from validator.topics import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from streaming.markers import Ends, Written
    from validator.codec.encode import OutputRecord
    from validator.core.types import BlockNumber
    from validator.kafka.client import KafkaTable

QUEUED_KIB_MAX: Final = 64 * 1024
"""KiB of records of one lane that wait in the worker to be sent, unless `[kafka]` says otherwise; librdkafka's default is 1 GiB.

It ends the process if it gets no memory, so `streaming.workers.WRITER_BYTES` has room for them.
"""

TAKEN_OVER_AT_ONCE: Final = 8
"""Lanes that `take_over` handles in parallel."""

_QUEUED: Final = "queue.buffering.max.kbytes"

NO_FRAMES: Final[Mapping[tuple[str, bytes], bytes]] = MappingProxyType({})
"""Every record is sent in its plain form."""

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

    def end(lane: str) -> None:
        waited_for(OPEN_WRITER, lambda: _open_producer(kafka, prefix, lane))

    with ThreadPoolExecutor(TAKEN_OVER_AT_ONCE) as pool:
        try:
            list(pool.map(end, lanes))
        except TimeoutError as error:
            raise KafkaGone(str(error)) from error
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

        ``frames`` has, by topic and header of a record, the header that it is sent with (`validator.job.schema_ids`).
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
        self._is_own = False
        """Whether it is known that the lane wrote the marker."""
        self._writer = token_hex(8)
        """Differs between any two writers, those of one job too."""
        self._found: Written | None = None
        """What Kafka had of the lane when the marker was read."""
        self._dead_letters: set[bytes] | None = None
        self._noted: Ends | None = None
        """Where the committed dead letters end while the open transaction has others."""
        try:
            with within(OPEN_WRITER, lane):
                self._producer = _open_producer(kafka, prefix, lane)
        except KafkaException as error:
            raise self._failed(error) from error

    def marker(self, places: Iterable[tuple[str, int]]) -> Marker:
        """Return the lane's marker, with offset zero for those of ``places`` that it does not have. Raises `WriteFailed`."""
        if self._marker is None:
            self._marker = self._read_marker()
        return self._marker.after(None, dict.fromkeys(places, 0))

    def confirm(self, *, corrects: bool) -> None:
        """Compare the marker with the lane's receipts and the ends of its inputs, once. Raises `ForeignMarker`, `WriteFailed`.

        The batch must have written nothing yet. If the receipts are gone, the marker is believed.
        """
        marker = self.marker(())
        assert self._found is not None
        if self._is_own or self._found.is_reset:
            return
        try:
            try:
                self._check_own(marker)
            except ForeignMarker:
                try:
                    self._check_own(marker)  # what leads to this is seen twice
                except ForeignMarker:
                    if not corrects:
                        raise
                    self._marker = Marker.corrected(self._last_receipt(marker))
        except MarkerBehind as behind:
            raise self._behind(behind) from None
        except ForeignMarker:
            raise
        except UserError as error:
            raise _unread(error) from error
        self._is_own = True

    def note_dead_letters(self) -> None:
        """Note where the committed dead letters end. Raises `WriteFailed`."""
        if self._dead_letters is None and self._noted is None:
            try:
                self._noted = dead_letter_ends(self._kafka, self._prefix, self._lane)
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
            with within(SEND, self._lane) as call:
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
                            self._wait_for_room(call)
                    if topic == DEAD_LETTERS and self._dead_letters is not None:
                        self._dead_letters.add(dict(headers)["source"])
                self._producer.poll(0)
        except KafkaException as error:
            self._await_report(error.args[0])
            raise self._failed(error) from error

    # Why each record is read once, whatever fails. 1. A block's records and the marker with its number are one transaction: readers of
    # committed records get both or neither. 2. Opening a writer fences every earlier one off and ends its transaction, before it reads the
    # marker: nobody can move the marker after that except this writer. 3. What the marker has is left out, all else is written. 4. A commit
    # whose outcome is unknown is not repeated: the writer is dropped, the next one does 2, and the marker says whether it took effect.
    # 5. Spark repeats a batch, from the state before it, until this has returned; its state is committed after its output. 6. So a batch
    # that is repeated meets its marker, and one that failed does not. 7. A marker that Kafka does not show would be the one way to write
    # twice: the group gets the marker only after the commit, so a group that is ahead of the marker refuses it (`_read_marker`).
    def commit(self, marker: Marker) -> None:
        """Commit the batch's records and the new marker, both or neither. Raises `WriteFailed`, `WriterFenced`."""
        headers = [(JOB_HEADER, self._job.encode()), (WRITER_HEADER, self._writer.encode())]
        if marker.doubtful:
            headers.append((DOUBTFUL_HEADER, b""))
        self.write([marker.encode(self._lane)._replace(headers=tuple(headers))])
        try:
            with within(COMMIT, self._lane):
                self._producer.commit_transaction(CALL_S_MAX)
        except KafkaException as error:
            self._await_report(error.args[0])
            raise self._failed(error) from error
        if self._failure is not None:
            raise _failure(self._failure, self._not_taken(self._failure))
        self._open = False
        before, self._marker = self._marker, marker
        if self._noted is not None:  # what was read ends before the dead letters of this transaction
            self._noted = self._dead_letters = None
        # the group knows only blocks that were emitted, whatever the marker said before
        emitted = None if before is None or before.block == marker.block else marker.block
        GROUPS.commit(self._kafka, self._prefix, self._lane, marker.consumed, emitted)

    def _read_marker(self) -> Marker:
        """Read the marker, a second time if the lane's group is ahead of it. Raises `WriteFailed`."""
        known = block_of_group(self._kafka, self._prefix, self._lane)
        try:
            self._found = read_written(self._kafka, self._prefix, self._lane)
            if known is not None and not self._found.is_reset and not self._found.marker.has_written(known):
                self._found = read_written(self._kafka, self._prefix, self._lane)
                self._found.marker.check_not_behind(known)
        except MarkerBehind as behind:
            raise self._behind(behind) from None
        except UserError as error:
            raise _unread(error) from error
        return self._found.marker

    def _behind(self, behind: MarkerBehind) -> KafkaGone:
        return KafkaGone(f"Kafka does not show the last marker of lane {self._lane}: it shows one {behind}")

    def _check_own(self, marker: Marker) -> None:
        receipt = self._last_receipt(marker)
        marker.check_own(receipt, input_ends(self._kafka, self._prefix, self._lane))

    def _last_receipt(self, marker: Marker) -> BlockNumber | None:
        try:
            return last_receipt(self._kafka, self._prefix, self._lane)
        except ReceiptsGone:
            return marker.block

    def _wait_for_room(self, call: within) -> None:
        """Wait until a record has been sent. Raises `KafkaGone` if none is for `PROGRESS_S_MAX`."""
        queued, deadline = len(self._producer), time.monotonic() + PROGRESS_S_MAX
        self._producer.poll(0.1)
        while 0 < queued <= len(self._producer):
            if time.monotonic() > deadline:
                raise KafkaGone(f"Kafka took no record of lane {self._lane} for {PROGRESS_S_MAX:.0f} s")
            self._producer.poll(0.1)
        call.again()

    def _begin(self) -> None:
        if not self._open:
            with within(BEGIN, self._lane):
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
        with suppress(KafkaException), within(REPORT, self._lane):
            self._producer.poll(0)
            while not self._is_explained() and time.monotonic() < deadline:
                self._producer.poll(REPORT_S_MAX / 10)

    def _not_taken(self, failure: KafkaError) -> str:
        return f"Kafka refused {self._refused}, of lane {self._lane}: {failure.str()}"

    def _failed(self, error: KafkaException) -> WriteFailed | WriterFenced:
        reason: KafkaError = error.args[0]
        if reason.code() not in _FENCED:
            # a transaction that must be aborted says that some record failed, and the record why
            if self._failure is not None:
                return _failure(self._failure, self._not_taken(self._failure))
            return _failure(reason, f"Kafka did not accept the batch of lane {self._lane}: {reason.str()}")
        return self._taken_over(reason)

    def _taken_over(self, reason: KafkaError) -> WriteFailed | WriterFenced:
        """Return who has fenced this writer off: a job that has written the lane since, or nobody knows who."""
        try:
            last = last_written(self._kafka, self._prefix, self._lane)
        except UserError as error:
            return _unread(error)
        seen = (self._found is not None and last.place == self._found.place) or last.writer == self._writer
        if seen or last.place is None or last.job == self._job:
            # another worker of this job, or another job that has emitted nothing yet: one of the two will find the other's marker
            text = reason.str() or reason.name()
            return WriteFailed(
                f"lane {self._lane} has been taken over by another writer, of this job or one that has written nothing: {text}"
            )
        return WriterFenced(f"another job has taken over lane {self._lane}: {last.job or 'one whose name is unknown'}")
