# SPDX-License-Identifier: Apache-2.0
"""What the records of a lane say about messages: the input of the state machine, as tuples that have a plain form (`plain`)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from validator.plugin.protocol_api import Hash
from validator_journeys.content import Content
from validator_journeys.plain import decode_plain, encode_plain


class Source(IntEnum):
    """Which record a fact is of. The order equals that of execution for what verdicts judge."""

    BLOCK = 0
    CANDIDATE = 1
    DOWNWARD = 2
    VERDICT_OF_INCLUSION = 3
    VERDICT_OF_TIMEOUT = 4
    VERDICT_OF_REQUEST = 5
    VERDICT_OF_DOWNWARD = 6
    VERDICT_OF_CANDIDATE = 7
    DISPATCH = 8
    CHANNEL_EVENT = 9


class Ref(NamedTuple):
    """A message that was queued: the para at the other end, its number in the queue, the queue's MQC head after it."""

    recipient: int
    number: int
    mqc_head: Hash


class Range(NamedTuple):
    """Messages that left a queue, and the bytes of all; ``sender`` is None for a queue of the relay chain's own."""

    sender: int | None
    first: int
    last: int
    size: int


class Pending(NamedTuple):
    """An entry of a block record's lists: the candidate of a para backed in a block, None for its oldest one."""

    para: int
    backed_at: int | None


class BlockFact(NamedTuple):
    """The lists of a block record, by which inclusions and timeouts name candidates."""

    included: tuple[Pending, ...] = ()
    timed_out: tuple[Pending, ...] = ()


class CandidateFact(NamedTuple):
    """The messages of a candidate: upward ones (a payload without bytes separates signals), and recipients with what goes to them."""

    upward: tuple[Content, ...] = ()
    horizontal: tuple[tuple[int, Content], ...] = ()


class VerdictFact(NamedTuple):
    """An accepted input: what it queued and what its para received. ``signals`` says whether the candidate has any."""

    para: int
    enacted: bool
    messages: tuple[Ref, ...] = ()
    received: tuple[Range, ...] = ()
    candidate_hash: Hash | None = None
    signals: bool = False


class DispatchFact(NamedTuple):
    """An upward message that was handed over, with the downward messages that its handler queued."""

    para: int
    content: Content
    outcome: str
    messages: tuple[Ref, ...] = ()


class EventFact(NamedTuple):
    """A channel that opened or closed, or messages that a para's queues dropped."""

    event: str
    sender: int
    recipient: int
    reason: str | None = None
    dropped: tuple[Range, ...] = ()


Fact: TypeAlias = BlockFact | CandidateFact | Content | VerdictFact | DispatchFact | EventFact
"""`Content` is a downward message."""


class Place(NamedTuple):
    """The place of a fact in its lane; a later one for the same place is a repetition."""

    block: int
    source: Source
    index: int  # type: ignore[assignment]  # shadows tuple.index


def encode_fact(fact: Fact) -> bytes:
    """Return the plain form of a fact."""
    return encode_plain(tuple(fact))


def decode_fact(source: Source, encoded: bytes) -> Fact:
    """Return a fact of a kind of record. Raises `DecodeError` for bytes that `encode_fact` does not write."""
    plain = decode_plain(encoded)
    match source:
        case Source.BLOCK:
            return BlockFact(*(tuple(Pending(*each) for each in listed) for listed in plain))
        case Source.CANDIDATE:
            upward, horizontal = plain
            return CandidateFact(
                tuple(Content(*each) for each in upward),
                tuple((recipient, Content(*content)) for recipient, content in horizontal),
            )
        case Source.DOWNWARD:
            return Content(*plain)
        case Source.DISPATCH:
            para, content, outcome, messages = plain
            return DispatchFact(para, Content(*content), outcome, _refs(messages))
        case Source.CHANNEL_EVENT:
            event, sender, recipient, reason, dropped = plain
            return EventFact(event, sender, recipient, reason, _ranges(dropped))
        case _:
            para, enacted, messages, received, *others = plain
            return VerdictFact(para, enacted, _refs(messages), _ranges(received), *others)


def _refs(plain: Any) -> tuple[Ref, ...]:
    return tuple(Ref(*each) for each in plain)


def _ranges(plain: Any) -> tuple[Range, ...]:
    return tuple(Range(*each) for each in plain)
