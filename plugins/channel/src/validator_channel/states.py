# SPDX-License-Identifier: Apache-2.0
"""The state machine of a session as a table, row by row the one of channel_rules 1.2.7.

A row applies in one of its states, when its trigger occurs, all flags of ``has`` are set and none of ``lacks``; the first such row decides.
It sets ``sets``, moves to ``next`` (None: the state stays) and runs its actions in order. What no row names changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, Flag, StrEnum, auto
from functools import cache
from typing import Final, NamedTuple

from validator_channel.errors import ErrorCode


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


_OFFLINE, _HANDSHAKE, _SETUP, _ONLINE, _TEARDOWN = ((state,) for state in State)
_SECURE = _SETUP + _ONLINE + _TEARDOWN
_LIVE = _HANDSHAKE + _SECURE
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
    Row(_OFFLINE, _T.OPEN, State.HANDSHAKE, (_A.START_HANDSHAKE_TIMEOUT,), lacks=Mark.USED, sets=Mark.USED),
    # HANDSHAKE
    Row(_HANDSHAKE, _T.SECURED, State.SETUP, (_A.START_SETUP_TIMEOUT, _A.JOIN_AS_CONNECTOR)),
    Row(_HANDSHAKE, _T.HANDSHAKE_FAILED, State.OFFLINE, _REPORT_AND_CLOSE),
    Row(_HANDSHAKE, _T.STATE_TIMEOUT, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.HANDSHAKE_TIMEOUT),
    Row(_HANDSHAKE + _SETUP, _T.LEAVE_CALLED, State.OFFLINE, (_A.CLOSE,)),
    # SETUP
    Row(_SETUP, _T.JOIN, None, (_A.READ_JOIN, _A.ACKNOWLEDGE, _A.JOIN_AS_LISTENER), lacks=_JR, sets=_JR),
    Row(_SETUP, _T.JOIN_ACKNOWLEDGED, None, (), sets=_JL),
    Row(_SETUP, _T.FLAGS_CHANGED, State.ONLINE, (_A.STOP_TIMEOUT, _A.REPORT_ONLINE, _A.DELIVER_HELD), has=_JL | _JR),
    Row(_SETUP, _T.LEAVE, State.OFFLINE, _FAIL, lacks=_JR, code=_E.WRONG_STATE),
    Row(_SETUP, _T.MESSAGE, State.OFFLINE, _FAIL, lacks=_JR, code=_E.WRONG_STATE),
    Row(_SETUP, _T.MESSAGE, None, (_A.HOLD,), has=_JR),
    Row(_SETUP, _T.NEW_OFF_MAIN, State.OFFLINE, _FAIL, code=_E.WRONG_STATE),
    Row(_SETUP, _T.STATE_TIMEOUT, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.SETUP_TIMEOUT),
    # ONLINE, and what SETUP and TEARDOWN share with it
    Row(_ONLINE, _T.MESSAGE, None, (_A.DELIVER,)),
    Row(_SECURE, _T.JOIN, State.OFFLINE, _FAIL, has=_JR, code=_E.WRONG_STATE),
    Row(_ONLINE, _T.LEAVE_CALLED, State.TEARDOWN, (_A.TAKE_REASON, _A.START_TEARDOWN_TIMEOUT)),
    Row(_SETUP + _ONLINE, _T.LEAVE, State.TEARDOWN, (*_PEER_LEAVES, _A.START_TEARDOWN_TIMEOUT), has=_JR, sets=_LR),
    # TEARDOWN
    Row(_TEARDOWN, _T.FLAGS_CHANGED, None, (_A.SEND_LEAVE,), has=Mark.DRAINED, lacks=_LS, sets=_LS),
    Row(_TEARDOWN, _T.MESSAGE, None, (_A.DELIVER,), lacks=_LR),
    Row(_TEARDOWN, _T.LEAVE, None, _PEER_LEAVES, lacks=_LR, sets=_LR),
    Row(_TEARDOWN, _T.NEW_ON_MAIN, State.OFFLINE, _FAIL, has=_LR, code=_E.WRONG_STATE),
    Row(_TEARDOWN, _T.NEW_OFF_MAIN, State.OFFLINE, _FAIL, has=_LR, code=_E.WRONG_STATE),
    Row(_TEARDOWN, _T.MESSAGE, State.OFFLINE, _FAIL, has=_LR, code=_E.WRONG_STATE),
    Row(_TEARDOWN, _T.LEAVE, State.OFFLINE, _FAIL, has=_LR, code=_E.WRONG_STATE),
    Row(_TEARDOWN, _T.LEAVE_ACKNOWLEDGED, None, (), sets=_LA),
    Row(_TEARDOWN, _T.FLAGS_CHANGED, State.OFFLINE, (_A.CLOSE_CLEAN,), has=_LA | _LR),
    Row(_TEARDOWN, _T.TRANSPORT_LOST, State.OFFLINE, (_A.CLOSE_CLEAN,), has=_LR | _LS),
    Row(_TEARDOWN, _T.STATE_TIMEOUT, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.TEARDOWN_TIMEOUT),
    # the end of a session in any state that has keys
    Row(_SECURE, _T.FATAL_FOUND, State.OFFLINE, (_A.REPORT_ERROR, _A.SEND_ERROR, _A.CLOSE)),
    Row(_SECURE, _T.FATAL_RECEIVED, State.OFFLINE, (_A.REPORT_PEER_ERROR, _A.CLOSE)),
    Row(_SECURE, _T.RETRIES_EXHAUSTED, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.ACK_TIMEOUT),
    Row(_SECURE, _T.FRAME_TIMEOUT, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.FRAME_TIMEOUT),
    Row(_LIVE, _T.TRANSPORT_LOST, State.OFFLINE, _REPORT_AND_CLOSE, code=_E.TRANSPORT_LOST),
    # calls in a state that does not offer them; OFFLINE after use ignores a second leave()
    Row(_OFFLINE + _HANDSHAKE + _SETUP + _TEARDOWN, _T.CALL, None, _REFUSED, code=_E.WRONG_STATE),
    Row(_OFFLINE, _T.LEAVE_CALLED, None, _REFUSED, lacks=Mark.USED, code=_E.WRONG_STATE),
    Row(_TEARDOWN, _T.LEAVE_CALLED, None, _REFUSED, code=_E.WRONG_STATE),
    Row(_LIVE, _T.OPEN, None, _REFUSED, code=_E.WRONG_STATE),
    Row(_SECURE, _T.SECURED, None, _REFUSED, code=_E.WRONG_STATE),
    Row(_OFFLINE, _T.SECURED, None, _REFUSED, lacks=Mark.USED, code=_E.WRONG_STATE),
)
# fmt: on
"""The whole state machine."""


def find_row(state: State, marks: Mark, trigger: Trigger) -> Row | None:
    """Return the first row that applies, or None."""
    return rows_by_trigger(state, marks).get(trigger)


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
