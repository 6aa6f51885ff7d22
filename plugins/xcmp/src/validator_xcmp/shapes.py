# SPDX-License-Identifier: Apache-2.0
"""Conversion of decoded Avro records to plain tuples with all ranges checked, and back."""

from __future__ import annotations

from typing import Any, Final

from validator.plugin.protocol_api import LimitError, RecordType, check_u32, relay_parent
from validator_xcmp.limits import BITFIELD_BITS_MAX
from validator_xcmp.records import REQUESTS, Candidate, ChannelRequest

CANDIDATE: Final = "validator.xcmp.Candidate"
CHANNEL_REQUEST: Final = "validator.xcmp.ChannelRequest"
_NUMBERS: Final = {f"validator.xcmp.{kind.__name__}": number for number, kind in enumerate(REQUESTS)}
"""A call's number in `records.REQUESTS`, by the name of its record."""


def shape_candidate(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of `records.Candidate` from a decoded record. Raises `LimitError`."""
    para_id, watermark, bitfield = record["para_id"], record["watermark"], record["bitfield"]
    check_u32("para_id", para_id)
    parent = relay_parent("relay_parent_number", record["block"], record["relay_parent_number"])
    check_u32("watermark.block", watermark["block"])
    check_u32("watermark.para", watermark["para"])
    if len(bitfield) > BITFIELD_BITS_MAX:
        raise LimitError("bitfield", f"at most {BITFIELD_BITS_MAX} bits", len(bitfield))
    if bitfield.strip("01"):
        raise LimitError("bitfield", "characters 0 and 1", repr(bitfield[:64]))
    place = watermark["block"], watermark["para"]
    return para_id, parent, place, bitfield, record["message_root"], record["candidate_hash"]


def shape_request(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the request's number in `records.REQUESTS` and its fields. Raises `LimitError`."""
    name, call = record["request"]
    number = _NUMBERS[name]
    arguments = [call[field] for field in REQUESTS[number]._fields]
    for field, argument in zip(REQUESTS[number]._fields, arguments, strict=True):
        check_u32(f"request.{field}", argument)
    return number, *arguments


def candidate_record(lane: str, block: int, index: int, candidate: Candidate) -> dict[str, Any]:
    """Return the record of a candidate, the inverse of `shape_candidate`."""
    block_number, para = candidate.watermark
    return {
        "lane": lane,
        "block": block,
        "index": index,
        **candidate._asdict(),
        "watermark": {"block": block_number, "para": para},
    }


def request_record(lane: str, block: int, index: int, request: ChannelRequest) -> dict[str, Any]:
    """Return the record of a request, the inverse of `shape_request`."""
    name = f"validator.xcmp.{type(request).__name__}"
    return {"lane": lane, "block": block, "index": index, "request": (name, request._asdict())}


RECORDS: Final = (
    RecordType("candidates", CANDIDATE, shape_candidate),
    RecordType("channel-requests", CHANNEL_REQUEST, shape_request),
)
