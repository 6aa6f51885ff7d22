# SPDX-License-Identifier: Apache-2.0
"""The input records of early HRMP: candidates and channel requests, from decoded Avro records and back."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import (
    MESSAGES_PER_CANDIDATE_MAX,
    BlockNumber,
    Hash,
    ParaId,
    RecordType,
    check_count,
    check_payload,
    check_u32,
    message_hash,
    relay_parent,
)
from validator.protocols.kit import AcceptOpenChannel, AcceptOpenChannelFrom, InitOpenChannel, RequestRecords

# --- records --------------------------------------------------------------------------------------------------------------------------


class HrmpMessage(NamedTuple):
    """One message of a candidate.

    ``payload_hash`` is the payload's `message_hash` if the decode stage has already computed it, else None. It is derived, never an input.
    Source: early_hrmp.txt ``HRMP_Message``.
    """

    sender: ParaId
    recipient: ParaId
    payload: bytes
    payload_hash: Hash | None = None


class Candidate(NamedTuple):
    """The part of a backed candidate that concerns messages. Source: early_hrmp.txt ``Candidate``."""

    para_id: ParaId
    relay_parent_number: BlockNumber
    dmq_watermark: BlockNumber
    hrmp_messages: tuple[HrmpMessage, ...] = ()
    candidate_hash: bytes | None = None


class CloseChannel(NamedTuple):
    """``close_channel(sender, recipient)`` called by ``origin``."""

    origin: ParaId
    sender: ParaId
    recipient: ParaId


ChannelRequest: TypeAlias = InitOpenChannel | AcceptOpenChannel | AcceptOpenChannelFrom | CloseChannel

REQUESTS: Final[tuple[type[ChannelRequest], ...]] = (
    InitOpenChannel,
    AcceptOpenChannel,
    AcceptOpenChannelFrom,
    CloseChannel,
)
"""Classes by the position that a request's plain fields begin with."""

REQUEST_RECORDS: Final = RequestRecords("validator.early_hrmp", REQUESTS, check_u32)


def make_candidate(fields: tuple[Any, ...]) -> Candidate:
    """Build a candidate from its five fields; messages are ``((sender, recipient, payload, payload_hash), ...)``."""
    if not fields[3]:
        return Candidate._make(fields)
    return Candidate._make((*fields[:3], tuple(map(HrmpMessage._make, fields[3])), fields[4]))


# --- shapes ---------------------------------------------------------------------------------------------------------------------------
# Conversion of decoded Avro records to plain tuples with all ranges checked, and back.
#
# Between the decode stage and a lane, a record consists of ints, bytes, None and tuples of these. Limits are checked in schema order.


CANDIDATE: Final = "validator.early_hrmp.Candidate"
CHANNEL_REQUEST: Final = "validator.early_hrmp.ChannelRequest"


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


RECORDS: Final = (
    RecordType("candidates", CANDIDATE, shape_candidate),
    RecordType("channel-requests", CHANNEL_REQUEST, REQUEST_RECORDS.shape),
)
