# SPDX-License-Identifier: Apache-2.0
"""Writes to Kafka what has to be read exactly once: records, and how far their writer has come, in one transaction.

*Progress* is one or a few records: a lane's marker, or that of a key of a job (`streaming.transactions`), the cursors of a transport
(`validator.transports.output_reader`), the ledger of replays (`validator.letters.replayer`). Each of them writes with a `FencedWriter`.

librdkafka lacks KIP-890: after a failed or timed-out transactional call, the client cannot know whether the call took effect. Nothing is
therefore retried on the same producer. A new producer with the same transactional.id fences the old one off, and its `init_transactions`
finishes or aborts the open transaction. The progress is then read again and shows which of the two happened.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Producer

from validator.kafka.calls import BEGIN, COMMIT, OPEN_WRITER, PROGRESS_S_MAX, REPORT, REPORT_S_MAX, SEND, within
from validator.kafka.retry import answer, passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from confluent_kafka import Message

Sent: TypeAlias = "tuple[str, bytes | None, bytes, list[tuple[str, bytes]] | None]"
"""A record to send: full topic, key, value, headers."""

FENCED: Final = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})
"""Errors that say that another writer has opened since, of a call or of a record."""

_CONSEQUENCES: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
"""What is reported on records that were not sent because the transaction had failed."""


class WriteFailed(Exception):
    """Kafka did not accept a transaction, or did not say that it has. It is repeated from the progress that Kafka has.

    ``error``: of the record that failed the transaction, else of the call. ``at`` is the record's number in `FencedWriter.send`, if
    that notes places. ``is_uncertain``: the transaction may be committed.
    """

    def __init__(
        self, text: str, error: KafkaError | None = None, at: int | None = None, *, is_uncertain: bool = False
    ) -> None:
        super().__init__(text)
        self.error = KafkaError(KafkaError._FAIL, text) if error is None else error
        self.at, self.is_uncertain = at, is_uncertain


class KafkaGone(WriteFailed):
    """Kafka did not answer, or will answer otherwise in a moment: it is repeated for as long as the writer may wait."""


class Fenced(WriteFailed):
    """Another writer of the same transactional.id has opened since."""


class WriterFenced(Exception):
    """Another job has taken over this lane. This job must stop."""


class _Refused(NamedTuple):
    error: KafkaError
    record: str
    at: int | None


class FencedWriter:
    """Writes the transactions of one transactional.id, which no earlier writer can once this one is open. Discard it after any exception.

    ``config`` is of `validator.kafka.settings.producer_config`. Kafka has ``bound_s`` for each call, which is made in slices of ``slice_s``
    if given: Ctrl-C has no effect inside a call. Errors name what is written as ``whose``. Calls are watched if there is a ``lane``.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        bound_s: float,
        slice_s: float | None = None,
        whose: str = "",
        lane: str | None = None,
    ) -> None:
        """Connect, without fencing anybody off. Raises `WriteFailed` if the client does not accept its configuration."""
        self._bound_s, self._slice_s, self._whose, self._lane = bound_s, slice_s, whose, lane
        self._open = False
        """Whether a transaction is open."""
        self._refused: _Refused | None = None
        """What Kafka did not accept of the transaction."""
        try:
            self.producer = Producer(dict(config))
        except KafkaException as error:
            raise self._failed(error.args[0]) from error

    def open(self) -> FencedWriter:
        """Fence off every earlier writer, and end the transaction that it has left open. Raises `WriteFailed`."""
        with self._explained(), within(OPEN_WRITER, self._lane):
            answer(self.producer.init_transactions, patience_s=self._bound_s)
        return self

    def send(self, records: Iterable[Sent], placed: dict[int, tuple[int, int]] | None = None) -> None:
        """Send records in the open transaction, which begins with the first ones. Raises `WriteFailed`, `Fenced`.

        With ``placed``, note under each record's number its partition and the offset that Kafka has given it, once it is acknowledged.
        """
        with self._explained():
            self._begin()
            with within(SEND, self._lane) as call:
                produce, heard = self.producer.produce, self._delivered
                for at, (topic, key, value, headers) in enumerate(records):
                    if placed is not None:
                        heard = partial(self._delivered, placed=placed, at=at)
                    while True:
                        try:
                            produce(topic, value, key, headers=headers, on_delivery=heard)
                            break
                        except BufferError:
                            self._wait_for_room(call)
                self.producer.poll(0)

    def flush(self) -> int:
        """Wait until Kafka has all that was sent, and return of how many records it has not said so. Raises `WriteFailed`, `Fenced`."""
        deadline = time.monotonic() + self._bound_s
        with self._explained():
            while self.producer.flush(self._slice_s or self._bound_s) and time.monotonic() < deadline:
                pass
        self._raise_refused()
        return len(self.producer)

    # Why each record is read once, whatever fails. 1. Records and the progress that covers them are one transaction: readers of committed
    # records get both or neither. 2. Opening a writer fences every earlier one off and ends its transaction, before the progress is read:
    # nobody can move the progress after that except this writer. 3. What the progress covers is left out, all else is written. 4. A commit
    # whose outcome is unknown is not repeated: the writer is dropped, the next one does 2, and the progress says whether it took effect.
    # 5. Records are repeated until this has returned: a batch by Spark, from the state before it, which is committed after its output; a
    # transport's commit by itself, as long as it has the lease; a replay by a person. 6. So what is repeated after it was committed meets
    # its progress, and what failed does not. 7. Progress that Kafka does not show would be the one way to write twice: a lane's group gets
    # the marker only after the commit, so a group that is ahead of the marker refuses it (`streaming.transactions`); cursors are numbered,
    # and a number that is not the next one is refused; a new replay fences the one before, and reads the ledger after that.
    def commit(self, progress: Iterable[Sent], check: Callable[[], None] | None = None) -> None:
        """Commit what was sent and the progress that covers it, both or neither.

        Raises `WriteFailed`, `Fenced`, and what ``check`` raises: then nothing is committed.
        """
        # 1. the progress goes into the transaction of the records
        self.send(progress)
        # 2. who has to ask whether it may still write does so at the last moment: a process may have been frozen up to here. If it is
        #    frozen now, its successor's writer fences this one off
        if check is not None:
            if self.flush():
                raise self._late(f"Kafka did not acknowledge the records{self._whose} within {self._bound_s:.0f} s")
            check()
        # 3. Kafka commits all or nothing, and says so; anything else leaves it open which of the two
        with self._explained(commits=True), within(COMMIT, self._lane):
            self._in_slices(self.producer.commit_transaction, self._bound_s)
        # 4. a record that was refused has failed its transaction, whatever the call has said
        self._raise_refused()
        # 5. the next record begins another transaction
        self._open = False

    def abort(self, bound_s: float) -> None:
        """Abort what is open: otherwise readers of committed records would wait until the broker aborts it."""
        if self._open:
            with suppress(KafkaException):
                self._in_slices(self.producer.abort_transaction, bound_s)

    def _begin(self) -> None:
        if not self._open:
            with within(BEGIN, self._lane):
                self.producer.begin_transaction()
            self._open = True

    def _in_slices(self, call: Callable[[float], object], bound_s: float) -> None:
        """Call until it succeeds, if in slices: librdkafka continues with what the call before has begun. Raises `KafkaException`."""
        deadline = time.monotonic() + bound_s
        while True:
            try:
                call(self._slice_s or bound_s)
                return
            except KafkaException as error:
                is_over = self._slice_s is None or time.monotonic() >= deadline
                if is_over or error.args[0].code() != KafkaError._TIMED_OUT:
                    raise

    def _wait_for_room(self, call: within) -> None:
        """Wait until a record has been sent. Raises `KafkaGone` if none is for `PROGRESS_S_MAX`."""
        queued, deadline = len(self.producer), time.monotonic() + PROGRESS_S_MAX
        self.producer.poll(0.1)
        while 0 < queued <= len(self.producer):
            if time.monotonic() > deadline:
                raise self._late(f"Kafka took no record{self._whose} for {PROGRESS_S_MAX:.0f} s")
            self.producer.poll(0.1)
        call.again()

    def _delivered(
        self,
        error: KafkaError | None,
        message: Message,
        *,
        placed: dict[int, tuple[int, int]] | None = None,
        at: int | None = None,
    ) -> None:
        if error is not None and not self._is_explained():
            text = f"a record of {message.topic()} with {len(message.value() or b'')} bytes"
            self._refused = _Refused(error, text, at)
        elif error is None and placed is not None and at is not None:
            offset = message.offset()
            placed[at] = message.partition() or 0, -1 if offset is None else offset

    def _is_explained(self) -> bool:
        """Return whether the record is known that failed the transaction."""
        return self._refused is not None and self._refused.error.code() not in _CONSEQUENCES

    def _await_report(self, error: KafkaError) -> None:
        """Wait for the report on the record that failed the transaction: it says more, and may come after the transaction's error."""
        deadline = time.monotonic() + (REPORT_S_MAX if error.txn_requires_abort() else 0.0)
        with suppress(KafkaException), within(REPORT, self._lane):
            self.producer.poll(0)
            while not self._is_explained() and time.monotonic() < deadline:
                self.producer.poll(REPORT_S_MAX / 10)

    @contextmanager
    def _explained(self, *, commits: bool = False) -> Iterator[None]:
        try:
            yield
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            self._await_report(error)
            raise self._failed(error, is_uncertain=commits and not error.txn_requires_abort()) from exception

    def _late(self, text: str) -> KafkaGone:
        return KafkaGone(text, KafkaError(KafkaError._MSG_TIMED_OUT, text))

    def _raise_refused(self) -> None:
        if self._refused is not None:
            raise self._failed(self._refused.error)

    def _cause_of(self, error: KafkaError) -> KafkaError:
        """Return what made the producer useless if an error says only that it is, such as a fence that was heard between two calls."""
        if error.code() == KafkaError._FATAL:
            try:
                with within(BEGIN, self._lane):
                    self.producer.begin_transaction()  # begins nothing any more, and says why
            except KafkaException as exception:
                cause: KafkaError = exception.args[0]
                return cause
        return error

    def _failed(self, error: KafkaError, *, is_uncertain: bool = False) -> WriteFailed:
        error = self._cause_of(error)
        if error.code() in FENCED or self._refused is None:
            cause, at, text = error, None, f"Kafka did not accept the batch{self._whose}: {error.str()}"
        else:  # a transaction that must be aborted says that some record failed, and the record why
            cause, record, at = self._refused
            text = f"Kafka refused {record},{self._whose}: {cause.str()}"
        kind = Fenced if cause.code() in FENCED else KafkaGone if passes(cause) else WriteFailed
        return kind(text, cause, at, is_uncertain=is_uncertain)
