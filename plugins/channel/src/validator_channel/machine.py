# SPDX-License-Identifier: Apache-2.0
"""Runs `states.TABLE`: takes the peer's messages in the order of their checks, and does what the rows say.

Source: channel_rules 1.2.7, 1.2.8 steps 9 and 10, 1.2.9, 1.2.11.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

from validator_channel.delivery import Delivery, fault
from validator_channel.errors import ErrorCode, Fault, LocalError, category_of
from validator_channel.events import Event, PeerError, PeerLeft, SessionClosed, SessionError, SessionOnline
from validator_channel.ids import INDEX_STEP, MAIN, NO_MESSAGE, Role, channel_of, pack_message_id
from validator_channel.limits import Settings
from validator_channel.link import Link
from validator_channel.payloads import (
    ACKNOWLEDGEMENT,
    Join,
    Refusal,
    read_error,
    read_join,
    read_leave,
    write_error,
    write_join,
    write_leave,
)
from validator_channel.states import Action, Mark, Row, State, Trigger, find_row, only_delivers, rows_by_trigger
from validator_channel.topics import Received, Topic
from validator_channel.wire import Kind


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


def _admit_every_peer() -> ErrorCode | None:
    return None


def _allow_every_topic(topic: int) -> bool:  # noqa: ARG001
    return True


class Machine:
    """The part of a `Session` that is not called by its owner.

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
        admit: Callable[[], ErrorCode | None] = _admit_every_peer,
        may_register: Callable[[int], bool] = _allow_every_topic,
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
        self._guard = _FaultGuard(self._end_with)
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

    def _faults_end_the_session(self) -> _FaultGuard:
        return self._guard

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
            return find_row(self._state, self._marks | Mark.DRAINED, _FLAGS_CHANGED)
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
        self._delivery = Delivery(self._role, self._link, self._settings, _allow_every_topic, self._events.append)
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
