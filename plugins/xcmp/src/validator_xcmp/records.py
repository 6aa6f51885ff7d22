# SPDX-License-Identifier: Apache-2.0
"""The input records of a chain: candidates and channel requests."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId

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


class InitOpenChannel(NamedTuple):
    """``init_open_channel(recipient)`` called by ``origin``."""

    origin: ParaId
    recipient: ParaId


class AcceptOpenChannel(NamedTuple):
    """``accept_open_channel(i)`` called by ``origin``; ``request_index`` is the position in the list of open requests."""

    origin: ParaId
    request_index: int


class AcceptOpenChannelFrom(NamedTuple):
    """``accept_open_channel`` of the request from ``sender`` to ``origin``, whatever its position in the list.

    Positions move at a session boundary, so an index may then select another request; the pair cannot. Source: xcmp_rules 1.2.
    """

    origin: ParaId
    sender: ParaId


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


def candidate(fields: tuple[Any, ...]) -> Candidate:
    """Build a candidate from its six fields, in the order of `Candidate`."""
    return Candidate._make(fields)


def request(fields: tuple[Any, ...]) -> ChannelRequest:
    """Build a request from ``(number in REQUESTS, *its fields)``."""
    made: ChannelRequest = REQUESTS[fields[0]]._make(fields[1:])
    return made
