# SPDX-License-Identifier: Apache-2.0
"""Conversion of decoded Avro records to plain tuples with all ranges checked, and back.

Between the decode stage and a lane, a record consists of ints, bytes, None and tuples of these. Limits are checked in schema order.
"""

from __future__ import annotations

from typing import Any, Final

from validator.plugin.protocol_api import (
    MESSAGES_PER_CANDIDATE_MAX,
    RecordType,
    check_count,
    check_payload,
    check_u32,
    message_hash,
    relay_parent,
)
from validator_early_hrmp.records import REQUESTS, Candidate, ChannelRequest

CANDIDATE: Final = "validator.early_hrmp.Candidate"
CHANNEL_REQUEST: Final = "validator.early_hrmp.ChannelRequest"

_VARIANTS: Final = {f"validator.early_hrmp.{kind.__name__}": at for at, kind in enumerate(REQUESTS)}
"""A request's variant by the name of its record."""


def shape_candidate(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of `records.Candidate` from a decoded record, including payload hashes. Raises `LimitError`."""
    para_id = record["para_id"]
    check_u32("para_id", para_id)
    parent = relay_parent("relay_parent_number", record["block"], record["relay_parent_number"])
    watermark, messages = record["dmq_watermark"], record["hrmp_messages"]
    check_u32("dmq_watermark", watermark)
    check_count("hrmp_messages", len(messages), MESSAGES_PER_CANDIDATE_MAX)
    shaped = []
    for idx, message in enumerate(messages):
        sender, recipient, payload = message["sender"], message["recipient"], message["payload"]
        check_u32(f"hrmp_messages[{idx}].sender", sender)
        check_u32(f"hrmp_messages[{idx}].recipient", recipient)
        check_payload(f"hrmp_messages[{idx}].payload", payload)
        shaped.append((sender, recipient, payload, message_hash(payload)))
    return para_id, parent, watermark, tuple(shaped), record["candidate_hash"]


def shape_request(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return ``(variant, *arguments)`` of a decoded record, the input of `records.make_request`. Raises `LimitError`."""
    name, call = record["request"]
    variant = _VARIANTS[name]
    arguments = [call[field] for field in REQUESTS[variant]._fields]
    for field, argument in zip(REQUESTS[variant]._fields, arguments, strict=True):
        check_u32(f"request.{field}", argument)
    return variant, *arguments


def candidate_record(lane: str, block: int, index: int, candidate: Candidate) -> dict[str, Any]:
    """Return the record of a candidate, the inverse of `shape_candidate`."""
    return {
        "lane": lane,
        "block": block,
        "index": index,
        "para_id": candidate.para_id,
        "relay_parent_number": candidate.relay_parent_number,
        "dmq_watermark": candidate.dmq_watermark,
        "hrmp_messages": [
            {"sender": message.sender, "recipient": message.recipient, "payload": message.payload}
            for message in candidate.hrmp_messages
        ],
        "candidate_hash": candidate.candidate_hash,
    }


def request_record(lane: str, block: int, index: int, request: ChannelRequest) -> dict[str, Any]:
    """Return the record of a request, the inverse of `shape_request`."""
    name = f"validator.early_hrmp.{type(request).__name__}"
    return {"lane": lane, "block": block, "index": index, "request": (name, request._asdict())}


RECORDS: Final = (
    RecordType("candidates", CANDIDATE, shape_candidate),
    RecordType("channel-requests", CHANNEL_REQUEST, shape_request),
)
