# SPDX-License-Identifier: Apache-2.0
"""A session: the state machine between a stream of bytes and an application. Everything that affects its state is in this file.

Theory of operation. A session has a state, flags (`Mark`), and in `TABLE` the state machine of channel_rules 1.2.7, row by row. A row
applies in one of its states, when its trigger occurs, all flags of ``has`` are set and none of ``lacks``; the first such row decides. It
sets ``sets``, moves to ``next`` (None: the state stays) and runs its actions in order. A trigger without such a row changes nothing. After
each row, and whenever a message is settled, the rows of FLAGS_CHANGED follow until none applies.

`Session` fires the triggers: calls of its owner, messages of the peer in the order of their checks, and timers. `Delivery` keeps topics and
messages, `Link` keys and frames; neither knows the state. A fatal error anywhere below is a `Fault`, which becomes FATAL_FOUND in one
place. There is no socket, clock, log or randomness here: ``now`` is an argument, in seconds of a monotonic clock, and one owner calls a
session at a time. No input of the peer raises; `LocalError` is a mistake of the caller. After each call, take `data_to_send`, `next_event`
until None, and `next_deadline`.

There is one short cut: in states where an APPLICATION message is only delivered (`only_delivers`), one that is fresh and expected does not
pass the table. That saves a fifth of a receiver's time; a test compares both ways. Source: channel_rules 1.2.7 to 1.2.12, 5.1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, Flag, StrEnum, auto
from functools import cache
from types import TracebackType
from typing import Final, NamedTuple

from validator_channel.delivery import Delivery, Topic, fault
from validator_channel.errors import ErrorCode, Fault, LocalError, category_of
from validator_channel.events import Event, PeerError, PeerLeft, SessionClosed, SessionError, SessionOnline
from validator_channel.limits import Settings
from validator_channel.link import Counts, Link, Received
from validator_channel.wire import (
    ACKNOWLEDGEMENT,
    INDEX_STEP,
    MAIN,
    NO_MESSAGE,
    Join,
    Kind,
    Refusal,
    Registration,
    Role,
    channel_of,
    pack_message_id,
    read_error,
    read_join,
    read_leave,
    write_error,
    write_join,
    write_leave,
    write_registration,
)


class State(StrEnum):
    """The five states. Source: channel_protocol."""

    OFFLINE = "OFFLINE"
    HANDSHAKE = "HANDSHAKE"
    SETUP = "SETUP"
    ONLINE = "ONLINE"
    TEARDOWN = "TEARDOWN"


class Mark(Flag):
    """The flags of a session; the comment is the name in 1.2.7."""

    NONE = 0
    USED = auto()  # OFFLINE "after use"
    JOIN_ACKNOWLEDGED = auto()  # jl
    PEER_JOINED = auto()  # jr
    LEAVE_SENT = auto()  # ls
    LEAVE_ACKNOWLEDGED = auto()  # la
    PEER_LEFT = auto()  # lr
    DRAINED = auto()  # nothing outstanding or queued on any topic


class Trigger(Enum):
    """What happens to a session."""

    __hash__ = object.__hash__  # an Enum's default hashes the name in Python, for every message

    OPEN = auto()
    SECURED = auto()
    HANDSHAKE_FAILED = auto()
    CALL = auto()  # send, register, deregister
    LEAVE_CALLED = auto()
    JOIN = auto()  # the next message on main, in order
    LEAVE = auto()  # likewise
    MESSAGE = auto()  # any other message, in order on its topic
    NEW_ON_MAIN = auto()  # a message that is no duplicate, before it is put in order
    NEW_OFF_MAIN = auto()
    JOIN_ACKNOWLEDGED = auto()
    LEAVE_ACKNOWLEDGED = auto()
    FLAGS_CHANGED = auto()  # after every other trigger, and whenever a message is settled
    STATE_TIMEOUT = auto()
    FRAME_TIMEOUT = auto()
    RETRIES_EXHAUSTED = auto()
    TRANSPORT_LOST = auto()
    FATAL_FOUND = auto()
    FATAL_RECEIVED = auto()


class Action(Enum):
    """What a session does."""

    __hash__ = object.__hash__

    START_HANDSHAKE_TIMEOUT = auto()
    START_SETUP_TIMEOUT = auto()
    START_TEARDOWN_TIMEOUT = auto()
    STOP_TIMEOUT = auto()
    JOIN_AS_CONNECTOR = auto()
    JOIN_AS_LISTENER = auto()
    READ_JOIN = auto()  # fatal BAD_PAYLOAD, SESSION_IN_USE, SESSION_LIMIT
    READ_LEAVE = auto()  # fatal BAD_PAYLOAD
    TAKE_REASON = auto()  # of our LEAVE_SESSION
    ACKNOWLEDGE = auto()
    HOLD = auto()
    DELIVER = auto()
    DELIVER_HELD = auto()
    SEND_LEAVE = auto()
    REPORT_ONLINE = auto()
    REPORT_PEER_LEFT = auto()
    REPORT_ERROR = auto()  # SessionError with the code of the row, or of the trigger
    REPORT_PEER_ERROR = auto()
    SEND_ERROR = auto()
    CLOSE = auto()
    CLOSE_CLEAN = auto()
    FAIL = auto()  # a fatal error with the code of the row is found; the row has no other effect
    REFUSE = auto()  # LocalError with the code of the row; the row has no other effect


class Row(NamedTuple):
    """One row of the table."""

    states: tuple[State, ...]
    trigger: Trigger
    next: State | None
    actions: tuple[Action, ...]
    has: Mark = Mark.NONE
    lacks: Mark = Mark.NONE
    sets: Mark = Mark.NONE
    code: ErrorCode | None = None


_IN_OFFLINE, _IN_HANDSHAKE, _IN_SETUP, _IN_ONLINE, _IN_TEARDOWN = ((state,) for state in State)
_IN_SECURE = _IN_SETUP + _IN_ONLINE + _IN_TEARDOWN
_IN_LIVE = _IN_HANDSHAKE + _IN_SECURE
_JL, _JR = Mark.JOIN_ACKNOWLEDGED, Mark.PEER_JOINED
_LS, _LA, _LR = Mark.LEAVE_SENT, Mark.LEAVE_ACKNOWLEDGED, Mark.PEER_LEFT
_T, _A, _E = Trigger, Action, ErrorCode
_FAIL = (_A.FAIL,)
_REPORT_AND_CLOSE = (_A.REPORT_ERROR, _A.CLOSE)
_PEER_LEAVES = (_A.READ_LEAVE, _A.ACKNOWLEDGE, _A.REPORT_PEER_LEFT)
_REFUSED = (_A.REFUSE,)

# fmt: off
TABLE: Final = (
    # OFFLINE
    Row(_IN_OFFLINE, _T.OPEN, State.HANDSHAKE, (_A.START_HANDSHAKE_TIMEOUT,), lacks=Mark.USED, sets=Mark.USED),
    # HANDSHAKE
    Row(_IN_HANDSHAKE, _T.SECURED, State.SETUP, (_A.START_SETUP_TIMEOUT, _A.JOIN_AS_CONNECTOR)),
    Row(_IN_HANDSHAKE, _T.HANDSHAKE_FAILED, State.OFFLINE, _REPORT_AND_CLOSE),
    Row(_IN_HANDSHAKE, _T.STATE_TIMEOUT, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.HANDSHAKE_TIMEOUT),
    Row(_IN_HANDSHAKE + _IN_SETUP, _T.LEAVE_CALLED, State.OFFLINE, (_A.CLOSE,)),
    # SETUP
    Row(_IN_SETUP, _T.JOIN, None, (_A.READ_JOIN, _A.ACKNOWLEDGE, _A.JOIN_AS_LISTENER), lacks=_JR, sets=_JR),
    Row(_IN_SETUP, _T.JOIN_ACKNOWLEDGED, None, (), sets=_JL),
    Row(_IN_SETUP, _T.FLAGS_CHANGED, State.ONLINE, (_A.STOP_TIMEOUT, _A.REPORT_ONLINE, _A.DELIVER_HELD), has=_JL | _JR),
    Row(_IN_SETUP, _T.LEAVE, State.OFFLINE, _FAIL, lacks=_JR, code=_E.WRONG_STATE),
    Row(_IN_SETUP, _T.MESSAGE, State.OFFLINE, _FAIL, lacks=_JR, code=_E.WRONG_STATE),
    Row(_IN_SETUP, _T.MESSAGE, None, (_A.HOLD,), has=_JR),
    Row(_IN_SETUP, _T.NEW_OFF_MAIN, State.OFFLINE, _FAIL, code=_E.WRONG_STATE),
    Row(_IN_SETUP, _T.STATE_TIMEOUT, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.SETUP_TIMEOUT),
    # ONLINE, and what SETUP and TEARDOWN share with it
    Row(_IN_ONLINE, _T.MESSAGE, None, (_A.DELIVER,)),
    Row(_IN_SECURE, _T.JOIN, State.OFFLINE, _FAIL, has=_JR, code=_E.WRONG_STATE),
    Row(_IN_ONLINE, _T.LEAVE_CALLED, State.TEARDOWN, (_A.TAKE_REASON, _A.START_TEARDOWN_TIMEOUT)),
    Row(_IN_SETUP + _IN_ONLINE, _T.LEAVE, State.TEARDOWN, (*_PEER_LEAVES, _A.START_TEARDOWN_TIMEOUT), has=_JR, sets=_LR),
    # TEARDOWN
    Row(_IN_TEARDOWN, _T.FLAGS_CHANGED, None, (_A.SEND_LEAVE,), has=Mark.DRAINED, lacks=_LS, sets=_LS),
    Row(_IN_TEARDOWN, _T.MESSAGE, None, (_A.DELIVER,), lacks=_LR),
    Row(_IN_TEARDOWN, _T.LEAVE, None, _PEER_LEAVES, lacks=_LR, sets=_LR),
    Row(_IN_TEARDOWN, _T.NEW_ON_MAIN, State.OFFLINE, _FAIL, has=_LR, code=_E.WRONG_STATE),
    Row(_IN_TEARDOWN, _T.NEW_OFF_MAIN, State.OFFLINE, _FAIL, has=_LR, code=_E.WRONG_STATE),
    Row(_IN_TEARDOWN, _T.MESSAGE, State.OFFLINE, _FAIL, has=_LR, code=_E.WRONG_STATE),
    Row(_IN_TEARDOWN, _T.LEAVE, State.OFFLINE, _FAIL, has=_LR, code=_E.WRONG_STATE),
    Row(_IN_TEARDOWN, _T.LEAVE_ACKNOWLEDGED, None, (), sets=_LA),
    Row(_IN_TEARDOWN, _T.FLAGS_CHANGED, State.OFFLINE, (_A.CLOSE_CLEAN,), has=_LA | _LR),
    Row(_IN_TEARDOWN, _T.TRANSPORT_LOST, State.OFFLINE, (_A.CLOSE_CLEAN,), has=_LR | _LS),
    Row(_IN_TEARDOWN, _T.STATE_TIMEOUT, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.TEARDOWN_TIMEOUT),
    # the end of a session in any state that has keys
    Row(_IN_SECURE, _T.FATAL_FOUND, State.OFFLINE, (_A.REPORT_ERROR, _A.SEND_ERROR, _A.CLOSE)),
    Row(_IN_SECURE, _T.FATAL_RECEIVED, State.OFFLINE, (_A.REPORT_PEER_ERROR, _A.CLOSE)),
    Row(_IN_SECURE, _T.RETRIES_EXHAUSTED, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.ACK_TIMEOUT),
    Row(_IN_SECURE, _T.FRAME_TIMEOUT, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.FRAME_TIMEOUT),
    Row(_IN_LIVE, _T.TRANSPORT_LOST, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.TRANSPORT_LOST),
    # calls in a state that does not offer them; OFFLINE after use ignores a second leave()
    Row(_IN_OFFLINE + _IN_HANDSHAKE + _IN_SETUP + _IN_TEARDOWN, _T.CALL, None, _REFUSED, code=_E.WRONG_STATE),
    Row(_IN_OFFLINE, _T.LEAVE_CALLED, None, _REFUSED, lacks=Mark.USED, code=_E.WRONG_STATE),
    Row(_IN_TEARDOWN, _T.LEAVE_CALLED, None, _REFUSED, code=_E.WRONG_STATE),
    Row(_IN_LIVE, _T.OPEN, None, _REFUSED, code=_E.WRONG_STATE),
    Row(_IN_SECURE, _T.SECURED, None, _REFUSED, code=_E.WRONG_STATE),
    Row(_IN_OFFLINE, _T.SECURED, None, _REFUSED, lacks=Mark.USED, code=_E.WRONG_STATE),
)
# fmt: on
"""The whole state machine."""


@cache
def only_delivers(state: State, marks: Mark) -> bool:
    """Return whether an APPLICATION message in its turn is delivered and nothing else happens, also when every message is settled."""
    rows = rows_by_trigger(state, marks | Mark.DRAINED)
    row = rows.get(Trigger.MESSAGE)
    if row is None or row != Row(row.states, Trigger.MESSAGE, None, (Action.DELIVER,), row.has, row.lacks):
        return False
    return rows.keys().isdisjoint({Trigger.NEW_ON_MAIN, Trigger.NEW_OFF_MAIN, Trigger.FLAGS_CHANGED})


@cache
def rows_by_trigger(state: State, marks: Mark) -> Mapping[Trigger, Row]:
    """Return the first row that applies for each trigger that has one."""
    rows: dict[Trigger, Row] = {}
    for row in TABLE:
        if state in row.states and marks & row.has == row.has and not marks & row.lacks:
            rows.setdefault(row.trigger, row)
    return rows


@dataclass(slots=True)  # not frozen, as `Received`
class Cause:
    """Why a row applies: a message in its turn, an error with its (topic, index), the peer's ERROR, or our reason to leave."""

    topic: Topic | None = None
    message: Received | None = None
    code: ErrorCode | None = None
    named: tuple[int, int] | None = None
    is_answered: bool = True
    refusal: Refusal | None = None
    reason: str | None = None


