# SPDX-License-Identifier: Apache-2.0
"""The records of output topics as typed values. Hashes and payloads are bytes; docs/records.md explains every field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from validator.codec.json_form import to_json
from validator.lanes.parked import parked_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from validator.codec.dry_runs import DryRunAnswer


class Position(NamedTuple):
    """Where a record stands in its topic."""

    partition: int
    offset: int


NOWHERE: Final = Position(-1, -1)
"""The position of a record that is part of an answer."""


class MessageRef(NamedTuple):
    """A message that a candidate queued: its number in its queue, from 1, and the queue's MQC head right after it."""

    recipient: int
    sequence_number: int
    mqc_head: bytes


class Signal(NamedTuple):
    """What a candidate signals besides its messages: ``SelectCore`` with selector and offset, or ``ApprovedPeer`` with a peer's id."""

    kind: str
    selector: int | None = None
    offset: int | None = None
    peer: bytes | None = None


class HandlerEvent(NamedTuple):
    """An event that a handler emitted for an upward message."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Error:
    """Why an input was rejected; ``fields`` are the numbers that the error's kind has, by name."""

    kind: str
    clause: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one input; ``error`` is None if it was accepted. ``kind`` says what the input was, such as ``candidate``.

    A candidate's ``signals`` stand among its upward messages and are none.
    """

    lane: str
    block: int
    kind: str
    index: int
    para_id: int
    error: Error | None
    enacted: bool
    messages: tuple[MessageRef, ...]
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
    """One upward message that was processed; ``outcome`` is ``ok``, ``failed``, ``out_of_weight`` or ``no_handler``."""

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
    """A change in a channel's life, with the deposits that it reserved and returned on each side."""

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
    runtime_digest: bytes
    at: Position

    @property
    def paras(self) -> tuple[int, ...]:
        """The paras that the record is about."""
        return (self.sender, self.recipient)


@dataclass(frozen=True, slots=True)
class ParaHeadroom:
    """What a para may do in its next candidate, after a block; ``valid`` is False once it is gone."""

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
    """What a channel can still take, after a block; ``open`` is False once it is gone."""

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
    """Closes a block; ``state_root`` is None except at some heights and at session changes."""

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
        """The paras that the record is about: none."""
        return ()


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a lane stands, as its job committed last; None where the job has not said anything yet.

    ``waiting_blocks`` have records, but are not executed yet; ``waiting_for`` says in words what the block after ``executed_block`` lacks.
    ``parked`` is why the lane takes no more records until an operator acts, None if it runs.
    """

    lane: str
    executed_block: int | None = None
    waiting_blocks: int = 0
    waiting_for: str | None = None
    parked: str | None = None


def progress_of(lane: str, values: Mapping[bytes, bytes]) -> Progress:
    """Return a lane's progress by the last values of the topic `lanes`, by key. Raises `UserError` if one cannot be read."""
    status, parked = (
        to_json("lanes", values[key]) if key in values else None for key in (lane.encode(), parked_key(lane))
    )
    reason = None if parked is None or parked["state"] == "running" else parked["reason"]
    if status is None:
        return Progress(lane, parked=reason)
    return Progress(lane, status["executed_block"], status["waiting_blocks"], status["waiting_for"], reason)


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a lane would say to a record in ``block``, on its state after ``executed_block``.

    ``errors`` are in the order of the checks: the lane would name the first. ``complete`` says whether they are all. The verdict would have
    these ``messages`` and ``effective_session``. ``headroom`` has the para and the channels that it sends over; ``headroom_after`` is empty
    if the record would be rejected. ``batch`` is the job's batch that committed the state, None in memory; ``state_root`` is its root.
    """

    lane: str
    batch: int | None
    executed_block: int
    state_root: bytes
    block: int
    kind: str
    para_id: int
    errors: tuple[Error, ...]
    complete: bool
    messages: tuple[MessageRef, ...]
    effective_session: int | None
    headroom: tuple[ParaHeadroom | ChannelHeadroom, ...]
    headroom_after: tuple[ParaHeadroom | ChannelHeadroom, ...]

    @property
    def ok(self) -> bool:
        """Whether the record would be accepted."""
        return not self.errors


def dry_run_of(answer: DryRunAnswer) -> DryRun:
    """Return an answer that was not refused. Raises `UserError` if its records cannot be read."""
    verdicts = [_verdict({**to_json("verdicts", value), "at": NOWHERE}) for value in answer.verdicts]
    before, after = (
        tuple(_headroom({**to_json("headroom", value), "at": NOWHERE}) for value in values)
        for values in (answer.headroom, answer.headroom_after)
    )
    first = verdicts[0]
    assert answer.executed_block is not None
    assert answer.state_root is not None
    return DryRun(
        lane=answer.lane,
        batch=answer.batch,
        executed_block=answer.executed_block,
        state_root=answer.state_root,
        block=first.block,
        kind=first.kind,
        para_id=first.para_id,
        errors=tuple(each.error for each in verdicts if each.error is not None),
        complete=answer.complete,
        messages=first.messages,
        effective_session=first.effective_session,
        headroom=before,
        headroom_after=after,
    )


Record: TypeAlias = Verdict | Dispatch | ChannelEvent | ParaHeadroom | ChannelHeadroom | Receipt


def read_record(topic: str, value: bytes, at: Position) -> Record:
    """Return the record that a Kafka value of a topic, without the prefix, holds. Raises `UserError` for anything else."""
    return _MAKERS[topic]({**to_json(topic, value), "at": at})


def _verdict(fields: dict[str, Any]) -> Verdict:
    ok, error, clause = fields.pop("ok"), fields.pop("error", None), fields.pop("clause", "")
    if not ok:
        kind = error.pop("kind")
        fields["error"] = Error(kind, clause, error)
    else:
        fields["error"] = None
    fields["messages"] = tuple(
        MessageRef(each["recipient"], each["sequence_number"], bytes.fromhex(each["mqc_head"]))
        for each in fields["messages"]
    )
    fields["signals"] = tuple(Signal(**_hashes(each, "peer")) for each in fields["signals"])
    return Verdict(**_hashes(fields, "candidate_hash", "runtime_digest", "id"))


def _dispatch(fields: dict[str, Any]) -> Dispatch:
    fields["events"] = tuple(HandlerEvent(each["name"], bytes.fromhex(each["data"])) for each in fields["events"])
    return Dispatch(**_hashes(fields, "payload", "runtime_digest"))


def _headroom(fields: dict[str, Any]) -> ParaHeadroom | ChannelHeadroom:
    if "para_id" not in fields:
        return ChannelHeadroom(**fields)
    return ParaHeadroom(**{**fields, "valid_watermarks": tuple(fields["valid_watermarks"])})


def _hashes(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {
        name: bytes.fromhex(value) if name in names and value is not None else value for name, value in fields.items()
    }


_MAKERS: Final[dict[str, Callable[[dict[str, Any]], Record]]] = {
    "verdicts": _verdict,
    "dispatches": _dispatch,
    "channel-events": lambda fields: ChannelEvent(**_hashes(fields, "runtime_digest")),
    "headroom": _headroom,
    "receipts": lambda fields: Receipt(**_hashes(fields, "runtime_digest", "state_root")),
}
