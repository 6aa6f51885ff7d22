# SPDX-License-Identifier: Apache-2.0
"""The records that a lane emits, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from validator.core.errors import Violation
from validator.core.types import Balance, BlockNumber, Hash, ParaId, SessionIndex, Weight


class InputKind(StrEnum):
    """What a verdict judges: one of three kinds of records, or an entry of a block record's two lists."""

    CANDIDATE = "candidate"
    REQUEST = "request"
    DOWNWARD = "downward"
    INCLUSION = "inclusion"
    TIMEOUT = "timeout"


class MessageRef(NamedTuple):
    """A message's position: its number in its queue (from 1), and the queue's MQC head right after it.

    ``recipient`` is the other end of an HRMP channel, or the para of a downward queue.
    """

    recipient: ParaId
    sequence_number: int
    mqc_head: Hash


class MessageRange(NamedTuple):
    """Messages that left a queue one after the other: the numbers of the first and the last one, and the bytes of all payloads.

    Numbers are those of `MessageRef`; up to 0 they are of messages that waited when the lane began. Upward messages have no numbers: the
    oldest that waits counts as 1. ``sender`` is the para that sent them, None for a queue of the relay chain's own.
    """

    sender: ParaId | None
    first: int
    last: int
    bytes: int


class Signal(NamedTuple):
    """What a candidate signals to the relay chain besides its messages.

    ``SelectCore`` has a ``selector`` of a core and an ``offset`` into the claim queue, both u8; ``ApprovedPeer`` has the bytes of a
    ``peer``. Source: RFC 103, chain_2026 3.14, 3.15.
    """

    kind: str
    selector: int | None = None
    offset: int | None = None
    peer: bytes | None = None


class Verdict(NamedTuple):
    """The outcome of one input: accepted if ``violation`` is None, else rejected by it.

    ``para_id`` is the judged para (a request's origin). ``enacted`` says whether the effects are in the state now, ``messages`` which
    messages enactment queued, and ``received`` which messages the para took from its queues by it, a range for each queue. A request takes
    effect at the start of ``effective_session``; unless confirmed, it is removed at the start of ``expires_session``. A candidate, also a
    rejected one, has ``signals``: entries of its upward messages that are no messages.
    """

    kind: InputKind
    block: BlockNumber
    index: int  # type: ignore[assignment]  # shadows tuple.index
    para_id: ParaId
    violation: Violation | None = None
    enacted: bool = False
    messages: tuple[MessageRef, ...] = ()
    received: tuple[MessageRange, ...] = ()
    effective_session: SessionIndex | None = None
    expires_session: SessionIndex | None = None
    candidate_hash: bytes | None = None
    signals: tuple[Signal, ...] = ()


class DispatchOutcome(StrEnum):
    """The result of dispatching an upward message."""

    OK = "ok"
    FAILED = "failed"
    OUT_OF_WEIGHT = "out_of_weight"
    NO_HANDLER = "no_handler"


class HandlerEvent(NamedTuple):
    """An event that a handler emitted for a message."""

    name: str
    data: bytes


class Processed(NamedTuple):
    """The result of one upward message; the fields go unchanged into its `Dispatch`."""

    weight: Weight
    outcome: DispatchOutcome
    failure: str | None = None
    handler: str | None = None
    kind: str | None = None
    events: tuple[HandlerEvent, ...] = ()
    messages: tuple[MessageRef, ...] = ()


class Dispatch(NamedTuple):
    """One upward message that a dispatch round handed to the runtime.

    ``weight`` is the weight charged, whether or not it succeeded. ``failure`` is the exception's type and text if the outcome is failed.
    ``handler`` is the ``name@version`` of the plugin that handled it, ``kind`` that plugin's name for such messages; both are None if no
    plugin did. ``messages`` are the downward messages that the handler queued.
    """

    block: BlockNumber
    index: int  # type: ignore[assignment]  # shadows tuple.index
    para_id: ParaId
    payload: bytes
    weight: Weight
    outcome: DispatchOutcome
    failure: str | None = None
    handler: str | None = None
    kind: str | None = None
    events: tuple[HandlerEvent, ...] = ()
    messages: tuple[MessageRef, ...] = ()


