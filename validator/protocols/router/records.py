# SPDX-License-Identifier: Apache-2.0
"""The Router's own input records, and their construction from the nested tuples of `Input.fields`.

They are named tuples rather than frozen dataclasses. Both are immutable and typed, but building a named tuple of seven fields takes a third
of the time. The decode stage has already checked types and ranges (`shapes`), so this module does not.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from validator.core.types import BlockNumber, ChannelId, Hash, ParaId


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


ChannelRequest: TypeAlias = InitOpenChannel | AcceptOpenChannel | CloseChannel | ScheduleParaCleanup


_REQUESTS: tuple[type[InitOpenChannel | AcceptOpenChannel | CloseChannel | ScheduleParaCleanup], ...] = (
    InitOpenChannel,
    AcceptOpenChannel,
    CloseChannel,
    ScheduleParaCleanup,
)


def candidate(fields: tuple[Any, ...]) -> Candidate:
    """Build a candidate from its seven fields.

    In order: para_id, relay_parent_number, hrmp_watermark, ``(upward message, ...)``, processed_downward_messages, ``((recipient, data,
    data_hash), ...)``, candidate_hash.
    """
    horizontal = fields[5]
    if not horizontal:
        return Candidate._make(fields)
    return Candidate._make((*fields[:5], tuple(map(HorizontalMessage._make, horizontal)), fields[6]))


def request(fields: tuple[Any, ...]) -> ChannelRequest:
    """Build a channel request from ``(variant, *arguments)``.

    Variants: 0 init_open_channel, 1 accept_open_channel, 2 close_channel (its channel is ``(sender, recipient)``),
    3 schedule_para_cleanup.
    """
    made: ChannelRequest = _REQUESTS[fields[0]]._make(fields[1:])
    return made
