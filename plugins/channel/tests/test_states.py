# SPDX-License-Identifier: Apache-2.0
"""The table of states is complete, unambiguous, and each of its rows is needed; error codes stand in their categories."""

from __future__ import annotations

from itertools import product

import pytest
from validator_channel import errors
from validator_channel.errors import Category, ErrorCode, category_of
from validator_channel.session import TABLE, Action, Mark, State, Trigger, rows_by_trigger

ALL_MARKS = [Mark(value) for value in range(2 ** len(Mark))]


def test_every_row_decides_somewhere() -> None:
    deciding = {id(row) for each in product(State, ALL_MARKS) for row in rows_by_trigger(*each).values()}
    assert [row for row in TABLE if id(row) not in deciding] == []


def test_rows_that_fail_or_refuse_have_a_code_and_nothing_else() -> None:
    for row in TABLE:
        if {Action.FAIL, Action.REFUSE} & set(row.actions):
            assert len(row.actions) == 1
            assert row.sets is Mark.NONE
            assert row.code in (errors.FATAL if Action.FAIL in row.actions else errors.LOCAL)
            assert row.next is (State.OFFLINE if Action.FAIL in row.actions else None)


def test_going_offline_closes_exactly_once() -> None:
    for row in TABLE:
        closing = [action for action in row.actions if action in {Action.CLOSE, Action.CLOSE_CLEAN}]
        assert len(closing) == (row.next is State.OFFLINE and Action.FAIL not in row.actions)
        assert not closing or row.actions[-1] is closing[0]


def test_only_two_rows_are_clean() -> None:
    clean = [row for row in TABLE if Action.CLOSE_CLEAN in row.actions]
    assert [(row.states, row.has) for row in clean] == [
        ((State.TEARDOWN,), Mark.LEAVE_ACKNOWLEDGED | Mark.PEER_LEFT),
        ((State.TEARDOWN,), Mark.PEER_LEFT | Mark.LEAVE_SENT),
    ]


def test_states_only_advance() -> None:
    order = [*State][1:]
    for row in TABLE:
        for state in row.states:
            if row.next not in {None, State.OFFLINE} and state is not State.OFFLINE:
                assert order.index(row.next) > order.index(state)


def test_delivery_errors_send_nothing() -> None:
    for row in TABLE:
        if row.code in errors.DELIVERY:
            assert row.actions == (Action.REPORT_ERROR, Action.CLOSE)


@pytest.mark.parametrize("trigger", [each for each in Trigger if each not in {Trigger.CALL}])
def test_offline_after_use_ignores_everything(trigger: Trigger) -> None:
    assert all(trigger not in rows_by_trigger(State.OFFLINE, marks | Mark.USED) for marks in ALL_MARKS)


def test_every_code_has_a_category() -> None:
    groups = [errors.FATAL, errors.NOT_FATAL, errors.HANDSHAKE, errors.LOCAL, errors.DELIVERY]
    assert frozenset().union(*groups) == frozenset(ErrorCode)
    assert [len(group) for group in groups] == [18, 7, 4, 10, 6]
    assert errors.DELIVERY.isdisjoint(errors.FATAL | errors.NOT_FATAL | errors.HANDSHAKE | errors.LOCAL)
    for code in ErrorCode:
        assert category_of(code) is (Category.DELIVERY if code in errors.DELIVERY else Category.RUNTIME)
