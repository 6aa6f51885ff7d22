# SPDX-License-Identifier: Apache-2.0
"""Transfers and sovereign accounts round-trip, and all other bytes are rejected."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from validator_balances import (
    TRANSFER_KEEP_ALIVE,
    Transfer,
    decode_transfer,
    encode_transfer,
    para_of,
    sovereign_account,
)

from validator.plugin.api import DecodeError

U32 = st.integers(0, 2**32 - 1)
U128 = st.one_of(st.integers(0, 2**128 - 1), st.integers(0, 128).map(lambda bits: 2**bits - 1))
BYTE = st.integers(0, 255)
DEST = b"\x00" + b"para\xd1\x07\x00\x00" + bytes(24)


@pytest.mark.parametrize(
    ("value", "compact"),
    [  # by hand, from the format of SCALE
        (0, "00"),
        (63, "fc"),
        (64, "0101"),
        (16_383, "fdff"),
        (16_384, "02000100"),
        (2**30 - 1, "feffffff"),
        (2**30, "0300000040"),
        (10_000_000_000, "0700e40b5402"),
        (2**128 - 1, "33" + "ff" * 16),
    ],
)
def test_transfer_encodes_as_on_relay_chain(value: int, compact: str) -> None:
    payload = b"\x05\x00" + DEST + bytes.fromhex(compact)
    assert encode_transfer(2001, value) == payload
    assert decode_transfer(payload) == Transfer(2001, value)


@given(dest=U32, value=U128, call_index=BYTE, pallet_index=BYTE)
def test_encoded_transfer_decodes_to_same_call(dest: int, value: int, call_index: int, pallet_index: int) -> None:
    payload = encode_transfer(dest, value, call_index=call_index, pallet_index=pallet_index)
    assert payload[:2] == bytes((pallet_index, call_index))
    assert decode_transfer(payload) == Transfer(dest, value)


@given(dest=U32, value=U128, data=st.data())
def test_truncated_transfer_is_rejected(dest: int, value: int, data: st.DataObject) -> None:
    payload = encode_transfer(dest, value)
    cut = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(DecodeError, match="bytes expected at offset"):
        decode_transfer(payload[:cut])


@given(dest=U32, value=U128, more=st.binary(min_size=1, max_size=4))
def test_transfer_with_trailing_bytes_is_rejected(dest: int, value: int, more: bytes) -> None:
    with pytest.raises(DecodeError, match=f"^{len(more)} bytes left over"):
        decode_transfer(encode_transfer(dest, value) + more)


@given(payload=st.binary(max_size=60).map(lambda rest: b"\x05\x00" + rest))
def test_random_bytes_decode_or_are_rejected(payload: bytes) -> None:
    try:
        call = decode_transfer(payload)
    except DecodeError:
        return
    assert encode_transfer(call.dest, call.value) == payload


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (b"\x01\x04\x00", "dest: expected an account id (MultiAddress variant 0), found variant 1"),
        (b"\x03" + DEST[1:] + b"\x00", "dest: expected an account id (MultiAddress variant 0), found variant 3"),
        (b"\x00" + bytes(32) + b"\x00", f"dest: expected the sovereign account of a para, found {'00' * 32}"),
        (
            b"\x00sibl" + DEST[5:] + b"\x00",
            f"dest: expected the sovereign account of a para, found {(b'sibl' + DEST[5:]).hex()}",
        ),
        (
            DEST[:-1] + b"\x01\x00",
            f"dest: expected the sovereign account of a para, found {(DEST[1:-1] + bytes((1,))).hex()}",
        ),
        (DEST + b"\x01\x00", "compact integer at offset 35 is not in its shortest form"),
        (
            DEST + b"\x37" + bytes(16) + b"\x01",
            "value: expected 0 to 2**128 - 1, found a number of 129 bits",
        ),
    ],
)
def test_malformed_transfer_is_rejected_with_reason(rest: bytes, text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decode_transfer(b"\x05\x00" + rest)
    assert str(refused.value) == text


@given(para=U32)
def test_sovereign_account_maps_back_to_para(para: int) -> None:
    account = sovereign_account(para)
    assert len(account) == 32
    assert para_of(account) == para


@given(account=st.one_of(st.binary(max_size=40), st.binary(max_size=28).map(lambda rest: b"para" + rest)))
def test_account_belongs_to_para_only_if_it_encodes_back(account: bytes) -> None:
    para = para_of(account)
    if para is None:
        assert not (len(account) == 32 and account[:4] == b"para" and not any(account[8:]))
    else:
        assert sovereign_account(para) == account


def test_encoding_rejects_values_out_of_range() -> None:
    with pytest.raises(OverflowError):
        encode_transfer(2**32, 0)
    for value in (-1, 2**128):
        with pytest.raises(ValueError, match=r"value: expected 0 to 2\*\*128 - 1"):
            encode_transfer(0, value)
    with pytest.raises(ValueError, match="256"):
        encode_transfer(0, 0, pallet_index=256)
    with pytest.raises(ValueError, match="256"):
        encode_transfer(0, 0, call_index=TRANSFER_KEEP_ALIVE + 253)