NO_CAUSE = Cause()
_OTHERS_IN_TURN = dict.fromkeys(Kind, Trigger.MESSAGE)
_IN_TURN = {**_OTHERS_IN_TURN, Kind.JOIN_SESSION: Trigger.JOIN, Kind.LEAVE_SESSION: Trigger.LEAVE}
# What every message needs: up to Python 3.11, looking up a member of an Enum takes as long as a call.
_OFFLINE, _TEARDOWN = State.OFFLINE, State.TEARDOWN
_ACKNOWLEDGE, _ERROR, _APPLICATION = Kind.ACKNOWLEDGE, Kind.ERROR, Kind.APPLICATION
_NEW_ON_MAIN, _NEW_OFF_MAIN, _FLAGS_CHANGED = Trigger.NEW_ON_MAIN, Trigger.NEW_OFF_MAIN, Trigger.FLAGS_CHANGED
_HOLD, _NO_MARKS = Action.HOLD, Mark.NONE


class Session:
    """One session of a channel, from OFFLINE to OFFLINE; an object is not used twice.

    ``admit`` returns SESSION_IN_USE or SESSION_LIMIT to refuse the peer's JOIN_SESSION, or None. ``may_register`` says whether the peer may
    register a topic. Raises ``ValueError`` for a session ID outside 0 to 1023, then for peers that are not two peers of the channel.
    """

    def __init__(
        self,
        role: Role,
        channel: int,
        local_peer: int,
        remote_peer: int,
        session_id: int,
        settings: Settings | None = None,
        *,
        admit: Callable[[], ErrorCode | None] = lambda: None,
        may_register: Callable[[int], bool] = lambda _: True,
    ) -> None:
        pack_message_id(channel, session_id, MAIN, 0)
        if local_peer == remote_peer or {channel_of(local_peer), channel_of(remote_peer)} != {channel}:
            raise ValueError("expected two peers of the channel")
        self._role = role
        self._settings = settings or Settings()
        self._admit = admit
        self._state = State.OFFLINE
        self._marks = Mark.NONE
        self._rows = rows_by_trigger(self._state, self._marks)
        self._only_delivers = False
        self._state_deadline: float | None = None
        self._leave_reason: str | None = None
        self._peer_reason: str | None = None
        self._events: deque[Event] = deque()
        self._link = Link(channel, session_id, local_peer, remote_peer, self._settings)
        self._delivery = Delivery(role, self._link, self._settings, may_register, self._events.append)
        self._topics = self._delivery.topics
        self._faults_end_the_session = _FaultGuard(self._end_with)
        self._actions: dict[Action, Callable[[Cause], None]] = {
            Action.START_HANDSHAKE_TIMEOUT: lambda _: self._start_timeout(self._settings.handshake_timeout),
            Action.START_SETUP_TIMEOUT: lambda _: self._start_timeout(self._settings.setup_timeout),
            Action.START_TEARDOWN_TIMEOUT: lambda _: self._start_timeout(self._settings.teardown_timeout),
            Action.STOP_TIMEOUT: self._stop_timeout,
            Action.JOIN_AS_CONNECTOR: lambda _: self._join_as(Role.CONNECTOR),
            Action.JOIN_AS_LISTENER: lambda _: self._join_as(Role.LISTENER),
            Action.READ_JOIN: self._read_join,
            Action.READ_LEAVE: self._read_leave,
            Action.TAKE_REASON: self._take_reason,
            Action.ACKNOWLEDGE: lambda cause: self._delivery.acknowledge(*_in_turn(cause)),
            Action.HOLD: lambda _: None,
            Action.DELIVER: self._deliver_in_turn,
            Action.DELIVER_HELD: lambda _: self._deliver(self._topics.main),
            Action.SEND_LEAVE: self._send_leave,
            Action.REPORT_ONLINE: lambda _: self._events.append(SessionOnline()),
            Action.REPORT_PEER_LEFT: lambda _: self._events.append(PeerLeft(self._peer_reason)),
            Action.REPORT_ERROR: self._report_error,
            Action.REPORT_PEER_ERROR: self._report_peer_error,
            Action.SEND_ERROR: self._send_error,
            Action.CLOSE: lambda _: self._close(is_clean=False),
            Action.CLOSE_CLEAN: lambda _: self._close(is_clean=True),
        }

    # --- what the owner reads ---

    @property
    def state(self) -> State:
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
        deadlines = (self._state_deadline, self._link.frame_timer.deadline, self._delivery.timers.next_deadline())
        return min([each for each in deadlines if each is not None], default=None)

    @property
    def counts(self) -> Counts:
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
        with self._faults_end_the_session:
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
            with self._faults_end_the_session:
                for topic, message in self._delivery.timers.due(now):
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
        with self._faults_end_the_session:
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
        with self._faults_end_the_session:
            self._fire(Trigger.LEAVE_CALLED, Cause(reason=reason))

    def ack(self, topic: int, index: int, now: float) -> None:
        """Acknowledge a message under the setting ``manual_ack``. Ignored after the end.

        Raises `LocalError`: UNKNOWN_TOPIC, then WRONG_STATE for a message that does not wait for its acknowledgement. Source: 1.2.9.
        """
        if self.is_closed:
            return
        self._delivery.now = now
        with self._faults_end_the_session:
            self._delivery.acknowledge_manually(topic, index)

    def refuse(self, topic: int, index: int, code: ErrorCode, now: float) -> None:
        """Refuse a message under the setting ``manual_ack``, with a non-fatal ERROR in place of its acknowledgement. Ignored after the end.

        Raises `LocalError`: UNKNOWN_TOPIC, then WRONG_STATE for a message that does not wait for its acknowledgement. Source: 1.2.8, 1.2.9.
        """
        if self.is_closed:
            return
        self._delivery.now = now
        with self._faults_end_the_session:
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
        with self._faults_end_the_session:
            self._delivery.send(self._topics.main, kind, plaintext, subject)

    # --- receiving (1.2.8 steps 9 and 10) ---

    def _receive(self, message: Received) -> None:
        kind = message.kind
        if kind is _APPLICATION and self._only_delivers and message.is_fresh:
            # The short cut of the usual message; `_receive_conversation` would come to the same.
            topic, index = self._topics.get(message.topic), message.index
            if topic is not None and index == topic.inbox.expected and index != NO_MESSAGE:
                self._delivery.deliver_application(topic, message)
                if topic.inbox.held:
                    self._deliver(topic)
                return
        if kind is not _ACKNOWLEDGE and kind is not _ERROR:
            self._receive_conversation(message)
        elif not message.is_fresh:
            self._delivery.spend(message)
        elif kind is _ACKNOWLEDGE:
            self._receive_acknowledgement(message)
        else:
            self._receive_error(message)

    def _receive_conversation(self, message: Received) -> None:
        if message.index == NO_MESSAGE or message.index % INDEX_STEP == self._role:
            raise fault(ErrorCode.INDEX_INVALID, message)
        if message.topic != MAIN and message.kind is not _APPLICATION:
            raise fault(ErrorCode.BAD_MESSAGE, message)
        topic = self._topics.get(message.topic)
        if topic is not None and message.index < topic.inbox.expected:
            self._delivery.spend(message)
            self._delivery.answer_again(topic, message)
        elif not message.is_fresh:
            self._delivery.spend(message)
        else:
            arrival = _NEW_ON_MAIN if message.topic == MAIN else _NEW_OFF_MAIN
            if arrival in self._rows:
                self._fire(arrival, Cause(topic, message))
            if topic is None:
                self._delivery.spend(message)
                self._delivery.send_error(ErrorCode.UNKNOWN_TOPIC, message.topic, message.index)
            elif self._delivery.hold(topic, message):
                self._deliver(topic)
            else:
                self._delivery.spend(message)

    def _deliver(self, topic: Topic) -> None:
        """Give each message its turn, from the expected index upward, until one is missing or must wait."""
        while self._state is not _OFFLINE and (message := topic.inbox.first()) is not None:
            row = self._fire(_IN_TURN[message.kind], Cause(topic, message))
            if row is None or _HOLD in row.actions:
                return

    def _receive_acknowledgement(self, message: Received) -> None:
        if message.plaintext != ACKNOWLEDGEMENT:
            raise fault(ErrorCode.BAD_PAYLOAD, message)
        settled = self._delivery.settle(message)
        if settled is None:
            return
        topic, ours = settled
        self._delivery.report_accepted(topic, ours)
        self._delivery.transmit_waiting(topic)
        if ours.kind is Kind.JOIN_SESSION:
            self._fire(Trigger.JOIN_ACKNOWLEDGED)
        elif ours.kind is Kind.LEAVE_SESSION:
            self._fire(Trigger.LEAVE_ACKNOWLEDGED)
        self._follow_flags()

    def _receive_error(self, message: Received) -> None:
        try:
            refusal = read_error(message.plaintext)
        except ValueError:
            raise fault(ErrorCode.BAD_PAYLOAD, message) from None
        cause = Cause(refusal=refusal)
        if refusal.is_fatal:
            self._fire(Trigger.FATAL_RECEIVED, cause)
        elif message.index == NO_MESSAGE:
            self._report_peer_error(cause)
        elif (settled := self._delivery.settle(message)) is not None:
            topic, ours = settled
            if ours.kind in {Kind.JOIN_SESSION, Kind.LEAVE_SESSION}:
                self._fire(Trigger.FATAL_RECEIVED, cause)
                return
            self._delivery.report_refused(topic, ours, refusal.code)
            self._delivery.transmit_waiting(topic)
            self._follow_flags()

    # --- the state machine ---

    def _end_with(self, found: Fault) -> None:
        cause = Cause(code=found.code, named=found.named, is_answered=found.is_answered)
        self._fire(Trigger.FATAL_FOUND, cause)

    def _fire(self, trigger: Trigger, cause: Cause = NO_CAUSE) -> Row | None:
        row = self._rows.get(trigger)
        if row is not None:
            self._apply(row, cause)
            self._follow_flags()
        return row

    def _follow_flags(self) -> None:
        while (row := self._flags_row()) is not None:
            self._apply(row, NO_CAUSE)

    def _flags_row(self) -> Row | None:
        if self._state is _TEARDOWN and self._delivery.is_drained():
            return rows_by_trigger(self._state, self._marks | Mark.DRAINED).get(_FLAGS_CHANGED)
        return self._rows.get(_FLAGS_CHANGED)

    def _apply(self, row: Row, cause: Cause) -> None:
        if row.code is not None:
            cause = replace(cause, code=row.code)
            if Action.REFUSE in row.actions:
                raise LocalError(row.code)
            if Action.FAIL in row.actions:
                assert cause.message is not None
                raise fault(row.code, cause.message)
        if row.next is not None or row.sets is not _NO_MARKS:
            self._state = row.next or self._state
            self._marks |= row.sets
            self._rows = rows_by_trigger(self._state, self._marks)
            self._only_delivers = only_delivers(self._state, self._marks)
        for action in row.actions:
            self._actions[action](cause)

    # --- actions ---

    def _deliver_in_turn(self, cause: Cause) -> None:
        self._delivery.deliver(*_in_turn(cause))

    def _start_timeout(self, seconds: float) -> None:
        self._state_deadline = self._delivery.now + seconds

    def _stop_timeout(self, _: Cause) -> None:
        self._state_deadline = None

    def _join_as(self, role: Role) -> None:
        if role is self._role:
            join = Join(self._settings.window, self._settings.max_frame)
            self._delivery.send(self._topics.main, Kind.JOIN_SESSION, write_join(join))

    def _read_join(self, cause: Cause) -> None:
        _, message = _in_turn(cause)
        try:
            self._delivery.peer = read_join(message.plaintext)
        except ValueError:
            raise fault(ErrorCode.BAD_PAYLOAD, message) from None
        refusal = self._admit()
        if refusal is not None:
            raise fault(refusal, message)

    def _read_leave(self, cause: Cause) -> None:
        _, message = _in_turn(cause)
        try:
            self._peer_reason = read_leave(message.plaintext)
        except ValueError:
            raise fault(ErrorCode.BAD_PAYLOAD, message) from None

    def _take_reason(self, cause: Cause) -> None:
        self._leave_reason = cause.reason

    def _send_leave(self, _: Cause) -> None:
        self._delivery.send(self._topics.main, Kind.LEAVE_SESSION, write_leave(self._leave_reason))

    def _report_error(self, cause: Cause) -> None:
        assert cause.code is not None
        named = cause.named if cause.code is ErrorCode.ACK_TIMEOUT else None
        self._events.append(SessionError(category_of(cause.code), cause.code, *(named or ())))

    def _report_peer_error(self, cause: Cause) -> None:
        assert cause.refusal is not None
        self._events.append(PeerError(*cause.refusal))

    def _send_error(self, cause: Cause) -> None:
        if cause.is_answered:
            assert cause.code is not None
            topic, index = cause.named or (MAIN, NO_MESSAGE)
            self._link.send(Kind.ERROR, topic, index, write_error(cause.code, is_fatal=True), is_last=True)

    def _close(self, *, is_clean: bool) -> None:
        self._state_deadline = None
        self._events.append(SessionClosed(is_clean, self._delivery.undelivered()))
        self._link.close()
        self._delivery = Delivery(self._role, self._link, self._settings, lambda _: True, self._events.append)
        self._topics = self._delivery.topics


class _FaultGuard:
    """Gives a `Fault` of its block to ``end``; it holds no state, so one object serves every call."""

    __slots__ = ("_end",)

    def __init__(self, end: Callable[[Fault], None]) -> None:
        self._end = end

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, found: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(found, Fault):
            return False
        self._end(found)
        return True


def _in_turn(cause: Cause) -> tuple[Topic, Received]:
    assert cause.topic is not None
    assert cause.message is not None
    return cause.topic, cause.message
