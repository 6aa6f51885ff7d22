# SPDX-License-Identifier: Apache-2.0
"""Identifiers and settings: every range, text form and boundary. Source: channel_rules 1.2.1, 1.2.12."""

from __future__ import annotations

from typing import Any

import pytest
from channel_world import CHANNEL, PEERS, SESSION
from hypothesis import given
from hypothesis import strategies as st
from validator_channel.limits import Settings
from validator_channel.session import Session
from validator_channel.wire import (
    LAST_INDEX,
    NO_MESSAGE,
    MessageId,
    Role,
    channel_of,
    format_id,
    pack_message_id,
    parse_channel,
    parse_id,
    unpack_message_id,
)


def test_example_of_the_rules() -> None:
    assert format_id(pack_message_id(CHANNEL, 5, 7, 42)) == "0123456789abcdef014000070000002a"


@given(st.integers(0, 2**64 - 1), st.integers(0, 1023), st.integers(0, 2**22 - 1), st.integers(0, 2**32 - 1))
def test_message_ids_pack_and_unpack(channel: int, session: int, topic: int, index: int) -> None:
    packed = pack_message_id(channel, session, topic, index)
    assert packed < 2**128
    assert unpack_message_id(packed) == MessageId(channel, session, topic, index)
    assert parse_id(format_id(packed)) == packed


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("is_low", [True, False])
def test_part_out_of_range(at: int, *, is_low: bool) -> None:
    maxima = [2**64 - 1, 1023, 2**22 - 1, 2**32 - 1]
    pack_message_id(*maxima)
    parts = list(maxima)
    parts[at] = -1 if is_low else parts[at] + 1
    with pytest.raises(ValueError, match="expected 0 to"):
        pack_message_id(*parts)


@pytest.mark.parametrize("call", [unpack_message_id, channel_of])
def test_id_of_more_than_128_bits(call: Any) -> None:
    call(2**128 - 1)
    for wrong in (-1, 2**128):
        with pytest.raises(ValueError, match="expected 0 to"):
            call(wrong)


@pytest.mark.parametrize(
    "bad",
    ["A" * 32, "a" * 31, "a" * 33, "\uff11" * 32, " " + "a" * 31, "a" * 31 + "\n", "0x" + "a" * 30, "", "+" + "1" * 31],
)
def test_hex_is_exactly_lower_case_digits(bad: str) -> None:
    with pytest.raises(ValueError, match="hex"):
        parse_id(bad)
    with pytest.raises(ValueError, match="hex"):
        parse_channel(bad[:17] if len(bad) > 31 else bad)


def test_last_indices_keep_parity_and_spare_no_message() -> None:
    for role in Role:
        assert LAST_INDEX[role] % 2 == role
        assert LAST_INDEX[role] < NO_MESSAGE <= LAST_INDEX[role] + 2 + (role is Role.CONNECTOR)


@pytest.mark.parametrize(
    ("channel", "local", "remote", "session"),
    [
        (CHANNEL, PEERS[0], PEERS[0], SESSION),
        (CHANNEL + 1, *PEERS, SESSION),
        (CHANNEL, PEERS[0], PEERS[1] ^ 1 << 64, SESSION),
        (CHANNEL, *PEERS, 1024),
        (CHANNEL, *PEERS, -1),
    ],
)
def test_session_of_wrong_ids(channel: int, local: int, remote: int, session: int) -> None:
    with pytest.raises(ValueError, match="expected"):
        Session(Role.CONNECTOR, channel, local, remote, session)


BOUNDS = {
    "backoff": (1, 100),
    "max_retries": (0, 100),
    "max_frame": (1024, 2**32 - 1),
    "window": (1, 1024),
    "max_inflight": (1, 2**20),
    "outbox_limit": (0, 2**20),
    "inbox_limit": (0, 2**20),
    "inbox_bytes": (0, 2**40),
    "held_bytes": (0, 2**40),
    "max_topics": (1, 2**22),
    "stale_limit": (0, 2**20),
    "replay_window": (1, 2**20),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_setting_has_both_bounds(name: str) -> None:
    low, high = BOUNDS[name]
    for good in (low, high):
        Settings(**{name: good})
    for bad in (low - 1, high + 1):
        with pytest.raises(ValueError, match=f"{name}: expected a number from"):
            Settings(**{name: bad})


@pytest.mark.parametrize(
    "name",
    [
        "ack_timeout",
        "max_ack_timeout",
        "handshake_timeout",
        "setup_timeout",
        "teardown_timeout",
        "frame_timeout",
        "stale_period",
    ],
)
def test_seconds_are_positive_and_finite(name: str) -> None:
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=name):
            Settings(**{name: bad})


@pytest.mark.parametrize(
    ("name", "bad"), [("window", 1.0), ("window", True), ("ack_timeout", True), ("ack_timeout", "1"), ("manual_ack", 1)]
)
def test_setting_of_another_type(name: str, bad: Any) -> None:
    with pytest.raises(TypeError, match=name):
        Settings(**{name: bad})


def test_intervals() -> None:
    settings = Settings(ack_timeout=2, backoff=2, max_ack_timeout=30)
    assert [settings.interval(k) for k in range(1, 7)] == [2, 4, 8, 16, 30, 30]
    assert Settings(backoff=100, max_retries=100).interval(101) == 30
