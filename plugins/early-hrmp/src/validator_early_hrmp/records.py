# SPDX-License-Identifier: Apache-2.0
"""What goes into a lane that runs early HRMP."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId


class HrmpMessage(NamedTuple):
    """One message of a candidate.

    ``payload_hash`` is `message_hash` of the payload where the decode stage has computed it already, else None; it is derived, never an
    input. Source: early_hrmp.txt ``HRMP_Message``.
    """

    sender: ParaId
    recipient: ParaId
    payload: bytes
    payload_hash: Hash | None = None


class Candidate(NamedTuple):
    """A backed candidate, as far as messages are concerned. Source: early_hrmp.txt ``Candidate``."""

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
    """``accept_open_channel(i)`` called by ``origin``; ``request_index`` is the place in the list of open requests, from 0."""

    origin: ParaId
    request_index: int


class AcceptOpenChannelFrom(NamedTuple):
    """``accept_open_channel`` of the request from ``sender`` to ``origin``, wherever that stands in the list.

    An index may hit another request once the list has closed up at a session boundary; the pair cannot. Source: xcmp_rules 1.2.
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
"""By the variant that leads a request's plain fields."""


def make_request(fields: tuple[Any, ...]) -> ChannelRequest:
    """Return the request of ``(variant, *arguments)``; the variant is the position in `REQUESTS`."""
    made: ChannelRequest = REQUESTS[fields[0]]._make(fields[1:])
    return made


def make_candidate(fields: tuple[Any, ...]) -> Candidate:
    """Return the candidate of its five fields, of which the messages are ``((sender, recipient, payload, payload_hash), ...)``."""
    if not fields[3]:
        return Candidate._make(fields)
    return Candidate._make((*fields[:3], tuple(map(HrmpMessage._make, fields[3])), fields[4]))
