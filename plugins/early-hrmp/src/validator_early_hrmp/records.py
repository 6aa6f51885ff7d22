# SPDX-License-Identifier: Apache-2.0
"""The input records of a lane that runs early HRMP."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId


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


class InitOpenChannel(NamedTuple):
    """``init_open_channel(recipient)`` called by ``origin``."""

    origin: ParaId
    recipient: ParaId


class AcceptOpenChannel(NamedTuple):
    """``accept_open_channel(i)`` called by ``origin``; ``request_index`` is the position in the list of open requests, from 0."""

    origin: ParaId
    request_index: int


class AcceptOpenChannelFrom(NamedTuple):
    """``accept_open_channel`` of the request from ``sender`` to ``origin``, whatever its position in the list.

    Positions move at a session boundary, so an index may then select another request; the pair cannot. Source: xcmp_rules 1.2.
    """

    origin: ParaId
    sender: ParaId


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
"""Classes by the variant, the first of a request's plain fields."""


def make_request(fields: tuple[Any, ...]) -> ChannelRequest:
    """Build a request from ``(variant, *arguments)``; the variant is the position in `REQUESTS`."""
    made: ChannelRequest = REQUESTS[fields[0]]._make(fields[1:])
    return made


def make_candidate(fields: tuple[Any, ...]) -> Candidate:
    """Build a candidate from its five fields; messages are ``((sender, recipient, payload, payload_hash), ...)``."""
    if not fields[3]:
        return Candidate._make(fields)
    return Candidate._make((*fields[:3], tuple(map(HrmpMessage._make, fields[3])), fields[4]))
