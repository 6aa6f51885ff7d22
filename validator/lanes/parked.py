# SPDX-License-Identifier: Apache-2.0
"""What is stored and emitted of a lane that is parked: why, since when, and which of its inputs it has not taken.

It stands in the store in place of the lane's head, and contains that head unread: a damaged head is kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

from validator.codec.encode import BlockOutput, OutputRecord, write
from validator.codec.inflight import Arrival
from validator.codec.orders import InputSpan, LaneOrder
from validator.codec.schemas import schemas
from validator.core.inputs import Source
from validator.core.limits import PARK_REASON_CHARACTERS_MAX, PARKED_SKIPS_MAX
from validator.core.scale import DecodeError, Encoding, Reader
from validator.core.types import BlockNumber
from validator.document import printable

PARKED: Final = Encoding("parked lane", 0x81)
"""Version 1; the highest bit distinguishes a parked lane from a head."""

POINT_BYTES: Final = 8

Partition: TypeAlias = tuple[str, int]
"""A topic, with its prefix, and a partition."""


class Fault(StrEnum):
    """Why a lane is parked."""

    WAITING = "waiting"
    """More records wait than its limits allow."""
    HANDLER = "handler"
    """A handler hung, ran out of memory or raised what is no verdict."""
    MEMORY = "memory"
    """The lane's worker ran out of memory outside its handlers."""
    WORKER = "worker"
    """The lane's worker died several times at the same point."""
    STATE = "state"
    """Head, pages or journal are damaged, or were written under what is no longer installed."""
    CONFIGURATION = "configuration"
    """The configuration does not fit the lane's state."""
    AUDIT = "audit"
    """The audit of a block found a fault, and `[audit] on_fault` is ``park``."""
    MARKER = "marker"
    """The lane's marker on Kafka was not written by the lane."""
    INPUTS = "inputs"
    """Inputs that the lane has not taken are no longer in Kafka."""
    BUG = "bug"
    """Anything else."""


