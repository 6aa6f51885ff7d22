# SPDX-License-Identifier: Apache-2.0
"""The canonical encoding decodes what it encoded, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.core.scale import DecodeError, Encoding, Reader, Writer, decoding


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


def test_count_beyond_the_bytes_left_is_refused_before_a_value_is_read() -> None:
    def unread() -> None:
        pytest.fail("a value was read")

    with pytest.raises(DecodeError, match=r"^3 values expected at offset 0, 2 bytes left$"):
        Reader(b"\x0c\x01\x02").items(unread)
    reader = Reader(b"\x0c\x01\x02\x03")
    assert reader.items(reader.u8) == [1, 2, 3]
    reader.end()


def test_bytes_left_over_are_refused() -> None:
    reader = Reader(b"\x01\x02\x03")
    reader.u8()
    with pytest.raises(DecodeError, match=r"^2 bytes left over at offset 1$"):
        reader.end()


def test_value_is_upgraded_one_version_at_a_time() -> None:
    upgrades = {1: lambda data: b"\x02" + data[1:] + b"a", 2: lambda data: b"\x03" + data[1:] + b"b"}
    page = Encoding("page", 3, upgrades)
    reader = page.read(b"\x01.")
    assert (reader.data, reader.position) == (b"\x03.ab", 1)
    assert page.read(b"\x03.").data == b"\x03."
    assert bytes(page.begin().buffer) == b"\x03"
    for data, found in ((b"", None), (b"\x04.", 4), (b"\x00.", 0)):
        with pytest.raises(DecodeError, match=rf"^page version {found}, expected 3$"):
            page.read(data)


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, AssertionError])
def test_what_damaged_bytes_lead_to_is_an_error_of_decoding(error: type[Exception]) -> None:
    with pytest.raises(DecodeError, match=rf"^a page is damaged: {error.__name__}: ") as caught, decoding("a page"):
        raise error("x")
    assert isinstance(caught.value.__cause__, error)
    with pytest.raises(DecodeError, match=r"^as it was$"), decoding("a page"):
        raise DecodeError("as it was")
