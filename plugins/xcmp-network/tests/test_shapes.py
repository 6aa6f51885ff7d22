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
from validator_xcmp_network.limits import ACKS_MAX, OUTBOX_MESSAGES_MAX
from validator_xcmp_network.plugin import validator_protocols
from validator_xcmp_network.records import (
    CANDIDATE,
    CHANNEL_REQUEST,
    REQUEST_RECORDS,
    REQUESTS,
    Candidate,
    ChannelRequest,
    OutboxMessage,
    ReportBody,
    candidate,
    candidate_record,
    shape_candidate,
)

from validator.codec.schemas import schemas_of
from validator.plugin.protocol_api import LimitError

(DEFINITION,) = validator_protocols()
SCHEMAS = schemas_of(DEFINITION.schemas)

u32 = st.integers(0, 2**32 - 1)
roots = st.binary(min_size=32, max_size=32)
candidates = st.builds(
    Candidate,
    u32,
    u32,
    st.lists(st.builds(OutboxMessage, u32, roots, u32), max_size=3).map(tuple),
    st.lists(st.tuples(u32, u32), max_size=3).map(tuple),
    st.none() | st.tuples(u32, u32),
    st.text("01", max_size=9),
    st.none() | roots,
    st.none() | roots,
)
requests = st.sampled_from(REQUESTS[:-1]).flatmap(lambda kind: st.builds(kind, *[u32] * len(kind._fields)))
reports = st.builds(ReportBody, u32, u32, u32, roots, u32)


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


@given(made=requests | reports)
def test_request_round_trips(made: ChannelRequest) -> None:
    record = REQUEST_RECORDS.record("chain", 7, 1, made)
    assert REQUEST_RECORDS.make(REQUEST_RECORDS.shape(through_avro(CHANNEL_REQUEST, record))) == made


MESSAGE = {"recipient": 2, "root": bytes(32), "size": 1}
ACK = {"block": 5, "sender": 3}
GOOD = candidate_record("chain", 7, 1, Candidate(1, 6, watermark=(5, 4)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"para_id": -1}, "para_id: expected 0 to 4294967295, found -1"),
        ({"relay_parent_number": 2**32}, "relay_parent_number"),
        ({"outbox": [MESSAGE, MESSAGE | {"recipient": 2**32}]}, r"outbox\[1\].recipient: expected 0 to 4294967295"),
        ({"outbox": [MESSAGE | {"size": -1}]}, r"outbox\[0\].size"),
        ({"outbox": [MESSAGE] * (OUTBOX_MESSAGES_MAX + 1)}, "outbox: expected 0 to 4096, found 4097"),
        ({"acks": [ACK | {"block": -1}]}, r"acks\[0\].block"),
        ({"acks": [ACK, ACK | {"sender": 2**32}]}, r"acks\[1\].sender"),
        ({"acks": [ACK] * (ACKS_MAX + 1)}, "acks: expected 0 to 65536, found 65537"),
        ({"watermark": {"block": -1, "para": 0}}, "watermark.block"),
        ({"watermark": {"block": 0, "para": 2**32}}, "watermark.para"),
        ({"bitfield": "0" * (BITFIELD_BITS_MAX + 1)}, "bitfield: expected at most 65536 bits, found 65537"),
        ({"bitfield": "0 1"}, "bitfield: expected characters 0 and 1, found '0 1'"),
    ],
)
def test_candidate_out_of_range_is_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitError, match=message):
        shape_candidate({**GOOD, **change})


def test_limits_are_inclusive_and_absent_parts_have_defaults() -> None:
    full = {"outbox": [MESSAGE] * OUTBOX_MESSAGES_MAX, "acks": [ACK] * ACKS_MAX}
    shaped = candidate(shape_candidate({**GOOD, **full, "watermark": None, "relay_parent_number": None}))
    assert (len(shaped.outbox), len(shaped.acks)) == (OUTBOX_MESSAGES_MAX, ACKS_MAX)
    assert (shaped.watermark, shaped.relay_parent_number) == (None, 6)


@pytest.mark.parametrize("field", ["recipient", "sender", "sent_at", "size"])
def test_report_out_of_range_is_rejected(field: str) -> None:
    record = REQUEST_RECORDS.record("chain", 7, 1, ReportBody(1, 2, 3, bytes(32), 4))
    name, call = record["request"]
    with pytest.raises(LimitError, match=f"request.{field}: expected 0 to 4294967295"):
        REQUEST_RECORDS.shape({**record, "request": (name, call | {field: 2**32})})
