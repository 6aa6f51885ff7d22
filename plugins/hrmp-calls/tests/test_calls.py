# SPDX-License-Identifier: Apache-2.0
"""Calls round-trip, and all other bytes are rejected."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_hrmp_calls import (
    AcceptOpenChannel,
    Call,
    CloseChannel,
    InitOpenChannel,
    decode_accept_open_channel,
    decode_close_channel,
    decode_init_open_channel,
    encode,
)

from validator.plugin.api import DecodeError

U32 = st.integers(0, 2**32 - 1)
BYTE = st.integers(0, 255)
CALLS: st.SearchStrategy[Call] = st.one_of(
    st.builds(InitOpenChannel, U32, U32, U32), st.builds(AcceptOpenChannel, U32), st.builds(CloseChannel, U32, U32)
)
DECODERS: dict[type, Callable[[bytes], Call]] = {
    InitOpenChannel: decode_init_open_channel,
    AcceptOpenChannel: decode_accept_open_channel,
    CloseChannel: decode_close_channel,
}
WRITTEN: list[tuple[Call, str]] = [
    # by hand, from the pallet's source
    (InitOpenChannel(2001, 8, 1024), "3c00 d1070000 08000000 00040000"),
    (AcceptOpenChannel(2000), "3c01 d0070000"),
    (CloseChannel(2000, 2001), "3c02 d0070000 d1070000"),
]


@pytest.mark.parametrize(("call", "text"), WRITTEN)
def test_call_encodes_as_on_relay_chain(call: Call, text: str) -> None:
    assert encode(call) == bytes.fromhex(text)
    assert DECODERS[type(call)](bytes.fromhex(text)) == call


@given(call=CALLS, pallet_index=BYTE)
def test_encoded_call_decodes_to_same_call(call: Call, pallet_index: int) -> None:
    payload = encode(call, pallet_index)
    assert payload[0] == pallet_index
    assert DECODERS[type(call)](payload) == call


@given(call=CALLS, size=st.integers(0, 40))
def test_call_of_wrong_size_is_rejected(call: Call, size: int) -> None:
    payload = encode(call)
    if size == len(payload):
        return
    with pytest.raises(DecodeError, match=f"expected {len(payload)} bytes, found {size}$"):
        DECODERS[type(call)](payload[:size].ljust(size, b"\x00"))


def test_encoding_rejects_values_out_of_range() -> None:
    with pytest.raises(OverflowError):
        encode(AcceptOpenChannel(2**32))
    with pytest.raises(OverflowError):
        encode(CloseChannel(0, -1))
    with pytest.raises(ValueError, match="256"):
        encode(AcceptOpenChannel(0), 256)
