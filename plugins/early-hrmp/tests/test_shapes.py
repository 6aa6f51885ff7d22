# SPDX-License-Identifier: Apache-2.0
"""Avro records round-trip to the protocol's types; all ranges are checked in schema order."""

from __future__ import annotations

from typing import Any

import pytest
from early_hrmp_world import chain
from validator_early_hrmp.plugin import validator_manifest, validator_protocols
from validator_early_hrmp.records import (
    CANDIDATE,
    CHANNEL_REQUEST,
    REQUEST_RECORDS,
    Candidate,
    CloseChannel,
    HrmpMessage,
    candidate_record,
    shape_candidate,
)

from validator.codec.schemas import schemas_of
from validator.plugin.protocol_api import (
    MESSAGES_PER_CANDIDATE_MAX,
    PAYLOAD_BYTES_MAX,
    U32_MAX,
    LimitError,
    message_hash,
)
from validator.protocols.kit import AcceptOpenChannel, AcceptOpenChannelFrom, InitOpenChannel

CANDIDATES = [
    Candidate(1, 2, 3),
    Candidate(U32_MAX, 0, U32_MAX, (), bytes(32)),
    Candidate(1, 2, 2, (HrmpMessage(1, 2, b""), HrmpMessage(9, 3, b"abc")), b"\1" * 32),
]
REQUESTS = [InitOpenChannel(1, 2), AcceptOpenChannel(2, 0), AcceptOpenChannelFrom(2, 1), CloseChannel(1, 1, 2)]


@pytest.mark.parametrize("candidate", CANDIDATES)
def test_candidate_round_trips_with_hashes(candidate: Candidate) -> None:
    fields = shape_candidate(candidate_record("lane", 5, 0, candidate))
    made = chain().rule_set.candidate(fields)
    messages = tuple(each._replace(payload_hash=message_hash(each.payload)) for each in candidate.hrmp_messages)
    assert made == candidate._replace(hrmp_messages=messages)
    assert type(made) is Candidate
    assert all(type(each) is HrmpMessage for each in made.hrmp_messages)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_request_round_trips(request_: Any) -> None:
    made = chain().rule_set.request(REQUEST_RECORDS.shape(REQUEST_RECORDS.record("lane", 5, 0, request_)))
    assert made == request_
    assert type(made) is type(request_)


def test_relay_parent_defaults_to_previous_block() -> None:
    record = candidate_record("lane", 5, 0, CANDIDATES[0]) | {"relay_parent_number": None}
    assert shape_candidate(record)[1] == 4
    with pytest.raises(
        LimitError, match="relay_parent_number: expected a block number, since block 0 has none before it"
    ):
        shape_candidate(record | {"block": 0})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"para_id": -1, "dmq_watermark": -1}, "para_id: expected 0 to 4294967295, found -1"),
        ({"relay_parent_number": U32_MAX + 1, "dmq_watermark": -1}, "relay_parent_number: expected 0 to 4294967295"),
        ({"dmq_watermark": U32_MAX + 1}, "dmq_watermark: expected 0 to 4294967295, found 4294967296"),
        (
            {"hrmp_messages": [{"sender": 1, "recipient": 2, "payload": b""}] * (MESSAGES_PER_CANDIDATE_MAX + 1)},
            "hrmp_messages: expected 0 to 4096, found 4097",
        ),
        (
            {"hrmp_messages": [{"sender": -1, "recipient": -1, "payload": b""}]},
            r"hrmp_messages\[0\].sender: expected 0 to",
        ),
        (
            {"hrmp_messages": [{"sender": 1, "recipient": -1, "payload": b""}]},
            r"hrmp_messages\[0\].recipient: expected",
        ),
        (
            {"hrmp_messages": [{"sender": 1, "recipient": 1, "payload": bytes(PAYLOAD_BYTES_MAX + 1)}]},
            r"hrmp_messages\[0\].payload: expected at most 4194304 bytes, found 4194305 bytes",
        ),
    ],
)
def test_candidate_out_of_range_is_rejected(change: dict[str, Any], message: str) -> None:
    with pytest.raises(LimitError, match=message):
        shape_candidate(candidate_record("lane", 5, 0, CANDIDATES[0]) | change)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_request_out_of_range_is_rejected(request_: Any) -> None:
    for field in request_._fields:
        for value in (-1, U32_MAX + 1):
            record = REQUEST_RECORDS.record("lane", 5, 0, request_._replace(**{field: value}))
            with pytest.raises(LimitError, match=rf"request\.{field}: expected 0 to 4294967295, found {value}"):
                REQUEST_RECORDS.shape(record)


def test_definition_is_complete() -> None:
    (definition,) = validator_protocols()
    assert definition.name == validator_manifest().name == "early-hrmp"
    schemas = schemas_of(definition.schemas)
    assert sorted(schemas.current) == [CANDIDATE, CHANNEL_REQUEST] == sorted(each.schema for each in definition.records)
    assert definition.traces.suite is not None
    assert list(definition.traces.suite.glob("*.json"))
