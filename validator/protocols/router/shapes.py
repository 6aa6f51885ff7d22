# SPDX-License-Identifier: Apache-2.0
"""The Router's own input records: candidates with their messages, and the channel requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final

from validator.codec.record_types import RecordType, check_payload, check_u32, relay_parent
from validator.core.errors import LimitError
from validator.core.hashing import message_hash
from validator.core.limits import MESSAGES_PER_CANDIDATE_MAX, PAYLOAD_BYTES_MAX, U32_MAX

_CANDIDATE = itemgetter(
    "block",
    "para_id",
    "relay_parent_number",
    "hrmp_watermark",
    "upward_messages",
    "processed_downward_messages",
    "horizontal_messages",
    "candidate_hash",
)


def _shape_candidate(record: dict[str, Any]) -> tuple[Any, ...]:
    block, para_id, parent, watermark, upward, processed, horizontal, candidate_hash = _CANDIDATE(record)
    check_u32("para_id", para_id)
    parent = relay_parent("relay_parent_number", block, parent)
    check_u32("hrmp_watermark", watermark)
    if len(upward) > MESSAGES_PER_CANDIDATE_MAX:
        raise LimitError("upward_messages", f"at most {MESSAGES_PER_CANDIDATE_MAX} messages", len(upward))
    for idx, data in enumerate(upward):
        check_payload(f"upward_messages[{idx}]", data)
    check_u32("processed_downward_messages", processed)
    if len(horizontal) > MESSAGES_PER_CANDIDATE_MAX:
        raise LimitError("horizontal_messages", f"at most {MESSAGES_PER_CANDIDATE_MAX} messages", len(horizontal))
    messages: list[tuple[int, bytes, bytes]] = []
    for message in horizontal:
        recipient, data = message["recipient"], message["data"]
        if not 0 <= recipient <= U32_MAX:
            raise LimitError(f"horizontal_messages[{len(messages)}].recipient", f"0 to {U32_MAX}", recipient)
        if len(data) > PAYLOAD_BYTES_MAX:
            check_payload(f"horizontal_messages[{len(messages)}].data", data)
        messages.append((recipient, data, message_hash(data)))
    return para_id, parent, watermark, tuple(upward), processed, tuple(messages), candidate_hash


_REQUEST_FIELDS: Final[dict[str, tuple[int, tuple[str, ...]]]] = {
    "validator.router.InitOpenChannel": (0, ("origin", "recipient", "max_places", "max_message_size")),
    "validator.router.AcceptOpenChannel": (1, ("origin", "sender")),
    "validator.router.CloseChannel": (2, ("origin", "channel")),
    "validator.router.ScheduleParaCleanup": (3, ("para_id",)),
    "validator.router.CancelOpenRequest": (4, ("origin", "channel")),
    "validator.router.ForceOpenChannel": (5, ("sender", "recipient", "max_places", "max_message_size")),
    "validator.router.EstablishSystemChannel": (6, ("sender", "recipient")),
    "validator.router.EstablishChannelWithSystem": (7, ("origin", "target")),
    "validator.router.PokeChannelDeposits": (8, ("sender", "recipient")),
    "validator.router.ServiceOverweight": (9, ("para_id", "page", "message_index", "weight_limit")),
    "validator.router.ForceProcessOpen": (10, ()),
    "validator.router.ForceProcessClose": (11, ()),
    "validator.router.ForceClean": (12, ("para_id",)),
}
"""The variant of each request (`records.REQUESTS`) and its fields in schema order."""


def _channel(channel: dict[str, int]) -> tuple[int, int]:
    sender, recipient = channel["sender"], channel["recipient"]
    check_u32("request.channel.sender", sender)
    check_u32("request.channel.recipient", recipient)
    return sender, recipient


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "channel": _channel,
    "weight_limit": int.from_bytes,  # 8 bytes hold nothing greater than a u64
}
"""How to read the fields that are not u32."""


def _shape_request(record: dict[str, Any]) -> tuple[Any, ...]:
    name, call = record["request"]
    variant, names = _REQUEST_FIELDS[name]
    arguments: list[Any] = []
    for argument in names:
        value = call[argument]
        if argument in _READ:
            value = _READ[argument](value)
        else:
            check_u32(f"request.{argument}", value)
        arguments.append(value)
    return variant, *arguments


ROUTER_RECORDS: Final = (
    RecordType("candidates", "validator.router.Candidate", _shape_candidate),
    RecordType("channel-requests", "validator.router.ChannelRequest", _shape_request),
)
