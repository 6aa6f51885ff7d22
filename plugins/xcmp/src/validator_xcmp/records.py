# SPDX-License-Identifier: Apache-2.0
"""The records that go into a chain: candidates and requests for channels."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId

Watermark: TypeAlias = tuple[BlockNumber, ParaId]
"""``(block, para)``: a recipient has processed what was sent below this block, and in it by senders up to this one."""


class Candidate(NamedTuple):
    """A backed candidate, as far as channels are concerned.

    ``bitfield`` has a ``1`` for each column of the sender's row that it sends over and ``0`` for others, column 0 first; columns beyond it
    count as 0. ``message_root`` is the ``sender_message_queue_merkle_root`` of the receipt. Source: xcmp_channels.txt "Enactment".
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
    """``accept_open_channel`` of the request from ``sender`` to ``origin``, wherever that stands in the list.

    A position may hit another request once the list has closed up at a session boundary; the pair cannot. Source: xcmp_rules 1.2.
    """

    origin: ParaId
    sender: ParaId


class CloseChannel(NamedTuple):
    """``close_channel(sender, i)`` called by ``origin``; ``column_index`` is the position in the row of ``sender``."""

    origin: ParaId
    sender: ParaId
    column_index: int


class CloseChannelTo(NamedTuple):
    """``close_channel`` of the channel from ``sender`` to ``recipient``, whichever column it is by now."""

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
"""By the number that stands first in a request's tuple of fields."""


def candidate(fields: tuple[Any, ...]) -> Candidate:
    """Return the candidate of its six fields, in the order of `Candidate`."""
    return Candidate._make(fields)


def request(fields: tuple[Any, ...]) -> ChannelRequest:
    """Return the request of ``(number in REQUESTS, *its fields)``."""
    made: ChannelRequest = REQUESTS[fields[0]]._make(fields[1:])
    return made
