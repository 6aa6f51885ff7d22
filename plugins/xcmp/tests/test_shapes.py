# SPDX-License-Identifier: Apache-2.0
"""Records round-trip to plain tuples, and every value out of range is rejected."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from fastavro import schemaless_reader, schemaless_writer
from hypothesis import given
from hypothesis import strategies as st
from validator_xcmp.limits import BITFIELD_BITS_MAX
from validator_xcmp.plugin import validator_protocols
from validator_xcmp.records import (
    CANDIDATE,
    CHANNEL_REQUEST,
    REQUEST_RECORDS,
    REQUESTS,
    Candidate,
    ChannelRequest,
    candidate,
    candidate_record,
    shape_candidate,
)

from validator.codec.schemas import schemas_of
from validator.plugin.protocol_api import LimitError

(DEFINITION,) = validator_protocols()
SCHEMAS = schemas_of(DEFINITION.schemas)

u32 = st.integers(0, 2**32 - 1)
hashes = st.none() | st.binary(min_size=32, max_size=32)
candidates = st.builds(Candidate, u32, u32, st.tuples(u32, u32), st.text("01", max_size=9), hashes, hashes)
requests = st.sampled_from(REQUESTS).flatmap(lambda kind: st.builds(kind, *[u32] * len(kind._fields)))


def through_avro(name: str, record: dict[str, Any]) -> dict[str, Any]:
    stream = BytesIO()
    parsed = SCHEMAS[name].parsed
    schemaless_writer(stream, parsed, record)
    stream.seek(0)
    read = schemaless_reader(stream, parsed, parsed, return_record_name=name == CHANNEL_REQUEST)
    assert isinstance(read, dict)
    return read


@given(made=candidates)
def test_candidate_round_trips(made: Candidate) -> None:
    record = candidate_record("chain", 7, 1, made)
    assert candidate(shape_candidate(through_avro(CANDIDATE, record))) == made


@given(made=requests)
def test_request_round_trips(made: ChannelRequest) -> None:
    record = REQUEST_RECORDS.record("chain", 7, 1, made)
    assert REQUEST_RECORDS.make(REQUEST_RECORDS.shape(through_avro(CHANNEL_REQUEST, record))) == made


GOOD = candidate_record("chain", 7, 1, Candidate(1, 6, (5, 4), "1", bytes(32)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"para_id": -1}, "para_id: expected 0 to 4294967295, found -1"),
        ({"relay_parent_number": 2**32}, "relay_parent_number"),
        ({"block": 0, "relay_parent_number": None}, "relay_parent_number: expected a block number"),
        ({"watermark": {"block": -1, "para": 0}}, "watermark.block"),
        ({"watermark": {"block": 0, "para": 2**32}}, "watermark.para"),
        ({"bitfield": "0" * (BITFIELD_BITS_MAX + 1)}, "bitfield: expected at most 65536 bits, found 65537"),
        ({"bitfield": "0 1"}, "bitfield: expected characters 0 and 1, found '0 1'"),
    ],
)
def test_candidate_out_of_range_is_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitError, match=message):
        shape_candidate({**GOOD, **change})


def test_limits_are_inclusive_and_relay_parent_defaults_to_previous_block() -> None:
    shaped = shape_candidate({**GOOD, "bitfield": "1" * BITFIELD_BITS_MAX, "relay_parent_number": None})
    assert shaped[1:4] == (6, (5, 4), "1" * BITFIELD_BITS_MAX)


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_request_out_of_range_is_rejected(kind: type[ChannelRequest]) -> None:
    for field in kind._fields:
        made = kind(**{name: -1 if name == field else 1 for name in kind._fields})
        with pytest.raises(LimitError, match=rf"request\.{field}: expected 0 to 4294967295, found -1"):
            REQUEST_RECORDS.shape(REQUEST_RECORDS.record("chain", 7, 1, made))


def test_schemas_are_of_both_records() -> None:
    assert sorted(SCHEMAS.current) == [CANDIDATE, CHANNEL_REQUEST]
