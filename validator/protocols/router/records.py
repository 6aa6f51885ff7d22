# SPDX-License-Identifier: Apache-2.0
"""The input records of the Router: candidates and channel requests, from decoded Avro records and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from validator.codec.record_types import RecordType, check_payload, check_u32, relay_parent
from validator.core.errors import LimitError
from validator.core.hashing import message_hash
from validator.core.limits import MESSAGES_PER_CANDIDATE_MAX, PAYLOAD_BYTES_MAX, U32_MAX
from validator.core.types import BlockNumber, ChannelId, Hash, ParaId, Weight, maker

# --- records --------------------------------------------------------------------------------------------------------------------------


class HorizontalMessage(NamedTuple):
    """One HRMP message of a candidate.

    ``data_hash`` is ``message_hash(data)`` if the decode stage has already computed it, else None. It is derived, never an input.
    """

    recipient: ParaId
    data: bytes
    data_hash: Hash | None = None


class Candidate(NamedTuple):
    """The part of a backed candidate's commitments that concerns messages.

    Source: router.txt "Candidate Acceptance Function", router_rules 1.2.
    """

    para_id: ParaId
    relay_parent_number: BlockNumber
    hrmp_watermark: BlockNumber
    upward_messages: tuple[bytes, ...] = ()
    processed_downward_messages: int = 0
    horizontal_messages: tuple[HorizontalMessage, ...] = ()
    candidate_hash: bytes | None = None


SEPARATOR: Final = b""
"""Where candidates have signals, the first upward message like this is none; what follows it are signals. Source: chain_2026 3.14."""


def split_upward(upward: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Return the messages among a candidate's upward messages, and the entries behind the first separator."""
    if SEPARATOR not in upward:
        return upward, ()
    at = upward.index(SEPARATOR)
    return upward[:at], upward[at + 1 :]


class InitOpenChannel(NamedTuple):
    """``hrmp_init_open_channel(recipient, max_places, max_message_size)`` called by ``origin``."""

    origin: ParaId
    recipient: ParaId
    max_places: int
    max_message_size: int


class AcceptOpenChannel(NamedTuple):
    """``hrmp_accept_open_channel(sender)`` called by ``origin``."""

    origin: ParaId
    sender: ParaId


class CloseChannel(NamedTuple):
    """``hrmp_close_channel(ch)`` called by ``origin``."""

    origin: ParaId
    channel: ChannelId


class ScheduleParaCleanup(NamedTuple):
    """``schedule_para_cleanup(para_id)``."""

    para_id: ParaId


class CancelOpenRequest(NamedTuple):
    """``hrmp_cancel_open_request(channel_id)`` called by ``origin``. Source: router_profiles 3.4."""

    origin: ParaId
    channel: ChannelId


class ForceOpenChannel(NamedTuple):
    """``force_open_hrmp_channel(sender, recipient, max_capacity, max_message_size)`` by governance. Source: router_profiles 3.6."""

    sender: ParaId
    recipient: ParaId
    max_places: int
    max_message_size: int


class EstablishSystemChannel(NamedTuple):
    """``establish_system_channel(sender, recipient)`` by anyone. Source: router_profiles 3.12."""

    sender: ParaId
    recipient: ParaId


class EstablishChannelWithSystem(NamedTuple):
    """``establish_channel_with_system(target_system_chain)`` called by ``origin``. Source: router_profiles 3.12."""

    origin: ParaId
    target: ParaId


class PokeChannelDeposits(NamedTuple):
    """``poke_channel_deposits(sender, recipient)`` by anyone. Source: router_profiles 3.12."""

    sender: ParaId
    recipient: ParaId


class ServiceOverweight(NamedTuple):
    """``execute_overweight(message_origin, page, index, weight_limit)`` by anyone. Source: router_profiles 3.9."""

    para_id: ParaId
    page: int
    index: int  # type: ignore[assignment]  # shadows tuple.index
    weight_limit: Weight


class ForceProcessOpen(NamedTuple):
    """``force_process_hrmp_open(channels)`` by governance. Source: chain_2026 3.16."""


class ForceProcessClose(NamedTuple):
    """``force_process_hrmp_close(channels)`` by governance. Source: chain_2026 3.16."""


class ForceClean(NamedTuple):
    """``force_clean_hrmp(para, num_inbound, num_outbound)`` by governance. Source: chain_2026 3.16."""

    para_id: ParaId


ChannelRequest: TypeAlias = (
    InitOpenChannel
    | AcceptOpenChannel
    | CloseChannel
    | ScheduleParaCleanup
    | CancelOpenRequest
    | ForceOpenChannel
    | EstablishSystemChannel
    | EstablishChannelWithSystem
    | PokeChannelDeposits
    | ServiceOverweight
    | ForceProcessOpen
    | ForceProcessClose
    | ForceClean
)

REQUESTS: Final[Mapping[str, type[ChannelRequest]]] = {
    "init_open_channel": InitOpenChannel,
    "accept_open_channel": AcceptOpenChannel,
    "close_channel": CloseChannel,
    "schedule_para_cleanup": ScheduleParaCleanup,
    "cancel_open_request": CancelOpenRequest,
    "force_open_channel": ForceOpenChannel,
    "establish_system_channel": EstablishSystemChannel,
    "establish_channel_with_system": EstablishChannelWithSystem,
    "poke_channel_deposits": PokeChannelDeposits,
    "service_overweight": ServiceOverweight,
    "force_process_open": ForceProcessOpen,
    "force_process_close": ForceProcessClose,
    "force_clean": ForceClean,
}
"""The request kinds, by the names of the conformance format. `request` numbers its variants in this order."""

KINDS: Final[Mapping[type[ChannelRequest], str]] = {made: kind for kind, made in REQUESTS.items()}

_VARIANTS: Final[tuple[type[ChannelRequest], ...]] = tuple(REQUESTS.values())


_candidate, _message = maker(Candidate), maker(HorizontalMessage)


def candidate(fields: tuple[Any, ...]) -> Candidate:
    """Build a candidate from its seven fields.

    In order: para_id, relay_parent_number, hrmp_watermark, ``(upward message, ...)``, processed_downward_messages, ``((recipient, data,
    data_hash), ...)``, candidate_hash.
    """
    horizontal = fields[5]
    if not horizontal:
        return _candidate(fields)
    return _candidate((*fields[:5], tuple(map(_message, horizontal)), fields[6]))


def request(fields: tuple[Any, ...]) -> ChannelRequest:
    """Build a channel request from ``(variant, *arguments)``; the variant is the kind's position in `REQUESTS`.

    A channel among the arguments is ``(sender, recipient)``.
    """
    made: ChannelRequest = _VARIANTS[fields[0]]._make(fields[1:])
    return made


# --- shapes ---------------------------------------------------------------------------------------------------------------------------
# The Router's own input records: candidates with their messages, and the channel requests.


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
