# SPDX-License-Identifier: Apache-2.0
"""The records of output topics as typed values. Hashes and payloads are bytes; docs/records.md explains every field.

Made of the schemas by ``make generate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias


class Position(NamedTuple):
    """Where a record stands in its topic."""

    partition: int
    offset: int


NOWHERE: Final = Position(-1, -1)
"""The position of a record that is part of an answer."""


@dataclass(frozen=True, slots=True)
class Error:
    """Why an input was rejected; ``fields`` are the numbers that the error's kind has, by name."""

    kind: str
    clause: str
    fields: Mapping[str, Any]


class MessageRef(NamedTuple):
    """A message's position in its channel or queue."""

    recipient: int
    sequence_number: int
    mqc_head: bytes


class MessageRange(NamedTuple):
    """Messages that left a queue one after the other."""

    sender: int | None
    first: int
    last: int
    bytes: int


class Signal(NamedTuple):
    """What a candidate signals to the relay chain besides its messages."""

    kind: str
    selector: int | None = None
    offset: int | None = None
    peer: bytes | None = None


class HandlerEvent(NamedTuple):
    """An event that a handler emitted for a message."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one input, with the reason."""

    lane: str
    block: int
    kind: str
    index: int
    para_id: int
    error: Error | None
    enacted: bool
    messages: tuple[MessageRef, ...]
    received: tuple[MessageRange, ...]
    effective_session: int | None
    expires_session: int | None
    candidate_hash: bytes | None
    signals: tuple[Signal, ...]
    runtime_digest: bytes
    id: bytes
    at: Position

    @property
    def ok(self) -> bool:
        """Whether the input was accepted."""
        return self.error is None

    @property
    def paras(self) -> tuple[int, ...]:
        """The paras that the record is about."""
        return (self.para_id,)


@dataclass(frozen=True, slots=True)
class Dispatch:
    """One upward message that a dispatch round handed to the relay chain's runtime."""

    lane: str
    block: int
    index: int
    para_id: int
    payload: bytes
    weight: int
    outcome: str
    failure: str | None
    handler: str | None
    kind: str | None
    events: tuple[HandlerEvent, ...]
    messages: tuple[MessageRef, ...]
    runtime_digest: bytes
    at: Position

    @property
    def ok(self) -> bool:
        """Whether the message was handled."""
        return self.outcome == "ok"

    @property
    def paras(self) -> tuple[int, ...]:
        """The paras that the record is about."""
        return (self.para_id,)


@dataclass(frozen=True, slots=True)
class ChannelEvent:
    """A change in the life of a channel or of a request for one, with the deposits it moved and the messages it dropped."""

    lane: str
    block: int
    index: int
    event: str
    sender: int
    recipient: int
    sender_reserved: int
    sender_returned: int
    recipient_reserved: int
    recipient_returned: int
    session: int
    reason: str | None
    dropped: tuple[MessageRange, ...]
    runtime_digest: bytes
    at: Position

    @property
    def paras(self) -> tuple[int, ...]:
        """The paras that the record is about."""
        return (self.sender, self.recipient)


@dataclass(frozen=True, slots=True)
class ParaHeadroom:
    """What a para may do in its next candidate."""

    lane: str
    block: int
    para_id: int
    valid: bool
    upward_count_left: int
    upward_bytes_left: int
    downward_pending: int
    watermark: int | None
    valid_watermarks: tuple[int, ...]
    at: Position

    @property
    def paras(self) -> tuple[int, ...]:
        """The paras that the record is about."""
        return (self.para_id,)


@dataclass(frozen=True, slots=True)
class ChannelHeadroom:
    """What a channel can still take."""

    lane: str
    block: int
    sender: int
    recipient: int
    open: bool
    places_left: int
    bytes_left: int
    message_size_max: int
    at: Position

    @property
    def paras(self) -> tuple[int, ...]:
        """The paras that the record is about."""
        return (self.sender, self.recipient)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Closes an executed block on the output side."""

    lane: str
    block: int
    parent_number: int
    session: int
    accepted: int
    rejected: int
    enacted: int
    dispatched: int
    weight_used: int
    runtime_digest: bytes
    state_root: bytes | None
    at: Position

    @property
    def paras(self) -> tuple[int, ...]:
        """The paras that the record is about."""
        return ()


Record: TypeAlias = Verdict | Dispatch | ChannelEvent | ParaHeadroom | ChannelHeadroom | Receipt

PARTS: Final[dict[str, Any]] = {
    "messages": MessageRef,
    "received": MessageRange,
    "signals": Signal,
    "events": HandlerEvent,
    "dropped": MessageRange,
}
"""By field, the type of its items."""
