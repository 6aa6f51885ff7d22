# SPDX-License-Identifier: Apache-2.0
"""The input records of XCMP channels: candidates and channel requests, from decoded Avro records and back."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import BlockNumber, Hash, LimitError, ParaId, RecordType, check_u32, relay_parent
from validator.protocols.kit import AcceptOpenChannel, AcceptOpenChannelFrom, InitOpenChannel, RequestRecords
from validator_xcmp.limits import BITFIELD_BITS_MAX

# --- records --------------------------------------------------------------------------------------------------------------------------


Watermark: TypeAlias = tuple[BlockNumber, ParaId]
"""``(block, para)``: a recipient has processed all messages sent before ``block``, and those of ``block`` from senders up to ``para``."""


class Candidate(NamedTuple):
    """The part of a backed candidate that concerns channels.

    ``bitfield`` has a ``1`` for each column of the sender's row over which the candidate sends, and ``0`` for others, column 0 first.
    Missing bits count as 0. ``message_root`` is the receipt's ``sender_message_queue_merkle_root``. Source: xcmp_channels.txt "Enactment".
    """

    para_id: ParaId
    relay_parent_number: BlockNumber
    watermark: Watermark
    bitfield: str = ""
    message_root: Hash | None = None
    candidate_hash: bytes | None = None


class CloseChannel(NamedTuple):
    """``close_channel(sender, i)`` called by ``origin``; ``column_index`` is the position in the row of ``sender``."""

    origin: ParaId
    sender: ParaId
    column_index: int


class CloseChannelTo(NamedTuple):
    """``close_channel`` of the channel from ``sender`` to ``recipient``, whatever its current column."""

    origin: ParaId
    sender: ParaId
    recipient: ParaId


ChannelRequest: TypeAlias = InitOpenChannel | AcceptOpenChannel | CloseChannel | AcceptOpenChannelFrom | CloseChannelTo

REQUESTS: Final[tuple[type[ChannelRequest], ...]] = (
    InitOpenChannel,
    AcceptOpenChannel,
    CloseChannel,
    AcceptOpenChannelFrom,
    CloseChannelTo,
)
"""Classes by the number that a request's tuple of fields starts with."""

REQUEST_RECORDS: Final = RequestRecords("validator.xcmp", REQUESTS, check_u32)


def candidate(fields: tuple[Any, ...]) -> Candidate:
    """Build a candidate from its six fields, in the order of `Candidate`."""
    return Candidate._make(fields)


# --- shapes ---------------------------------------------------------------------------------------------------------------------------
# Conversion of decoded Avro records to plain tuples with all ranges checked, and back.


CANDIDATE: Final = "validator.xcmp.Candidate"
CHANNEL_REQUEST: Final = "validator.xcmp.ChannelRequest"


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


RECORDS: Final = (
    RecordType("candidates", CANDIDATE, shape_candidate),
    RecordType("channel-requests", CHANNEL_REQUEST, REQUEST_RECORDS.shape),
)