class ChannelEventKind(StrEnum):
    """What happened to a channel or to a request for one."""

    REQUESTED = "requested"
    CONFIRMED = "confirmed"
    CLOSE_REQUESTED = "close_requested"
    OPENED = "opened"
    SEALED = "sealed"
    CLOSED = "closed"
    REQUEST_EXPIRED = "request_expired"
    REQUEST_DROPPED = "request_dropped"
    DEPOSITS_CHANGED = "deposits_changed"
    MESSAGES_DROPPED = "messages_dropped"


class ChannelEvent(NamedTuple):
    """A change in a channel's life, with the deposits that it moved and the messages that it dropped.

    A positive deposit has been reserved on that side's account, a negative one returned to it. ``session`` is the index of the session in
    which the event applies. ``reason`` is set if a channel or request ends: ``requested``, ``offboarded``, ``expired`` or ``cancelled``; a
    protocol may have more. ``dropped`` are messages that left their queue unreceived.

    A para has no channel to itself. An event whose both ends are the same para is ``messages_dropped``, about its queues to and from the
    relay chain: ``dropped`` names upward messages with the para as sender, downward ones with None. If the para is ``offboarded``, its
    downward messages are numbered from 1 again, and the event occurs even if none were dropped. An ``oversized`` message is one that no
    page of the message queue can hold.
    """

    block: BlockNumber
    index: int  # type: ignore[assignment]  # shadows tuple.index
    event: ChannelEventKind
    sender: ParaId
    recipient: ParaId
    sender_deposit: Balance
    recipient_deposit: Balance
    session: SessionIndex
    reason: str | None = None
    dropped: tuple[MessageRange, ...] = ()


class IngressEventKind(StrEnum):
    """What happened to an entry of an ingress queue.

    An entry is ``queued`` when the sender's candidate is enacted, ``acknowledged`` by a candidate of its recipient, or ``removed`` because
    its channel is gone. The last two end it.
    """

    QUEUED = "queued"
    ACKNOWLEDGED = "acknowledged"
    REMOVED = "removed"


class IngressEvent(NamedTuple):
    """A change of a recipient's ingress queue, for protocols whose message bodies travel outside of the relay chain.

    An entry stands for one logical message: all that ``sender`` sent to ``recipient`` in block ``sent_at``. ``root`` commits to its body,
    which has ``size`` bytes. ``block`` is the block of the event, and equals ``sent_at`` if the entry is queued.
    """

    block: BlockNumber
    index: int  # type: ignore[assignment]  # shadows tuple.index
    event: IngressEventKind
    recipient: ParaId
    sender: ParaId
    sent_at: BlockNumber
    root: Hash
    size: int


class ChannelHeadroom(NamedTuple):
    """What a channel can still take: messages, bytes in total and bytes per message; ``open`` is False once it is gone."""

    sender: ParaId
    recipient: ParaId
    open: bool
    places_left: int = 0
    bytes_left: int = 0
    message_size_max: int = 0


class ParaHeadroom(NamedTuple):
    """What a para may do in its next candidate; ``valid`` is False once it is offboarded.

    ``valid_watermarks`` are the blocks with messages for it, oldest first, at most `limits.HEADROOM_WATERMARKS_MAX`. The candidate's relay
    parent is always valid, too.
    """

    para_id: ParaId
    valid: bool
    upward_count_left: int = 0
    upward_bytes_left: int = 0
    downward_pending: int = 0
    watermark: BlockNumber | None = None
    valid_watermarks: tuple[BlockNumber, ...] = ()


class Receipt(NamedTuple):
    """Closes a block on the output side; ``state_root`` is set at root heights and session changes only."""

    block: BlockNumber
    parent_number: BlockNumber
    session: SessionIndex
    accepted: int
    rejected: int
    enacted: int
    dispatched: int
    weight_used: Weight
    state_root: Hash | None = None


class Executed(NamedTuple):
    """Everything that the execution of one block emits, each list in the order in which it happened."""

    verdicts: list[Verdict]
    dispatches: list[Dispatch]
    channel_events: list[ChannelEvent]
    headroom: list[ParaHeadroom | ChannelHeadroom]
    receipt: Receipt
    ingress_events: Sequence[IngressEvent] = ()
