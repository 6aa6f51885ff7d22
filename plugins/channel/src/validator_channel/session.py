# SPDX-License-Identifier: Apache-2.0
"""A session: the state machine between a stream of bytes and an application. Source: channel_rules 1.2.7 to 1.2.12, 5.1.

`states.TABLE` is the state machine, `Machine` runs it, and this is what the owner of a session calls. There is no socket, clock, log or
randomness here: ``now`` is an argument, in seconds of a monotonic clock, and one owner calls a session at a time. No input of the peer
raises; `LocalError` is a mistake of the caller. After each call, take `data_to_send`, `next_event` until None, and `next_deadline`.
"""

from __future__ import annotations

from validator_channel.counts import Counts
from validator_channel.errors import ErrorCode, LocalError
from validator_channel.events import Event
from validator_channel.ids import INDEX_STEP, MAIN
from validator_channel.machine import Cause, Machine
from validator_channel.payloads import Registration, write_leave, write_registration
from validator_channel.states import Mark, State, Trigger
from validator_channel.wire import Kind

_OFFLINE = State.OFFLINE  # for every message, see `machine`


class Session(Machine):
    """One session of a channel, from OFFLINE to OFFLINE; an object is not used twice."""

    # --- what the owner reads ---

    @property
    def state(self) -> State:
        """Return the state."""
        return self._state

    @property
    def is_closed(self) -> bool:
        """Return whether the session was used and has ended, so that its transport is to be closed."""
        return self._state is _OFFLINE and Mark.USED in self._marks

    def data_to_send(self) -> list[bytes]:
        """Return the frames to write, in order, and forget them; also after the end."""
        return self._link.take_output()

    def next_event(self) -> Event | None:
        """Return and forget the next report, or None."""
        return self._events.popleft() if self._events else None

    def next_deadline(self) -> float | None:
        """Return when `handle_timer` is due, in seconds, or None."""
        deadlines = (self._state_deadline, self._link.frame_timer.deadline, self._delivery.next_deadline())
        return min([each for each in deadlines if each is not None], default=None)

    @property
    def counts(self) -> Counts:
        """Return what the session has counted."""
        return self._link.counts

    # --- transport and clock ---

    def open(self, now: float) -> None:
        """Begin the handshake; ``now`` is when the connection was accepted. Raises `LocalError` with WRONG_STATE in any live state."""
        self._delivery.now = now
        self._fire(Trigger.OPEN)

    def secured(self, tx_key: bytes, rx_key: bytes, now: float) -> None:
        """Take the keys of the handshake, 32 bytes each; the connector sends JOIN_SESSION.

        Raises `LocalError` with WRONG_STATE outside HANDSHAKE, then ``ValueError`` for a key of another length. Ignored after the end.
        """
        self._delivery.now = now
        if self._state is State.HANDSHAKE:
            self._link.secure(tx_key, rx_key)
        self._fire(Trigger.SECURED)

    def handshake_failed(self, code: ErrorCode, now: float) -> None:
        """End a handshake with the code of a `HelloError`; in any other state nothing happens."""
        self._delivery.now = now
        self._fire(Trigger.HANDSHAKE_FAILED, Cause(code=code))

    def receive_data(self, data: bytes, now: float, frames_max: int | None = None) -> bool:
        """Take bytes of the stream, in pieces of any length, and process at most ``frames_max`` frames.

        Returns whether that maximum was reached: then call again, also without bytes. In HANDSHAKE the stream belongs to the hello
        exchange, so bytes there end the session with BAD_HELLO. Ignored in OFFLINE. Source: 1.2.8.
        """
        if self._state is _OFFLINE or not (data or frames_max):
            return False
        self._delivery.now = now
        if self._state is State.HANDSHAKE:
            if data:
                self._fire(Trigger.HANDSHAKE_FAILED, Cause(code=ErrorCode.BAD_HELLO))
            return False
        with self._faults_end_the_session():
            frames = self._link.feed(data, now, frames_max)
            for frame in frames:
                self._receive(self._link.open(frame))
                if self._state is _OFFLINE:
                    return False
            self._link.check_length()
            return len(frames) == frames_max
        return False

    def handle_timer(self, now: float) -> None:
        """Run what is due: the timeout of the state, then of the frame, then messages by (deadline, topic, index). Source: 1.2.12."""
        self._delivery.now = now
        if self._state_deadline is not None and self._state_deadline <= now:
            self._fire(Trigger.STATE_TIMEOUT)
        elif (due := self._link.frame_timer.deadline) is not None and due <= now:
            self._fire(Trigger.FRAME_TIMEOUT)
        elif self._state is not State.OFFLINE:
            with self._faults_end_the_session():
                for topic, message in self._delivery.due():
                    if not self._delivery.retransmit(topic, message):
                        self._fire(Trigger.RETRIES_EXHAUSTED, Cause(named=(topic.id, message.index)))
                        return
                    self.counts.retransmissions += 1

    def set_writable(self, is_writable: bool) -> None:
        """Say whether the transport takes bytes; while it does not, a due retransmission is counted but not queued. Source: 1.2.12."""
        self._delivery.is_writable = is_writable

    def set_reading(self, now: float, *, is_reading: bool) -> None:
        """Say whether the transport is read; while it is not, the time of an incomplete frame stands still. Source: 1.2.12, R17, 5.2."""
        self._link.frame_timer.set_paused(now, is_paused=not is_reading)

    def connection_lost(self, now: float) -> None:
        """Take the end of the transport: TRANSPORT_LOST, or clean if only the last acknowledgement is missing. Source: 1.2.7."""
        self._delivery.now = now
        self._fire(Trigger.TRANSPORT_LOST)

    def abort(self, now: float) -> None:
        """End the session with the fatal error INTERNAL, after a fault of the program; without keys nothing happens."""
        self._delivery.now = now
        self._fire(Trigger.FATAL_FOUND, Cause(code=ErrorCode.INTERNAL))

    # --- the application ---

    def send(self, topic: int, payload: bytes, now: float) -> int:
        """Send an APPLICATION message and return its message ID; it may wait for the window.

        Raises `LocalError`: WRONG_STATE, UNKNOWN_TOPIC, TOPIC_CLOSED, INDEX_EXHAUSTED, OUTBOX_FULL, PAYLOAD_TOO_LARGE.
        Source: 1.2.10, 1.2.12.
        """
        self._begin_call(now)
        record = self._topics.get(topic)
        if record is None:
            raise LocalError(ErrorCode.UNKNOWN_TOPIC)
        if not record.may_send:
            raise LocalError(ErrorCode.TOPIC_CLOSED)
        self._delivery.check_room(record)
        self._delivery.check_size(payload)
        message_id = self._link.message_id(topic, record.outbox.next_index)
        with self._faults_end_the_session():
            self._delivery.send(record, Kind.APPLICATION, bytes(payload))
        return message_id

    def register_topic(self, topic: int, name: str | None = None, *, now: float) -> None:
        """Register a topic; it opens when the peer has acknowledged and registered it too. Registering twice does nothing.

        Raises `LocalError`: WRONG_STATE, BAD_PAYLOAD for a topic outside 0 to 4194303 or a name that has not 1 to 64 characters,
        TOPIC_LIMIT, TOPIC_CONFLICT, INDEX_EXHAUSTED, OUTBOX_FULL. Source: 1.2.10.
        """
        self._begin_call(now)
        plaintext = self._topics.prepare_registration(topic, name)
        if plaintext is not None:
            self._delivery.check_room(self._topics.main)
            self._topics.set_mine(topic, name, self._topics.main.outbox.next_index)
            self._send_on_main(Kind.TOPIC_REGISTER, plaintext, topic)

    def deregister_topic(self, topic: int, now: float) -> None:
        """Take back our registration of a topic; what was sent before is still transmitted.

        Raises `LocalError`: WRONG_STATE, BAD_PAYLOAD for a topic outside 0 to 4194303, TOPIC_RESERVED, UNKNOWN_TOPIC, INDEX_EXHAUSTED,
        OUTBOX_FULL. Source: 1.2.10.
        """
        self._begin_call(now)
        plaintext = self._topics.prepare_deregistration(topic)
        self._delivery.check_room(self._topics.main)
        self._topics.clear_mine(topic)
        self._send_on_main(Kind.TOPIC_DEREGISTER, plaintext, topic)

    def keep_alive(self, now: float) -> None:
        """Register `main` again, which the peer must acknowledge: a dead peer becomes an ACK_TIMEOUT (R20).

        Raises `LocalError`: WRONG_STATE, INDEX_EXHAUSTED, OUTBOX_FULL.
        """
        self._begin_call(now)
        self._delivery.check_room(self._topics.main)
        self._send_on_main(Kind.TOPIC_REGISTER, write_registration(Registration(MAIN)), MAIN)

    def leave(self, now: float, reason: str | None = None) -> None:
        """Leave once every message is settled; in HANDSHAKE and SETUP, close at once. ``reason`` is cut to 64 characters.

        Raises `LocalError`: BAD_PAYLOAD for a reason that is not Unicode text, WRONG_STATE before `open` and in TEARDOWN. Ignored after
        the end. Source: 1.2.7.
        """
        try:
            write_leave(reason)
        except ValueError:
            raise LocalError(ErrorCode.BAD_PAYLOAD) from None
        self._delivery.now = now
        with self._faults_end_the_session():
            self._fire(Trigger.LEAVE_CALLED, Cause(reason=reason))

    def ack(self, topic: int, index: int, now: float) -> None:
        """Acknowledge a message under the setting ``manual_ack``. Ignored after the end.

        Raises `LocalError`: UNKNOWN_TOPIC, then WRONG_STATE for a message that does not wait for its acknowledgement. Source: 1.2.9.
        """
        if self.is_closed:
            return
        self._delivery.now = now
        with self._faults_end_the_session():
            self._delivery.acknowledge_manually(topic, index)

    def refuse(self, topic: int, index: int, code: ErrorCode, now: float) -> None:
        """Refuse a message under the setting ``manual_ack``, with a non-fatal ERROR in place of its acknowledgement. Ignored after the end.

        Raises `LocalError`: UNKNOWN_TOPIC, then WRONG_STATE for a message that does not wait for its acknowledgement. Source: 1.2.8, 1.2.9.
        """
        if self.is_closed:
            return
        self._delivery.now = now
        with self._faults_end_the_session():
            self._delivery.refuse_manually(topic, index, code)

    def consumed(self, count: int = 1) -> None:
        """Free ``count`` places of the inbox: the application is done with this number of MessageReceived."""
        self._delivery.consume(count)

    def set_next_index(self, topic: int, index: int) -> None:
        """Set the next index of a topic; a hook for tests. Our parity sets what we send next, the peer's what we expect next.

        Raises `LocalError` with UNKNOWN_TOPIC.
        """
        record = self._topics.get(topic)
        if record is None:
            raise LocalError(ErrorCode.UNKNOWN_TOPIC)
        if index % INDEX_STEP == self._role:
            record.outbox.next_index = index
        else:
            record.inbox.expected = index

    def _begin_call(self, now: float) -> None:
        self._delivery.now = now
        self._fire(Trigger.CALL)

    def _send_on_main(self, kind: Kind, plaintext: bytes, subject: int) -> None:
        with self._faults_end_the_session():
            self._delivery.send(self._topics.main, kind, plaintext, subject)
