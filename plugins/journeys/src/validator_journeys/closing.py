# SPDX-License-Identifier: Apache-2.0
"""Journeys of several messages: all that carry one XCM topic, over any channels and lanes. Pure.

A *leg* is a message of the journey as the newest record of `journeys` has it. Whether a journey is closed follows from its legs and the
newest block of each lane, whatever came first. So records may come in any order and again, and a late leg adds itself and nothing else.
There is no other clock than the blocks in the records.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

FORWARDING: Final = frozenset(
    (
        "DepositReserveAsset",
        "ExportMessage",
        "InitiateReserveWithdraw",
        "InitiateTeleport",
        "InitiateTransfer",
        "TransferReserveAsset",
    )
)
"""The instructions by which the chain that executes a message sends a further one with the same topic."""
LEGS_MAX: Final = 64
"""Legs of one journey; of further messages with its topic only the number is kept."""
FAILURES: Final = ("failed", "out_of_weight")
"""Outcomes of a dispatch that has no effect. ``no_handler`` is none: the message was taken, and this program does not execute XCM."""


class Leg(NamedTuple):
    """A message: its id, lane and ends (None is the relay chain), its status and the detail of its end, the blocks of queueing and end.

    ``forwards``: it has an instruction that sends a further message.
    """

    message: str
    lane: str
    sender: int | None
    recipient: int | None
    status: str
    detail: str | None
    queued_at: int | None
    ended_at: int | None
    forwards: bool

    @property
    def began_at(self) -> int:
        """The first block that is known of it."""
        return self.ended_at or 0 if self.queued_at is None else self.queued_at

    @property
    def last_at(self) -> int:
        """The last one."""
        return self.began_at if self.ended_at is None else self.ended_at


class Close(StrEnum):
    """How a journey ends."""

    COMPLETE = "complete"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class Closed(NamedTuple):
    """A closed journey; ``reason`` names the message that failed, or for which nothing happened in time."""

    topic: str
    close: Close
    reason: str | None
    legs: tuple[Leg, ...]
    legs_left_out: int


@dataclass(slots=True)
class Journey:
    """The legs of a topic by message id, those left out, and the last `Closed` that was emitted, as a digest of its record."""

    legs: dict[str, Leg] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    emitted: bytes = b""

    def add(self, leg: Leg) -> bool:
        """Take a leg, and return whether that changed anything: a message that has ended does not wait again."""
        before = self.legs.get(leg.message)
        if before is not None:
            if before.ended_at is not None or leg == before:
                return False
        elif len(self.legs) >= LEGS_MAX:
            if len(self.left_out) < LEGS_MAX:
                self.left_out.add(leg.message)
            return False
        self.legs[leg.message] = leg
        return True

    def in_order(self) -> tuple[Leg, ...]:
        return tuple(sorted(self.legs.values(), key=lambda leg: (leg.began_at, leg.last_at, leg.message)))


def closed(topic: str, journey: Journey, heights: dict[str, int], timeout_blocks: int) -> Closed | None:
    """Return a journey if it is closed: as failed before timed out, as timed out before complete."""
    legs = journey.in_order()

    def close(how: Close, reason: str | None = None) -> Closed:
        return Closed(topic, how, reason, legs, len(journey.left_out))

    for leg in legs:
        if leg.status == "dropped" or (leg.status == "dispatched" and leg.detail in FAILURES):
            return close(Close.FAILED, f"{leg.message} {leg.status}: {leg.detail}")
    waits = False
    for leg in legs:
        for began, ended in _spans(leg, legs):
            until = heights[leg.lane] if ended is None else ended
            if until - began > timeout_blocks:
                what = "has not ended" if leg.ended_at is None else "took too long, or nothing followed it"
                return close(Close.TIMED_OUT, f"{leg.message} {what}")
            waits = waits or ended is None
    return None if waits else close(Close.COMPLETE)


def _spans(leg: Leg, legs: Sequence[Leg]) -> Iterator[tuple[int, int | None]]:
    """Yield the spans of blocks in which a leg waits, None for one that continues: for its end, and for the message that it forwards."""
    if leg.queued_at is not None:
        yield leg.queued_at, leg.ended_at
    if leg.forwards and leg.ended_at is not None:
        others = [each for each in legs if each.message != leg.message and each.sender == leg.recipient]
        if not any(each.lane != leg.lane for each in others):  # on another lane, blocks cannot be compared
            follows = [each.began_at for each in others if each.began_at >= leg.ended_at]
            yield leg.ended_at, min(follows, default=None)


class Journeys:
    """The journeys of a bucket. ``touched`` are the topics that have changed since they were last stored."""

    def __init__(self, timeout_blocks: int) -> None:
        self._timeout_blocks = timeout_blocks
        self.heights: dict[str, int] = {}
        """By lane, the newest block of any record."""
        self.journeys: dict[str, Journey] = {}
        self.touched: set[str] = set()
        self._due: dict[str, list[tuple[int, str]]] = {}
        """By lane, a heap of blocks after which journeys are looked at again."""
        self._look: set[str] = set()

    def advance(self, lane: str, block: int) -> None:
        """Note a block of a lane."""
        if block > self.heights.get(lane, -1):
            self.heights[lane] = block

    def add(self, topic: str, leg: Leg) -> None:
        """Take a leg of a journey."""
        self.advance(leg.lane, leg.last_at)
        journey = self.journeys.setdefault(topic, Journey())
        left_out = len(journey.left_out)
        if journey.add(leg) or len(journey.left_out) != left_out:
            self.touched.add(topic)
            self._look.add(topic)
            self._schedule(topic, leg)

    def keep(self, topic: str, journey: Journey) -> None:
        """Take a stored journey."""
        self.journeys[topic] = journey
        for leg in journey.legs.values():
            self._schedule(topic, leg)

    def look_at_all(self) -> None:
        """Look at every journey at the next `close`."""
        self._look |= self.journeys.keys()

    def close(self) -> Iterator[Closed]:
        """Yield the journeys that are closed, by topic, of those that have changed or are due; forget those that nothing follows."""
        for lane, due in self._due.items():
            height = self.heights.get(lane, -1)
            while due and due[0][0] < height:
                self._look.add(heapq.heappop(due)[1])
        look, self._look = sorted(self._look), set()
        for topic in look:
            journey = self.journeys.get(topic)
            if journey is None:
                continue
            found = closed(topic, journey, self.heights, self._timeout_blocks)
            if found is not None:
                yield found
            if all(leg.last_at + 2 * self._timeout_blocks < self.heights[leg.lane] for leg in journey.legs.values()):
                del self.journeys[topic]
                self.touched.add(topic)

    def _schedule(self, topic: str, leg: Leg) -> None:
        due = self._due.setdefault(leg.lane, [])
        for after in {leg.began_at, leg.last_at}:
            heapq.heappush(due, (after + self._timeout_blocks, topic))
        heapq.heappush(due, (leg.last_at + 2 * self._timeout_blocks, topic))
