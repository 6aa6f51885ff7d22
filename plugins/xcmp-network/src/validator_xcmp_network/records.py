# SPDX-License-Identifier: Apache-2.0
"""The input records of a chain: candidates, and channel requests together with reports of bodies."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from validator_xcmp import records as xcmp
from validator_xcmp.records import Watermark

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId

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


def candidate(fields: tuple[Any, ...]) -> Candidate:
    """Build a candidate from its fields, in the order of `Candidate`."""
    para_id, relay_parent_number, outbox, *rest = fields
    return Candidate(para_id, relay_parent_number, tuple(map(OutboxMessage._make, outbox)), *rest)


def request(fields: tuple[Any, ...]) -> ChannelRequest:
    """Build a request from ``(number in REQUESTS, *its fields)``."""
    made: ChannelRequest = REQUESTS[fields[0]]._make(fields[1:])
    return made
