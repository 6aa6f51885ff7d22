# SPDX-License-Identifier: Apache-2.0
"""Decoded Avro records as plain tuples, every value's range checked."""

from __future__ import annotations

from typing import Any, Final

from validator.plugin.api import LimitError, RecordType, check_u32, relay_parent
from validator_xcmp.limits import BITFIELD_BITS_MAX

_REQUEST_FIELDS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "validator.xcmp.InitOpenChannel": (0, ("origin", "recipient")),
    "validator.xcmp.AcceptOpenChannel": (1, ("origin", "index")),
    "validator.xcmp.CloseChannel": (2, ("origin", "sender", "index")),
    "validator.xcmp.AcceptOpenChannelFrom": (3, ("origin", "sender")),
    "validator.xcmp.CloseChannelTo": (4, ("origin", "sender", "recipient")),
}
"""By the name of a branch: the request's number in `records.REQUESTS`, and its fields in order."""


def shape_candidate(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of `records.Candidate`. Raises `LimitError`."""
    para_id, watermark, bitfield = record["para_id"], record["watermark"], record["bitfield"]
    check_u32("para_id", para_id)
    parent = relay_parent("relay_parent_number", record["block"], record["relay_parent_number"])
    check_u32("watermark.block", watermark["block"])
    check_u32("watermark.para", watermark["para"])
    if len(bitfield) > BITFIELD_BITS_MAX:
        raise LimitError("bitfield", f"at most {BITFIELD_BITS_MAX} bits", len(bitfield))
    if bitfield.strip("01"):
        raise LimitError("bitfield", "characters 0 and 1", repr(bitfield[:64]))
    return (
        para_id,
        parent,
        (watermark["block"], watermark["para"]),
        bitfield,
        record["message_root"],
        record["candidate_hash"],
    )


def shape_request(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the request's number in `records.REQUESTS` and its fields. Raises `LimitError`."""
    name, call = record["request"]
    number, names = _REQUEST_FIELDS[name]
    for field in names:
        check_u32(f"request.{field}", call[field])
    return (number, *(call[field] for field in names))


RECORDS: Final = (
    RecordType("candidates", "validator.xcmp.Candidate", shape_candidate),
    RecordType("channel-requests", "validator.xcmp.ChannelRequest", shape_request),
)
