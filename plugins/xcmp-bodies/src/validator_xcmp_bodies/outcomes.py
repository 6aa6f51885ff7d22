# SPDX-License-Identifier: Apache-2.0
"""What the operator of bodies takes and what it says, as plain values.

A record of `xcmp.bodies` is refused for a stable kind with its fields; reports to the chain have the first four kinds, too (N-31).
Source: xcmp_rules 1.4 bodies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from validator.plugin.protocol_api import BlockNumber, Hash, ParaId
from validator_xcmp_bodies import limits
from validator_xcmp_bodies.parts import Condensed

Field: TypeAlias = int | str
Fields: TypeAlias = tuple[tuple[str, Field], ...]


class Refusal(NamedTuple):
    """A kind with its fields, in the order of the specification."""

    kind: str
    fields: Fields

    @property
    def message(self) -> str:
        """Return the refusal in words."""
        return f"{_WORDS[self.kind]}: " + ", ".join(f"{name} {value}" for name, value in self.fields)


NOT_EXPECTED: Final = "Body/NotExpected"
SIZE_MISMATCH: Final = "Body/SizeMismatch"
ROOT_MISMATCH: Final = "Body/RootMismatch"
DUPLICATE: Final = "Body/Duplicate"
MALFORMED: Final = "Body/Malformed"
"""The record itself is wrong, so it can be a part of no body."""

_WORDS: Final = {
    NOT_EXPECTED: "no such message is listed in the recipient's ingress queue",
    SIZE_MISMATCH: "the body has another size than the relay chain lists",
    ROOT_MISMATCH: "the body has another root than the relay chain lists",
    DUPLICATE: "the body or this part of it is already held",
    MALFORMED: "the record is no part of a body",
}
KINDS: Final = tuple(_WORDS)


def not_expected(sender: int, recipient: int, sent_at: int) -> Refusal:
    """Return the refusal of a body that the recipient's ingress queue does not list."""
    return Refusal(NOT_EXPECTED, (("sender", sender), ("recipient", recipient), ("sent_at", sent_at)))


def size_mismatch(declared: int, actual: int) -> Refusal:
    """Return the refusal of a body whose size in bytes is not the listed one."""
    return Refusal(SIZE_MISMATCH, (("declared", declared), ("actual", actual)))


def root_mismatch(expected: bytes) -> Refusal:
    """Return the refusal of a body whose root is not the listed one."""
    return Refusal(ROOT_MISMATCH, (("expected", expected.hex()),))


def duplicate(sender: int, recipient: int, sent_at: int) -> Refusal:
    """Return the refusal of a body, or of a part, that has arrived before."""
    return Refusal(DUPLICATE, (("sender", sender), ("recipient", recipient), ("sent_at", sent_at)))


def malformed(detail: str) -> Refusal:
    """Return the refusal of a record that is no part of a body."""
    return Refusal(MALFORMED, (("detail", detail),))


class EventKind(StrEnum):
    """What happened to an entry of an ingress queue, by the names of the topic `ingress-events`."""

    QUEUED = "queued"
    ACKNOWLEDGED = "acknowledged"
    REMOVED = "removed"


class IngressEvent(NamedTuple):
    """A record of `ingress-events`: ``sent_at`` and ``sender`` name the entry, ``size`` is in bytes."""

    block: BlockNumber
    kind: EventKind
    recipient: ParaId
    sender: ParaId
    sent_at: BlockNumber
    root: Hash
    size: int


class RecordOffset(NamedTuple):
    """Where a record of `xcmp.bodies` is."""

    partition: int
    offset: int


class BodyPart(NamedTuple):
    """A record of `xcmp.bodies` after its payloads have been hashed; ``root`` and ``size`` are what the sender claims."""

    sender: ParaId
    recipient: ParaId
    sent_at: BlockNumber
    root: Hash
    size: int
    part: int
    parts: int
    content: Condensed


class Held(NamedTuple):
    """A listed body whose size and root are verified; its parts are the records at ``places``, in their order."""

    recipient: ParaId
    sender: ParaId
    sent_at: BlockNumber
    root: Hash
    size: int
    payloads: int
    places: tuple[RecordOffset, ...]


class Refused(NamedTuple):
    """A record of `xcmp.bodies` that is dropped; the claim's fields are None if the record cannot be read."""

    refusal: Refusal
    place: RecordOffset
    sender: ParaId | None = None
    recipient: ParaId | None = None
    sent_at: BlockNumber | None = None
    root: Hash | None = None


class Wanted(NamedTuple):
    """A request for a listed body that is missing; ``attempt`` counts from 1.

    The sender is to answer, and if ``replicas`` is true everybody who has a copy.
    """

    recipient: ParaId
    sender: ParaId
    sent_at: BlockNumber
    root: Hash
    size: int
    attempt: int
    replicas: bool = False


class Watermark(NamedTuple):
    """Everything sent below ``block`` is acknowledged, and at ``block`` what these senders sent."""

    block: BlockNumber
    acked: tuple[ParaId, ...]


class Flow(NamedTuple):
    """What a sender may still send over a channel: ``capacity`` less ``unread`` messages."""

    sender: ParaId
    recipient: ParaId
    capacity: int
    unread: int
    watermark: Watermark


class QueueStatus(NamedTuple):
    """A recipient's queue after a batch. ``waiting_bytes`` is what incomplete and unlisted bodies take in memory."""

    recipient: ParaId
    height: BlockNumber
    unread: int
    missing: int
    waiting_bytes: int
    front: tuple[BlockNumber, ParaId] | None
    front_held: bool
    alarm: bool
    watermark: Watermark


Outcome: TypeAlias = Held | Refused | Wanted | Flow | QueueStatus


@dataclass(frozen=True, slots=True)
class Settings:
    """How the operator treats every queue; `limits` has the defaults."""

    wanted_after_blocks: int = limits.WANTED_AFTER_BLOCKS
    wanted_interval_blocks_max: int = limits.WANTED_INTERVAL_BLOCKS_MAX
    wanted_per_batch_max: int = limits.WANTED_PER_BATCH_MAX
    sender_requests: int = limits.SENDER_REQUESTS
    unlisted_bytes: int = limits.UNLISTED_BYTES
    unlisted_blocks: int = limits.UNLISTED_BLOCKS
    alarm_blocks: int = limits.ALARM_BLOCKS
    capacity_messages: int = limits.CAPACITY_MESSAGES
