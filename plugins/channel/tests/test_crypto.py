# SPDX-License-Identifier: Apache-2.0
"""Sealing, counters and the replay window. Source: channel_rules 1.2.4."""

from __future__ import annotations

import pytest
from channel_world import KEYS, PEERS
from hypothesis import given
from hypothesis import strategies as st
from validator_channel.crypto import (
    CounterExhausted,
    DecryptError,
    Opener,
    ReplayWindow,
    Sealer,
    SessionKeys,
    associated_data,
    nonce,
)
from validator_channel.delivery import Outgoing, Received
from validator_channel.events import MessageReceived, Undelivered
from validator_channel.limits import COUNTER_MAX
from validator_channel.session import Cause
from validator_channel.wire import Kind


def test_nonce_is_little_endian() -> None:
    assert nonce(0x0102030405060708).hex() == "000000000807060504030201"


def test_associated_data_has_43_bytes_and_the_kind_codes() -> None:
    for code, kind in enumerate(Kind, start=1):
        data = associated_data(kind, PEERS[0], 7)
        assert len(data) == 43
        assert data == b"channel/1\0" + bytes([code]) + PEERS[0].to_bytes(16, "big") + (7).to_bytes(16, "big")


def test_every_sealed_value_is_authenticated() -> None:
    counter, sealed = Sealer(KEYS[0], PEERS[0]).seal(Kind.APPLICATION, 9, b"text")
    opener = Opener(KEYS[0], PEERS[0])
    assert opener.open(Kind.APPLICATION, 9, counter, sealed) == b"text"
    for at in range(len(sealed) * 8):
        flipped = bytearray(sealed)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(DecryptError):
            opener.open(Kind.APPLICATION, 9, counter, bytes(flipped))
    for at in range(128):
        with pytest.raises(DecryptError):
            opener.open(Kind.APPLICATION, 9 ^ 1 << at, counter, sealed)
        with pytest.raises(DecryptError):
            Opener(KEYS[0], PEERS[0] ^ 1 << at).open(Kind.APPLICATION, 9, counter, sealed)
    for at in range(53):
        with pytest.raises(DecryptError):
            opener.open(Kind.APPLICATION, 9, counter ^ 1 << at, sealed)
    for kind in set(Kind) - {Kind.APPLICATION}:
        with pytest.raises(DecryptError):
            opener.open(kind, 9, counter, sealed)
    with pytest.raises(DecryptError):
        Opener(KEYS[1], PEERS[0]).open(Kind.APPLICATION, 9, counter, sealed)


def test_counters_go_up_by_one_and_never_repeat() -> None:
    sealer = Sealer(KEYS[0], PEERS[0])
    assert [sealer.seal(Kind.APPLICATION, 1, b"")[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    first, second = (Sealer(KEYS[0], PEERS[0]), sealer)
    assert first.seal(Kind.APPLICATION, 1, b"same")[1] != second.seal(Kind.APPLICATION, 1, b"same")[1]


def test_last_counter_is_reserved() -> None:
    sealer = Sealer(KEYS[0], PEERS[0])
    sealer._counter = COUNTER_MAX - 1
    assert sealer.seal(Kind.APPLICATION, 1, b"")[0] == COUNTER_MAX - 1
    for _ in range(2):
        with pytest.raises(CounterExhausted):
            sealer.seal(Kind.APPLICATION, 1, b"")
    assert sealer.seal(Kind.ERROR, 1, b"", is_last=True)[0] == COUNTER_MAX
    with pytest.raises(CounterExhausted):
        sealer.seal(Kind.ERROR, 1, b"", is_last=True)


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_key_of_wrong_length(length: int) -> None:
    for make in (Sealer, Opener):
        with pytest.raises(ValueError, match="32 bytes"):
            make(bytes(length), PEERS[0])


def test_keys_are_not_shown() -> None:
    keys = SessionKeys(b"secret-1", b"secret-2", b"id")
    assert "secret" not in repr(keys) + str(keys)


def test_plaintext_is_not_shown() -> None:
    secret = b"a secret"
    received = Received(Kind.APPLICATION, 0, 2, secret, is_fresh=True)
    outgoing = Outgoing(2, Kind.APPLICATION, secret, 0)
    events = (MessageReceived(0, 2, secret), Undelivered(0, 2, secret))
    assert "secret" not in repr((received, Cause(message=received), outgoing, events))


# --- replay window ---


class NaiveWindow:
    """The rule itself: fresh iff above the top, or less than ``size`` below it and not marked."""

    def __init__(self, size: int) -> None:
        self.size, self.top, self.marked = size, -1, set[int]()

    def mark(self, counter: int) -> bool:
        fresh = counter > self.top or (self.top - counter < self.size and counter not in self.marked)
        if fresh:
            self.marked.add(counter)
        self.top = max(self.top, counter)
        return fresh


@given(
    st.sampled_from([1, 2, 3, 64, 1024]),
    st.lists(st.integers(0, 12) | st.integers(0, 2100) | st.integers(0, COUNTER_MAX)),
)
def test_window_follows_the_rule(size: int, counters: list[int]) -> None:
    window, naive = ReplayWindow(size), NaiveWindow(size)
    assert [window.mark(counter) for counter in counters] == [naive.mark(counter) for counter in counters]


def test_window_edges() -> None:
    window = ReplayWindow(1024)
    assert window.mark(5000)
    assert window.mark(5000 - 1023)
    assert not window.mark(5000 - 1023)
    assert not window.mark(5000 - 1024)
    assert window.mark(5000 + 1023)
    assert not window.mark(5000)
    assert window.mark(5001)
    assert window.mark(COUNTER_MAX)
    assert window._marks == 1
    assert window.mark(COUNTER_MAX - 1023)
    assert not window.mark(0)
    assert window._marks.bit_length() == 1024
