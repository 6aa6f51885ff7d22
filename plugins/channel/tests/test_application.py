# SPDX-License-Identifier: Apache-2.0
"""What a gateway and its peers say to each other: round trips, and everything that is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_channel.application import (
    ERROR_CHARACTERS_MAX,
    MAIN_TOKENS_MAX,
    PARTITIONS_MAX,
    SUBMIT_TOPICS,
    TOPIC_NAMES,
    WATCH_TOPICS,
    MainMessage,
    RefusedMessage,
    Watch,
    Watched,
    Watching,
    Welcome,
    parse_position,
    read_main,
    read_record,
    read_watched,
    write_main,
    write_watched,
)
from validator_channel.wire import encode_json

OFFSETS = st.integers(0, 2**53 - 1)
POSITIONS = st.dictionaries(st.integers(0, 1023), OFFSETS, max_size=5)
INDICES = st.integers(0, 2**32 - 1)
MESSAGES = st.one_of(
    st.builds(
        Welcome,
        st.dictionaries(st.sampled_from(sorted(SUBMIT_TOPICS)), st.integers(1, 2**22 - 1)),
        st.dictionaries(st.sampled_from(sorted(WATCH_TOPICS)), st.integers(1, 2**22 - 1)),
        st.dictionaries(st.text("abc", min_size=1), st.none() | st.lists(st.integers(0, 2**32 - 1)).map(tuple)),
    ),
    st.builds(Watch, st.text("abc"), st.none() | st.just("end") | POSITIONS),
    st.builds(Watching, st.text("abc"), INDICES, POSITIONS),
    st.builds(RefusedMessage, st.integers(0, 2**22 - 1), INDICES, st.text("abc", max_size=ERROR_CHARACTERS_MAX)),
)


def test_topic_ids_are_unique_and_leave_main_alone() -> None:
    assert len(TOPIC_NAMES) == len(SUBMIT_TOPICS) + len(WATCH_TOPICS)
    assert min(TOPIC_NAMES) > 0
    assert {"candidates": 1, "verdicts": 3}.items() <= (SUBMIT_TOPICS | WATCH_TOPICS).items()  # type: ignore[operator]


@given(MESSAGES)
def test_messages_on_main_survive(message: MainMessage) -> None:
    assert read_main(write_main(message)) == message


@given(
    st.integers(0, 1023),
    OFFSETS,
    st.none() | st.dictionaries(st.text("abc"), st.integers()),
    st.none() | st.text("abc"),
)
def test_watched_records_survive(partition: int, offset: int, record: Any, error: str | None) -> None:
    assert read_watched(write_watched(partition, offset, record, error)) == Watched(partition, offset, record, error)


def test_error_of_a_refusal_is_cut() -> None:
    refused = read_main(write_main(RefusedMessage(1, 2, "x" * 10_000)))
    assert isinstance(refused, RefusedMessage)
    assert len(refused.error) == ERROR_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([], "expected an object, found an array"),
        ({}, "type: expected welcome, watch, watching or refused, found None"),
        ({"type": "x" * 99}, "type: expected welcome, watch, watching or refused, found 'xxxx"),
        ({"type": "watch", "after": None}, "topic: expected text, found None"),
        ({"type": "watch", "topic": "verdicts", "after": "begin"}, "after: expected null, 'end' or an object"),
        ({"type": "watch", "topic": "verdicts", "after": {"x": 1}}, "after: expected partitions from 0 to 1023 as names, found 'x'"),
        ({"type": "watch", "topic": "verdicts", "after": {"00": 1}}, "after: expected partitions"),
        ({"type": "watch", "topic": "verdicts", "after": {"1024": 1}}, "after: expected partitions"),
        ({"type": "watch", "topic": "verdicts", "after": {"0": -1}}, "after.0: expected an offset from 0"),
        ({"type": "watch", "topic": "verdicts", "after": {"0": True}}, "after.0: expected an offset"),
        ({"type": "watch", "topic": "verdicts", "after": {"0": 2**53}}, "after.0: expected an offset"),
        ({"type": "watch", "topic": "verdicts", "after": {str(n): 0 for n in range(2000)}}, "after: expected null, 'end' or"),
        ({"type": "watching", "topic": "verdicts", "index": 2**32, "after": {}}, "index: expected an integer from 0 to 4294967295"),
        ({"type": "watching", "topic": "verdicts", "index": 0, "after": None}, "after: expected"),
        ({"type": "refused", "topic": 1.0, "index": 0, "error": ""}, "topic: expected an integer"),
        ({"type": "refused", "topic": 1, "index": 0}, "error: expected text, found None"),
        ({"type": "welcome", "submit": {"candidates": 0}, "watch": {}, "lanes": {}}, "submit: expected an object of topic IDs"),
        ({"type": "welcome", "submit": {}, "watch": [], "lanes": {}}, "watch: expected an object of topic IDs"),
        ({"type": "welcome", "submit": {}, "watch": {}}, "lanes: expected an object of paras by lane, found None"),
        ({"type": "welcome", "submit": {}, "watch": {}, "lanes": {"a": [True]}}, "lanes.'a': expected 'all' or an array of paras"),
    ],
)  # fmt: skip
def test_wrong_message_on_main_says_what_was_expected(value: Any, text: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        read_main(json.dumps(value).encode())
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "at: expected an object with partition and offset, found None"),
        ({"at": {"partition": -1, "offset": 0}}, "partition: expected"),
        ({"at": {"partition": 0, "offset": "0"}}, "offset: expected"),
        ({"at": {"partition": 0, "offset": 0}, "record": []}, "record: expected an object or null"),
        ({"at": {"partition": 0, "offset": 0}, "error": 1}, "error: expected text"),
    ],
)
def test_wrong_watched_record_says_what_was_expected(value: Any, text: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        read_watched(json.dumps(value).encode())
    assert str(caught.value).startswith(text)


def test_records_and_welcomes_may_hold_many_values() -> None:
    record = {"horizontal_messages": [{"recipient": number, "data": "00"} for number in range(MAIN_TOKENS_MAX)]}
    assert read_record(encode_json(record)) == record
    assert read_watched(write_watched(0, 1, record)).record == record
    watch = Watch("verdicts", dict.fromkeys(range(PARTITIONS_MAX), 0))
    assert read_main(write_main(watch)) == watch
    welcome = Welcome({}, {}, {"polkadot": tuple(range(MAIN_TOKENS_MAX + 1))})
    assert read_main(write_main(welcome), tokens_max=None) == welcome
    with pytest.raises(ValueError, match="more than 4096 strings, commas and opening brackets"):
        read_main(write_main(welcome))


@pytest.mark.parametrize("payload", [b"", b"[]", b"1", b'{"a":1,"a":1}', b"\xff"])
def test_record_is_a_strict_object(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_record(payload)


@pytest.mark.parametrize(
    ("text", "after"),
    [("start", None), ("end", "end"), ("0", {0: 0}), ("1234", {0: 1234}), ("0:5,2:7", {0: 5, 2: 7})],
)
def test_positions_that_people_write(text: str, after: Any) -> None:
    assert parse_position(text) == after


@pytest.mark.parametrize("text", ["", "begin", "-1", "1:", ":1:2", "0:1,0:2", "a:1", "1024:0", "9" * 17, "1 "])
def test_wrong_position_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_position(text)
