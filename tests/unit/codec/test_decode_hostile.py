# SPDX-License-Identifier: Apache-2.0
"""Decoding of wrong lengths, truncated records and junk; packing of many records."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs import decoded, encoded
from tests.unit.codec.examples import BLOCK, NAMES, SOURCE, dead, read, value_of
from tests.unit.codec.records import INPUTS
from validator.codec.encode import write
from validator.codec.inflight import pack, unpack
from validator.codec.schemas import schemas
from validator.codec.strict import ITEMS_MAX
from validator.core import limits
from validator.core.inputs import DeadLetter, DeadReason, Input, RecordKind, Source
from validator.topics import TOPIC_OF_KIND

# --- hostile bytes ---

CANDIDATE_START = value_of(RecordKind.CANDIDATE, upward_messages=[], horizontal_messages=[], candidate_hash=None)[:-4]
"""A candidate cut before its upward messages: their count, the processed count, the horizontal messages and the hash are missing."""
HUGE = b"\x80\x80\x80\x80\x80\x80\x01"


def test_candidate_start_completed_with_empty_fields_is_valid() -> None:
    read(RecordKind.CANDIDATE, CANDIDATE_START + b"\x00\x00\x00\x00")


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param(HUGE, id="2**41 upward messages"),
        pytest.param(HUGE + b"\x00" * 20, id="2**41 upward messages, some there"),
        pytest.param(b"\x02" + HUGE, id="an upward message of 2**41 bytes"),
        pytest.param(b"\x02\x01\x00\x00\x00\x00", id="an upward message of -1 bytes"),
        pytest.param(b"\x02" + b"\xff" * 9 + b"\x01", id="an upward message of -2**63 bytes"),
        pytest.param(b"\x80" * 60, id="a number that does not end"),
        pytest.param(b"\xff" * 9 + b"\x01" + b"\x00" * 10, id="-2**63 upward messages"),
        pytest.param(b"\x00\x00\x00\x06", id="a branch that the union lacks"),
        pytest.param(b"\x00\x00" + HUGE, id="2**41 horizontal messages"),
    ],
)
def test_wrong_length_is_undecodable(rest: bytes) -> None:
    assert dead(RecordKind.CANDIDATE, CANDIDATE_START + rest).reason is DeadReason.UNDECODABLE


def test_lane_that_is_not_utf_8_is_undecodable() -> None:
    value = value_of(RecordKind.CANDIDATE).replace(b"polkadot", b"polk\xffdot")
    assert dead(RecordKind.CANDIDATE, value).reason is DeadReason.UNDECODABLE


def test_large_record_of_tiny_items_is_refused_before_it_is_built() -> None:
    count = ITEMS_MAX + 1
    pairs = {**BLOCK, "included": [{"para_id": 0, "backed_at": None}] * count}
    value = write(schemas()["validator.Block"], pairs)
    assert len(value) < limits.RECORD_BYTES_MAX
    tracemalloc.start()
    letter = dead(RecordKind.BLOCK, value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * len(value)  # each item would take hundreds of bytes
    assert letter.reason is DeadReason.LIMIT
    assert letter.detail == f"validator.Block.included: expected at most {ITEMS_MAX} items at byte 25, found {count}"


@pytest.mark.parametrize("cut", [1, 40_000, 70_000])
def test_truncated_large_record_is_undecodable(cut: int) -> None:
    value = value_of(RecordKind.CANDIDATE, upward_messages=[bytes(50_000), bytes(50_000)])
    read(RecordKind.CANDIDATE, value)
    assert dead(RecordKind.CANDIDATE, value[:-cut]).reason is DeadReason.UNDECODABLE


@given(kind=st.sampled_from(RecordKind), junk=st.binary(max_size=200), key=st.none() | st.binary(max_size=9))
def test_junk_after_valid_header_gives_record_or_dead_letter(kind: RecordKind, junk: bytes, key: bytes | None) -> None:
    value = schemas()[NAMES[kind]].header + junk
    result = decoded(kind, value, SOURCE, key)
    assert (result.raw if isinstance(result, DeadLetter) else result[1].raw) == value


@given(kind=st.sampled_from(RecordKind), value=st.binary(max_size=60))
def test_junk_becomes_dead_letter(kind: RecordKind, value: bytes) -> None:
    dead(kind, value)


@given(data=st.data(), kind=st.sampled_from(RecordKind))
def test_record_with_changed_byte_gives_record_or_dead_letter(data: st.DataObject, kind: RecordKind) -> None:
    value = bytearray(encoded(kind, data.draw(INPUTS[kind])))
    position = data.draw(st.integers(0, len(value) - 1))
    value[position] ^= data.draw(st.integers(1, 255))
    result = decoded(kind, bytes(value), SOURCE)
    items: list[Input | DeadLetter] = [result if isinstance(result, DeadLetter) else result[1]]
    assert unpack(pack(items)) == items


# --- chunks ---


@given(
    st.lists(st.sampled_from(RecordKind).flatmap(lambda kind: INPUTS[kind].map(lambda each: (kind, each))), max_size=5)
)
def test_unpack_returns_packed_items(chosen: list[tuple[RecordKind, dict[str, Any]]]) -> None:
    items: list[Input | DeadLetter] = []
    for offset, (kind, record) in enumerate(chosen):
        result = decoded(kind, encoded(kind, record), Source(TOPIC_OF_KIND[kind], 0, offset))
        assert not isinstance(result, DeadLetter)
        items += [result[1], dead(kind, b"junk")]
    out = unpack(pack(items))
    assert out == items
    assert [type(item) for item in out] == [type(item) for item in items]
    assert all(isinstance(item.source, Source) for item in out)
    assert all(
        isinstance(item.kind if isinstance(item, Input) else item.reason, RecordKind | DeadReason) for item in out
    )