class Span(NamedTuple):
    """Offsets of one partition, ``end`` excluded."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Parked:
    """A lane that does not continue, or that has begun to again (``resuming``).

    ``since_block`` is the last block executed before the fault, None if that is unknown. ``held`` has, by partition, the inputs that the
    lane has not taken; ``skips`` those that are to become dead letters.
    """

    fault: Fault
    reason: str
    since_block: BlockNumber | None
    held: dict[Partition, Span] = field(default_factory=dict)
    skips: frozenset[Source] = frozenset()
    resuming: bool = False

    def holding(self, items: Iterable[Arrival], left: Mapping[Partition, Span]) -> Parked:
        """Return the lane with further inputs held; ``left`` are places of more of them."""
        spans = [InputSpan(*place, *span) for place, span in left.items()]
        return replace(self, held=_with_spans(held_with(self.held, items), spans))

    def obeying(self, orders: Iterable[LaneOrder]) -> Parked:
        """Return the lane after orders to leave records out, or to start over.

        Anyone who may write to `blocks` may give orders, so their sum is bounded.
        """
        skips, held, since_block = self.skips, self.held, self.since_block
        for order in orders:
            both = skips | order.skips
            skips = both if len(both) <= PARKED_SKIPS_MAX else order.skips
            if order.inputs:
                held, since_block = _with_spans(held, order.inputs), None
        return replace(self, skips=skips, held=held, since_block=since_block)

    def encode(self, head: bytes | None) -> bytes:
        """Return what the store holds: the lane as bytes, with its head."""
        out = PARKED.begin()
        out.bytes(self.fault.value.encode())
        out.bytes(self.reason.encode("utf-8", "replace"))
        out.option(self.since_block, out.u32)
        out.compact(len(self.held))
        for (topic, partition), span in sorted(self.held.items()):
            out.bytes(topic.encode())
            out.u32(partition)
            out.u64(span.first)
            out.u64(span.end)
        out.compact(len(self.skips))
        for topic, partition, offset in sorted(self.skips):
            out.bytes(topic.encode())
            out.u32(partition)
            out.u64(offset)
        out.u8(self.resuming)
        out.option(head, out.bytes)
        return bytes(out.buffer)

    def record(self, lane: str) -> BlockOutput:
        """Return the record that says how the lane is."""
        return _record(lane, "resuming" if self.resuming else "parked", self)


def stored_parts(stored: bytes | None) -> tuple[Parked | None, bytes | None]:
    """Return how a stored lane is parked, None if it is not, and its head. Raises `core.scale.DecodeError`."""
    if stored is None or stored[:1] < b"\x80":
        return None, stored
    reader = PARKED.read(stored)
    try:
        fault = Fault(reader.bytes().decode())
        reason = reader.bytes().decode()
    except ValueError as error:
        raise DecodeError(f"a parked lane is damaged: {error}") from None
    since_block = reader.option(reader.u32)
    held = dict(reader.items(lambda: (_place(reader), Span(reader.u64(), reader.u64()))))
    skips = frozenset(reader.items(lambda: Source(*_place(reader), reader.u64())))
    parked = Parked(fault, reason, since_block, held, skips, reader.boolean())
    head = reader.option(reader.bytes)
    reader.end()
    return parked, head


def running(lane: str) -> BlockOutput:
    """Return the record of a lane that is no longer parked."""
    return _record(lane, "running", None)


def held_with(held: dict[Partition, Span], items: Iterable[Arrival]) -> dict[Partition, Span]:
    """Return what is held once further inputs are; what is between two inputs of a partition belongs to other lanes."""
    held = dict(held)
    for item in items:
        topic, partition, offset = item.source
        known = held.get((topic, partition))
        first, end = (offset, offset + 1) if known is None else (min(known.first, offset), max(known.end, offset + 1))
        held[topic, partition] = Span(first, end)
    return held


def _with_spans(held: Mapping[Partition, Span], spans: Iterable[InputSpan]) -> dict[Partition, Span]:
    """Return what is held once further spans are."""
    held = dict(held)
    for topic, partition, first, end in spans:
        known = held.get((topic, partition), Span(first, end))
        held[topic, partition] = Span(min(known.first, first), max(known.end, end))
    return held


def point_of(stored: bytes | None) -> str:
    """Return a short name of the state that a lane is in: equal for equal states."""
    return blake2b(stored or b"", digest_size=POINT_BYTES).hexdigest()


def shortened(reason: str) -> str:
    """Return a reason in one line of bounded length, which any terminal shows as it is."""
    line = printable(" ".join(reason.split()).encode("utf-8", "replace").decode())
    return line if len(line) <= PARK_REASON_CHARACTERS_MAX else f"{line[: PARK_REASON_CHARACTERS_MAX - 3]}..."


def status_of(status: dict[str, Any], parked: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a lane's last status, as it is if the lane has emitted further blocks and was parked then; both are JSON of topic `lanes`."""
    since_block = None if parked is None or parked["state"] == "running" else parked["since_block"]
    if since_block is None or since_block <= (status["executed_block"] or 0):
        return status
    return {**status, "executed_block": since_block, "waiting_for": "waiting for the inputs that it holds"}


def parked_key(lane: str) -> bytes:
    """Return the key of a lane's `LaneParked` records."""
    return f"{lane}/parked".encode()


def says_parked(record: OutputRecord) -> bool:
    """Return whether a record says that a lane is parked, or no longer is."""
    return record.topic == "lanes" and record.key.endswith(b"/parked")


def _place(reader: Reader) -> Partition:
    try:
        return reader.bytes().decode(), reader.u32()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a parked lane is damaged: {error}") from None


def _record(lane: str, state: str, parked: Parked | None) -> BlockOutput:
    datum = {
        "lane": lane,
        "state": state,
        "fault": "" if parked is None else parked.fault.value,
        "reason": "" if parked is None else parked.reason,
        "since_block": None if parked is None else parked.since_block,
        "held": [
            {"topic": topic, "partition": partition, "first": span.first, "end": span.end}
            for (topic, partition), span in sorted(({} if parked is None else parked.held).items())
        ],
    }
    return BlockOutput(None, [OutputRecord("lanes", parked_key(lane), write(schemas()["validator.LaneParked"], datum))])
