# SPDX-License-Identifier: Apache-2.0
"""JSON of many values and levels: bytes of a frame and nesting are limited, nothing else. Source: channel_rules 1.2.3, 1.2.5, 1.2.8."""

from __future__ import annotations

import json
from typing import Any

import pytest
from channel_world import ACK, ERROR, LEAVE, NO_MESSAGE, REGISTER, connector, listener
from hypothesis import given
from hypothesis import strategies as st
from validator_channel.events import PeerError, PeerLeft, TopicRequested
from validator_channel.limits import JSON_LEVELS_MAX
from validator_channel.wire import parse_json

MANY = json.dumps([1] * 5_000).encode()
"""Far more values than any message needs."""


def test_unknown_member_of_any_size_is_ignored() -> None:
    world = listener(max_frame=2**17).online()
    out = world.receive(REGISTER, 0, 2, b'{"topic":7,"x":' + MANY + b"}")
    assert out == ([(ACK, 0, 2, b"{}")], [TopicRequested(7, None)])
    out = world.receive(ERROR, 0, NO_MESSAGE, b'{"code":"A","fatal":false,"x":' + MANY + b"}")
    assert out == ([], [PeerError("A", is_fatal=False, detail=None)])
    out = world.receive(LEAVE, 0, 4, b'{"x":' + MANY + b"}")
    assert out.events == [PeerLeft(None)]


def test_unknown_member_of_a_join_is_ignored() -> None:
    world = connector(max_frame=2**17).online(b'{"window":8,"max_frame":4096,"x":' + MANY + b"}")
    assert world.session.state == "ONLINE"


def levels(value: Any) -> int:
    if not isinstance(value, list | dict):
        return 0
    return 1 + max(map(levels, value.values() if isinstance(value, dict) else value), default=0)


LEAVES = st.one_of(st.integers(), st.booleans(), st.text(alphabet='[]{}"\\,:u\n\u00e9\U0001f600'))
VALUES = st.recursive(
    LEAVES, lambda each: st.one_of(st.lists(each), st.dictionaries(st.text(alphabet='[{"\\'), each)), max_leaves=8
)


@given(VALUES, st.integers(JSON_LEVELS_MAX - 4, JSON_LEVELS_MAX + 1), st.booleans())
def test_levels_are_those_of_the_value(value: Any, depth: int, is_ascii: bool) -> None:
    for at in range(depth):
        value = [value] if at % 2 else {"[": value}
    data = json.dumps(value, ensure_ascii=is_ascii).encode()
    if levels(value) <= JSON_LEVELS_MAX:
        assert parse_json(data) == value
    else:
        with pytest.raises(ValueError, match="nested more than 64 levels deep"):
            parse_json(data)
