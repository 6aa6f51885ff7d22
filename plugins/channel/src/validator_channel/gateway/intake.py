# SPDX-License-Identifier: Apache-2.0
"""From a session to Kafka: records are checked and passed on in the order of their session, and acknowledged once Kafka has them.

A record that Kafka's queue has no room for, or that is above its peer's rate, stays first in line. What waits behind it is not
acknowledged, so the peer's window closes; above `GatewayLimits.pending_bytes_max` its connection is not read. Nothing is dropped, apart
from the records of a session that has ended, which its peer reports as undelivered. Everything here runs in the thread of the event loop,
except `_done`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

from validator_channel.application import read_record
from validator_channel.gateway.measures import Counters
from validator_channel.gateway.records import record_hash
from validator_channel.gateway.registry import PeerPolicy, Unauthorised, check_authorised
from validator_channel.limits import RETRY_S, THREAD_BYTES, TURN_BYTES_MAX, TURN_RECORDS_MAX, GatewayLimits
from validator_channel.wire import format_channel, format_id

if TYPE_CHECKING:
    from validator.plugin.api import TransportContext
    from validator_channel.gateway.bridge import PeerSession


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


class Refusal(NamedTuple):
    """Why a record is refused: because its peer may not submit it, or because of what it is."""

    error: str
    is_unauthorised: bool


@dataclass(slots=True)
class Submission:
    """A record that a peer has submitted: topic ID and name, index, bytes, and when it came, in seconds of the loop's clock.

    ``is_paid`` says that it has had its token. Once it was read, it has a ``refusal``, or it is ``encoded``: key and value for Kafka.
    """

    topic: int
    name: str
    index: int
    payload: bytes = field(repr=False)
    received_at: float
    is_paid: bool = False
    refusal: Refusal | None = None
    encoded: tuple[bytes, bytes] | None = field(default=None, repr=False)
    record_hash: str = ""


class Intake:
    """The records of all sessions on their way to Kafka; sessions take turns, one record each.

    ``wall_ms`` returns Unix time in milliseconds, for the header ``received-at``. ``fail`` is called with an exception that ends the
    gateway.
    """

    def __init__(
        self,
        kafka: TransportContext,
        limits: GatewayLimits,
        counters: Counters,
        wall_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._kafka = kafka
        self._limits = limits
        self._counters = counters
        self._wall_ms = wall_ms
        self._fail = fail
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large records")
        self._loop = asyncio.get_running_loop()
        self._duplicates = Duplicates(limits.duplicates_max, limits.duplicates_s_max)
        self._ready: deque[PeerSession] = deque()
        self._without_room: deque[PeerSession] = deque()
        self._turn_handle: asyncio.Handle | None = None
        self._retry_handle: asyncio.TimerHandle | None = None
        self._results: deque[tuple[bytes, str | None]] = deque()
        self._is_stopped = False
        self.idle = asyncio.Event()
        """Set while Kafka has confirmed every record that was passed to it."""
        self.idle.set()

    def add(self, session: PeerSession, submission: Submission) -> None:
        """Take a record that a peer has submitted; ignored once `stop` was called."""
        if self._is_stopped:
            return
        self._counters.received += 1
        self._counters.received_bytes += len(submission.payload)
        session.waiting.append(submission)
        session.waiting_bytes += len(submission.payload)
        if session.waiting_bytes > self._limits.pending_bytes_max and not session.is_paused:
            session.is_paused = True
            self._counters.reading_paused += 1
            session.connection.pause_reading()
        self._wake(session)

    def ask_again(self, session: PeerSession) -> None:
        """Let a record that waits for its peer's rate ask again at once, because the rate has changed."""
        if session.rate_wait is not None:
            session.rate_wait.cancel()
            self._rate_wait_over(session)

    def stop(self) -> None:
        """Pass nothing more to Kafka; what was passed is still acknowledged."""
        self._is_stopped = True
        self._reader.shutdown(wait=False, cancel_futures=True)
        self._ready.clear()
        self._without_room.clear()

    # --- turns ---

    def _wake(self, session: PeerSession) -> None:
        if session.waiting and not session.is_scheduled and not session.is_closed and not self._is_stopped:
            session.is_scheduled = True
            self._ready.append(session)
            self._schedule()

    def _schedule(self) -> None:
        if self._turn_handle is None and self._ready:
            self._turn_handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_handle = None
        try:
            self._take_turn()
        except Exception as error:  # noqa: BLE001 - raised by the gateway
            self._fail(error)

    def _take_turn(self) -> None:
        records = size = 0
        while self._ready and records < TURN_RECORDS_MAX and size < TURN_BYTES_MAX:
            session = self._ready.popleft()
            if session.is_closed or not session.waiting:
                session.is_scheduled = False
                continue
            records += 1
            size += len(session.waiting[0].payload)
            if self._advance(session):
                session.is_scheduled = False
                self._wake(session)
        self._schedule()

    def _advance(self, session: PeerSession) -> bool:
        """Take a session's first record a step further; False if it has to wait and is woken later."""
        submission = session.waiting[0]
        now = self._loop.time()
        if not submission.is_paid:
            wait_s = session.bucket.take(now)
            if wait_s:
                self._counters.rate_waits += 1
                session.rate_wait = self._loop.call_later(wait_s, self._rate_wait_over, session)
                return False
            submission.is_paid = True
        if submission.encoded is None and submission.refusal is None:
            if len(submission.payload) > THREAD_BYTES:
                reading = self._loop.run_in_executor(self._reader, self._read, session.policy, submission)
                reading.add_done_callback(partial(self._was_read, session))
                return False
            self._read(session.policy, submission)
        if submission.refusal is not None:
            self._refuse(session, submission, submission.refusal)
            return True
        if self._pass_on(session, submission, now):
            self._take(session)
            return True
        self._counters.kafka_full += 1
        self._without_room.append(session)
        if self._retry_handle is None:
            self._retry_handle = self._loop.call_later(RETRY_S, self._retry)
        return False

    def _rate_wait_over(self, session: PeerSession) -> None:
        session.rate_wait = None
        self._wake_again(session)

    def _wake_again(self, session: PeerSession) -> None:
        session.is_scheduled = False
        self._wake(session)

    def _retry(self) -> None:
        if self._retry_handle is not None:
            self._retry_handle.cancel()
            self._retry_handle = None
        waiting, self._without_room = self._without_room, deque()
        for session in waiting:
            self._wake_again(session)

    def _take(self, session: PeerSession) -> None:
        """Remove the first record of a session, which makes room for the next ones."""
        submission = session.waiting.popleft()
        session.waiting_bytes -= len(submission.payload)
        session.connection.consumed()
        if session.is_paused and session.waiting_bytes <= self._limits.pending_bytes_max // 2:
            session.is_paused = False
            session.connection.resume_reading()

    # --- one record ---

    def _read(self, policy: PeerPolicy, submission: Submission) -> None:
        """Check and encode a record, or note why it is refused; also called in a thread, for large records."""
        name, payload = submission.name, submission.payload
        try:
            if len(payload) > self._limits.record_bytes_max:
                raise ValueError(
                    f"{name}: expected at most {self._limits.record_bytes_max} bytes, found {len(payload)}"
                )
            record = read_record(payload)
            check_authorised(policy, name, record)
            submission.encoded = self._kafka.encode(name, record)
        except Unauthorised as error:
            submission.refusal = Refusal(str(error), is_unauthorised=True)
            return
        except ValueError as error:
            text = str(error).partition(";")[0]
            text = text if text.startswith(f"{name}: ") else f"{name}: expected a record in strict JSON: {text}"
            submission.refusal = Refusal(text, is_unauthorised=False)
            return
        submission.record_hash = record_hash(name, record, submission.encoded[1])

    def _was_read(self, session: PeerSession, reading: asyncio.Future[None]) -> None:
        """A record was read in the thread: its session continues with it."""
        if not reading.cancelled() and (error := reading.exception()) is not None:
            self._fail(error)
        self._wake_again(session)

    def _refuse(self, session: PeerSession, submission: Submission, refusal: Refusal) -> None:
        if refusal.is_unauthorised:
            self._counters.refused_unauthorised += 1
        else:
            self._counters.refused_malformed += 1
        self._take(session)
        session.refuse(submission.topic, submission.index, refusal.error)

    def _pass_on(self, session: PeerSession, submission: Submission, now: float) -> bool:
        """Pass a record to Kafka, unless Kafka has it or is about to; False if there is no room."""
        assert submission.encoded is not None
        key, value = submission.encoded
        identity = Duplicates.identity(submission.name, value)
        confirm = partial(self._confirm, session, submission)
        if self._duplicates.join(identity, confirm, now):
            self._counters.duplicates += 1
            return True
        headers = self._headers(session, submission)
        if not self._kafka.enqueue(submission.name, key, value, partial(self._done, identity), headers):
            return False
        self._duplicates.add(identity, confirm)
        self._counters.enqueued += 1
        self._counters.in_kafka += 1
        self.idle.clear()
        return True

    def _headers(self, session: PeerSession, submission: Submission) -> dict[str, bytes]:
        """Return where a record came from, as text in ASCII."""
        is_candidate = submission.name == "candidates"
        headers = {
            "candidate-hash" if is_candidate else "record-hash": submission.record_hash,
            "peer": format_id(session.policy.peer),
            "channel": format_channel(session.policy.channel),
            "session-instance": session.connection.instance_id.hex(),
            "message": session.message_id(submission),
            "received-at": str(self._wall_ms()),
        }
        return {name: text.encode("ascii") for name, text in headers.items()}

    # --- what Kafka says ---

    def _done(self, identity: bytes, error: str | None) -> None:
        """Take Kafka's answer, in another thread."""
        self._results.append((identity, error))
        if len(self._results) == 1:  # otherwise `_take_results` is about to run, and takes this one, too
            with suppress(RuntimeError):  # the loop has ended; nobody waits for the answer any more
                self._loop.call_soon_threadsafe(self._take_results)

    def _take_results(self) -> None:
        while self._results:
            identity, error = self._results.popleft()
            self._counters.in_kafka -= 1
            if error is None:
                self._counters.confirmed += 1
            else:
                self._counters.failed += 1
            self._duplicates.settle(identity, error, self._loop.time())
        if not self._counters.in_kafka:
            self.idle.set()
        if self._without_room:
            self._retry()

    def _confirm(self, session: PeerSession, submission: Submission, error: str | None) -> None:
        if session.is_closed:
            return
        if error is not None:
            if not self._is_stopped:
                session.refuse(
                    submission.topic, submission.index, f"{submission.name}: the gateway could not store the record"
                )
            return
        session.connection.ack(submission.topic, submission.index)
        self._counters.acknowledged += 1
        self._counters.note_latency(self._loop.time() - submission.received_at)
