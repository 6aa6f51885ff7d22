# SPDX-License-Identifier: Apache-2.0
"""The canonical encoding decodes what it encoded, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.core.scale import DecodeError, Reader, Writer


@given(
    st.integers(0, 2**8 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**128 - 1),
    st.integers(0, 2**536 - 1),
    st.binary(max_size=100),
    st.none() | st.integers(0, 2**32 - 1),
)
def test_values_round_trip(
    u8: int, u32: int, u64: int, u128: int, number: int, data: bytes, option: int | None
) -> None:
    out = Writer()
    out.u8(u8)
    out.u32(u32)
    out.u64(u64)
    out.u128(u128)
    out.compact(number)
    out.bytes(data)
    out.option(option, out.u32)
    out.hash(bytes(32))
    reader = Reader(bytes(out.buffer))
    assert (reader.u8(), reader.u32(), reader.u64(), reader.u128()) == (u8, u32, u64, u128)
    assert (reader.compact(), reader.bytes(), reader.option(reader.u32)) == (number, data, option)
    assert reader.hash() == bytes(32)
    reader.end()


@pytest.mark.parametrize(
    ("data", "take"),
    [
        ("", Reader.u8),
        ("010203", Reader.u32),
        ("01" * 7, Reader.u64),
        ("01" * 15, Reader.u128),
        ("01" * 31, Reader.hash),
        ("", Reader.compact),
        ("01", Reader.compact),
        ("0200", Reader.compact),
        ("03000000", Reader.compact),
        ("08ff", Reader.bytes),
        ("", Reader.boolean),
        ("02", Reader.boolean),
        ("02", lambda reader: reader.option(reader.u8)),
        ("01", lambda reader: reader.option(reader.u8)),
        ("0801", lambda reader: reader.items(reader.u8)),
        ("ff" * 68, lambda reader: reader.items(reader.u8)),
        ("03", lambda reader: reader.choice(("a", "b", "c"))),
        ("00", Reader.end),
    ],
)
def test_invalid_encoding_is_refused(data: str, take: Callable[[Reader], Any]) -> None:
    with pytest.raises(DecodeError):
        take(Reader(bytes.fromhex(data)))


@pytest.mark.parametrize("longer", ["0100", "fd00", "02000000", "feff0000", "03ffffff3f", "070000004000"])
def test_compact_longer_than_needed_is_refused(longer: str) -> None:
    """Each number is written with more bytes than it needs."""
    with pytest.raises(DecodeError, match="shortest"):
        Reader(bytes.fromhex(longer)).compact()


@given(st.binary(max_size=12))
def test_decoded_compact_encodes_to_same_bytes(data: bytes) -> None:
    reader = Reader(data)
    try:
        value = reader.compact()
    except DecodeError:
        return
    out = Writer()
    out.compact(value)
    assert bytes(out.buffer) == data[: reader.position]


def test_choice_and_boolean_decode_by_index() -> None:
    reader = Reader(bytes((0, 1, 1, 0)))
    assert (reader.boolean(), reader.boolean()) == (False, True)
    assert (reader.choice("ab"), reader.choice("ab")) == ("b", "a")
