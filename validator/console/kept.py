# SPDX-License-Identifier: Apache-2.0
"""What the model keeps of single records."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from validator.console.limits import HISTORY_MAX
from validator.console.shown import UNREACHED

Json: TypeAlias = dict[str, Any]
ChannelId: TypeAlias = tuple[int, int]
"""Sender and recipient."""

NEARLY_SHARE = 0.8
"""Share of places or bytes from which on a channel is nearly full."""


@dataclass(frozen=True, slots=True)
class KeptVerdict:
    """A verdict by what pages filter and count; ``value`` is the record itself, decoded when it is shown.

    ``number`` counts the verdicts of the lane as they were read, from 1. ``recipients`` has one for each message that it queued.
    """

    number: int
    block: int
    kind: str
    index: int
    para_id: int
    error: str | None
    recipients: tuple[int, ...]
    time_ms: int
    value: bytes

    @property
    def ok(self) -> bool:
        """Whether the input was accepted."""
        return self.error is None


@dataclass(frozen=True, slots=True)
class KeptBlock:
    """A receipt. ``latency_ms`` is the time from the block's record to the receipt, None if the record was not read."""

    block: int
    session: int
    accepted: int
    rejected: int
    enacted: int
    dispatched: int
    weight_used: int
    runtime_digest: str
    state_root: str | None
    time_ms: int
    latency_ms: int | None


@dataclass(slots=True)
class KeptPara:
    """A para's headroom records, the newest last."""

    records: deque[Json] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))

    @property
    def now(self) -> Json | None:
        """The newest record."""
        return self.records[-1] if self.records else None

    def take(self, record: Json) -> None:
        """Add a headroom record, unless it is older than the newest one: partitions are read in any order."""
        if self.now is None or record["block"] >= self.now["block"]:
            self.records.append(record)


@dataclass(slots=True)
class KeptChannel:
    """A channel's headroom records, the newest last, and what was sent over it.

    A record only says what is left, so the most that was ever left stands in for the limits: the true ones are at least that.
    """

    records: deque[Json] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    places_most: int = 0
    bytes_most: int = 0
    messages: int = 0

    def take(self, record: Json) -> None:
        """Add a headroom record, unless it is older than the newest one: partitions are read in any order."""
        if self.now is not None and record["block"] < self.now["block"]:
            return
        if not record["open"] or (self.records and not self.records[-1]["open"]):
            self.places_most = self.bytes_most = 0  # another channel of the same ends begins
        self.records.append(record)
        self.places_most = max(self.places_most, record["places_left"])
        self.bytes_most = max(self.bytes_most, record["bytes_left"])

    @property
    def now(self) -> Json | None:
        """The newest record."""
        return self.records[-1] if self.records else None

    @property
    def is_open(self) -> bool:
        """Whether the newest record says that the channel is open; without one it is not known, and it has carried messages."""
        return self.now is None or bool(self.now["open"])

    def used(self, record: Json | None = None) -> float | None:
        """Return the share of places or bytes that a record says is used, whichever is greater; None without a record."""
        record = self.now if record is None else record
        if record is None or not record["open"]:
            return None
        if not record["places_left"] or not record["bytes_left"]:
            return 1.0
        pairs = ((record["places_left"], self.places_most), (record["bytes_left"], self.bytes_most))
        return max((1 - left / most for left, most in pairs if 0 < most <= UNREACHED), default=0.0)

    @property
    def state(self) -> str:
        """``full``, ``nearly``, ``room``, ``gone`` or ``unknown``."""
        if not self.is_open:
            return "gone"
        used = self.used()
        if used is None:
            return "unknown"
        if used >= 1.0:
            return "full"
        return "nearly" if used >= NEARLY_SHARE else "room"


@dataclass(frozen=True, slots=True)
class KeptLetter:
    """A dead letter without its bytes."""

    partition: int
    offset: int
    time_ms: int
    lane: str
    reason: str
    detail: str
    topic: str
    block: int | None
    index: int | None
    bytes: int

    @property
    def place(self) -> str:
        """Partition and offset, as `validator dead-letters` writes them."""
        return f"{self.partition}/{self.offset}"


@dataclass(slots=True)
class Tally:
    """How many of the kept verdicts of a lane have each outcome, kind, error and para."""

    outcome: Counter[str] = field(default_factory=Counter)
    kind: Counter[str] = field(default_factory=Counter)
    error: Counter[str] = field(default_factory=Counter)
    para: Counter[int] = field(default_factory=Counter)
    rejected_of_para: Counter[int] = field(default_factory=Counter)

    def add(self, verdict: KeptVerdict, times: int) -> None:
        """Count a verdict; ``times`` is -1 for one that is no longer kept."""
        self._count(self.outcome, "accepted" if verdict.ok else "rejected", times)
        self._count(self.kind, verdict.kind, times)
        self._count(self.para, verdict.para_id, times)
        if verdict.error is not None:
            self._count(self.error, verdict.error, times)
            self._count(self.rejected_of_para, verdict.para_id, times)

    @staticmethod
    def _count(counter: Counter[Any], key: Any, times: int) -> None:
        counter[key] += times
        if not counter[key]:
            del counter[key]
