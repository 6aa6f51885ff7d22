# SPDX-License-Identifier: Apache-2.0
"""The input records of XCMP networking: candidates, channel requests and reports of bodies, from decoded Avro records and back."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from validator_xcmp import records as xcmp
from validator_xcmp.limits import BITFIELD_BITS_MAX
from validator_xcmp.records import Watermark

from validator.plugin.protocol_api import (
    BlockNumber,
    Hash,
    LimitError,
    ParaId,
    RecordType,
    check_count,
    check_u32,
    relay_parent,
)
from validator.protocols.kit import RequestRecords
from validator_xcmp_network.limits import ACKS_MAX, OUTBOX_MESSAGES_MAX

# --- records --------------------------------------------------------------------------------------------------------------------------


MessageName: TypeAlias = tuple[BlockNumber, ParaId]
"""``(block, sender)``: names a logical message to a recipient, since a para has one candidate per block (N-I11)."""


class OutboxMessage(NamedTuple):
    """A logical message of a candidate: all its payloads to one recipient. ``size`` is the sum of their lengths in bytes."""

    recipient: ParaId
    root: Hash
    size: int


class Candidate(NamedTuple):
    """The part of a backed candidate that concerns logical messages.

    ``acks`` names messages that the para acknowledges. Watermark, bitfield and message root belong to XCMP channels; a chain with fixed
    channels ignores them. A ``watermark`` of None stays where it is. Source: xcmp_rules 1.4.
    """

    para_id: ParaId
    relay_parent_number: BlockNumber
    outbox: tuple[OutboxMessage, ...] = ()
    acks: tuple[MessageName, ...] = ()
    watermark: Watermark | None = None
    bitfield: str = ""
    message_root: Hash | None = None
    candidate_hash: bytes | None = None


class ReportBody(NamedTuple):
    """Somebody holds a body with this root and size: that of the message from ``sender`` to ``recipient`` sent in block ``sent_at``."""

    recipient: ParaId
    sender: ParaId
    sent_at: BlockNumber
    root: Hash
    size: int


ChannelRequest: TypeAlias = xcmp.ChannelRequest | ReportBody

REQUESTS: Final[tuple[type[ChannelRequest], ...]] = (*xcmp.REQUESTS, ReportBody)
"""Classes by the number that a request's tuple of fields starts with."""

REQUEST_RECORDS: Final = RequestRecords("validator.xcmp_network", REQUESTS, check_u32, unchecked=("root",))
"""A root is bytes of a fixed size."""


def candidate(fields: tuple[Any, ...]) -> Candidate:
    """Build a candidate from its fields, in the order of `Candidate`."""
    para_id, relay_parent_number, outbox, *rest = fields
    return Candidate(para_id, relay_parent_number, tuple(map(OutboxMessage._make, outbox)), *rest)


# --- shapes ---------------------------------------------------------------------------------------------------------------------------
# Conversion of decoded Avro records to plain tuples with all ranges checked, and back.


CANDIDATE: Final = "validator.xcmp_network.Candidate"
CHANNEL_REQUEST: Final = "validator.xcmp_network.ChannelRequest"


def shape_candidate(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return the fields of `records.Candidate` from a decoded record. Raises `LimitError`."""
    para_id, watermark, bitfield = record["para_id"], record["watermark"], record["bitfield"]
    check_u32("para_id", para_id)
    parent = relay_parent("relay_parent_number", record["block"], record["relay_parent_number"])
    outbox = _outbox(record["outbox"])
    acks = _acks(record["acks"])
    place = None
    if watermark is not None:
        check_u32("watermark.block", watermark["block"])
        check_u32("watermark.para", watermark["para"])
        place = watermark["block"], watermark["para"]
    if len(bitfield) > BITFIELD_BITS_MAX:
        raise LimitError("bitfield", f"at most {BITFIELD_BITS_MAX} bits", len(bitfield))
    if bitfield.strip("01"):
        raise LimitError("bitfield", "characters 0 and 1", repr(bitfield[:64]))
    return para_id, parent, outbox, acks, place, bitfield, record["message_root"], record["candidate_hash"]


def _outbox(items: list[dict[str, Any]]) -> tuple[tuple[Any, ...], ...]:
    check_count("outbox", len(items), OUTBOX_MESSAGES_MAX)
    for at, item in enumerate(items):
        check_u32(f"outbox[{at}].recipient", item["recipient"])
        check_u32(f"outbox[{at}].size", item["size"])
    return tuple((item["recipient"], item["root"], item["size"]) for item in items)


def _acks(items: list[dict[str, Any]]) -> tuple[tuple[int, int], ...]:
    check_count("acks", len(items), ACKS_MAX)
    for at, item in enumerate(items):
        check_u32(f"acks[{at}].block", item["block"])
        check_u32(f"acks[{at}].sender", item["sender"])
    return tuple((item["block"], item["sender"]) for item in items)


def candidate_record(lane: str, block: int, index: int, candidate: Candidate) -> dict[str, Any]:
    """Return the record of a candidate, the inverse of `shape_candidate`."""
    watermark = candidate.watermark
    return {
        "lane": lane,
        "block": block,
        "index": index,
        **candidate._asdict(),
        "outbox": [message._asdict() for message in candidate.outbox],
        "acks": [{"block": sent_at, "sender": sender} for sent_at, sender in candidate.acks],
        "watermark": None if watermark is None else {"block": watermark[0], "para": watermark[1]},
    }


RECORDS: Final = (
    RecordType("candidates", CANDIDATE, shape_candidate),
    RecordType("channel-requests", CHANNEL_REQUEST, REQUEST_RECORDS.shape),
)
