# SPDX-License-Identifier: Apache-2.0
"""What the console knows of one lane: records in, bounded collections out."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from validator.console.kept import ChannelId, Json, KeptBlock, KeptChannel, KeptPara, KeptVerdict, Tally
from validator.console.limits import (
    BLOCK_TIMES_MAX,
    BLOCKS_MAX,
    CHANNELS_MAX,
    DIGESTS_MAX,
    EVENTS_MAX,
    FAILURES_MAX,
    HANDLED_MAX,
    PARAS_MAX,
    RATE_SECONDS,
    REQUESTS_MAX,
    TEXT_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

K = TypeVar("K")
V = TypeVar("V")

SENDING: Final = frozenset({"candidate", "inclusion"})
"""Kinds of verdicts whose messages went over channels of their para; those of others went down to their para."""

ENDING: Final = frozenset({"opened", "closed", "request_expired", "request_dropped"})
"""Channel events that end an open request."""


@dataclass(slots=True)
class DigestSpan:
    """Consecutive receipts with one runtime digest."""

    digest: str
    first_block: int
    last_block: int


@dataclass(slots=True)
class OpenRequest:
    """A request for a channel that has not been opened, expired or dropped, as its events say."""

    block: int
    session: int
    confirmed_block: int | None = None


@dataclass(slots=True)
class Handled:
    """Upward messages of one kind with one outcome."""

    messages: int = 0
    weight: int = 0


@dataclass(slots=True)
class Rates:
    """Verdicts by second of their Kafka timestamps, for the last `RATE_SECONDS` of them."""

    accepted: Counter[int] = field(default_factory=Counter)
    rejected: Counter[int] = field(default_factory=Counter)
    newest: int = 0

    def add(self, verdict: KeptVerdict) -> None:
        """Count a verdict."""
        second = verdict.time_ms // 1_000
        if second <= self.newest - RATE_SECONDS:
            return
        (self.accepted if verdict.ok else self.rejected)[second] += 1
        if second > self.newest:
            self.newest = second
            if len(self.accepted) + len(self.rejected) > 4 * RATE_SECONDS:
                self._forget()

    def _forget(self) -> None:
        for counter in (self.accepted, self.rejected):
            for second in [each for each in counter if each <= self.newest - RATE_SECONDS]:
                del counter[second]


@dataclass(slots=True)
class LaneModel:
    """One lane. Collections drop their oldest entry beyond their limit (`console.limits`); dropping verdicts is left to the model."""

    name: str
    status: Json | None = None
    status_ms: int = 0
    parked: Json | None = None
    audit_fault: Json | None = None
    """The last fault that the audit in the job has found."""
    executed_block: int | None = None
    newest_block_ms: int | None = None
    """When the last record of a block that was read arrived."""
    verdicts: deque[KeptVerdict] = field(default_factory=deque)
    verdicts_read: int = 0
    tally: Tally = field(default_factory=Tally)
    rates: Rates = field(default_factory=Rates)
    blocks: deque[KeptBlock] = field(default_factory=lambda: deque(maxlen=BLOCKS_MAX))
    paras: OrderedDict[int, KeptPara] = field(default_factory=OrderedDict)
    channels: OrderedDict[ChannelId, KeptChannel] = field(default_factory=OrderedDict)
    requests: OrderedDict[ChannelId, OpenRequest] = field(default_factory=OrderedDict)
    events: deque[Json] = field(default_factory=lambda: deque(maxlen=EVENTS_MAX))
    handled: OrderedDict[tuple[str, str, str], Handled] = field(default_factory=OrderedDict)
    """By handler, kind of message and outcome."""
    failures: deque[Json] = field(default_factory=lambda: deque(maxlen=FAILURES_MAX))
    digests: deque[DigestSpan] = field(default_factory=lambda: deque(maxlen=DIGESTS_MAX))
    _block_times: OrderedDict[int, int] = field(default_factory=OrderedDict)

    # --- records ---

    def take_verdict(self, record: Json, value: bytes, time_ms: int) -> None:
        """Take a verdict."""
        self.verdicts_read += 1
        recipients = tuple(each["recipient"] for each in record["messages"])
        error = None if record["ok"] else record["error"]["kind"]
        place = record["block"], record["kind"], record["index"], record["para_id"]
        verdict = KeptVerdict(self.verdicts_read, *place, error, recipients, time_ms, value)
        self.verdicts.append(verdict)
        self.tally.add(verdict, 1)
        self.rates.add(verdict)
        self._count_messages(verdict, 1)
        _of(self.paras, verdict.para_id, KeptPara, PARAS_MAX)

    def forget_verdict(self) -> None:
        """Drop the oldest verdict."""
        verdict = self.verdicts.popleft()
        self.tally.add(verdict, -1)
        self._count_messages(verdict, -1)

    def take_receipt(self, record: Json, time_ms: int) -> None:
        """Take a receipt."""
        block, digest = record["block"], record["runtime_digest"]
        sent_ms = self._block_times.pop(block, None)
        latency_ms = None if sent_ms is None else max(0, time_ms - sent_ms)
        counts = {name: record[name] for name in ("session", "accepted", "rejected", "enacted", "dispatched")}
        more = {name: record[name] for name in ("weight_used", "runtime_digest", "state_root")}
        self.blocks.append(KeptBlock(block, **counts, **more, time_ms=time_ms, latency_ms=latency_ms))
        self.executed_block = max(block, self.executed_block or 0)
        if self.digests and self.digests[-1].digest == digest:
            self.digests[-1].last_block = block
        else:
            self.digests.append(DigestSpan(digest, block, block))

    def take_block(self, block: int, time_ms: int) -> None:
        """Take the time at which a block's record was sent; a block that is executed by now has its receipt."""
        self.newest_block_ms = max(time_ms, self.newest_block_ms or 0)
        if self.executed_block is None or block > self.executed_block:
            self._block_times[block] = time_ms
            while len(self._block_times) > BLOCK_TIMES_MAX:
                self._block_times.popitem(last=False)

    def take_status(self, record: Json, time_ms: int) -> None:
        """Take a record of the topic `lanes`: a lane's status, an audit's fault, that it is parked, resuming or runs again."""
        if "check" in record:
            self.audit_fault = record
            return
        if "fault" in record:
            self.parked = None if record["state"] == "running" else record
            return
        self.status, self.status_ms = record, time_ms
        if record["executed_block"] is not None:
            self.executed_block = max(record["executed_block"], self.executed_block or 0)

    def take_headroom(self, record: Json) -> None:
        """Take a headroom record of a para or a channel."""
        if "para_id" in record:
            _of(self.paras, record["para_id"], KeptPara, PARAS_MAX).take(record)
        else:
            _of(self.channels, (record["sender"], record["recipient"]), KeptChannel, CHANNELS_MAX).take(record)

    def take_event(self, record: Json) -> None:
        """Take a channel event."""
        self.events.append(record)
        channel, event = (record["sender"], record["recipient"]), record["event"]
        if event == "requested":
            _of(self.requests, channel, lambda: OpenRequest(record["block"], record["session"]), REQUESTS_MAX)
        elif event == "confirmed" and channel in self.requests:
            self.requests[channel].confirmed_block = record["block"]
        elif event in ENDING:
            self.requests.pop(channel, None)

    def take_dispatch(self, record: Json) -> None:
        """Take a dispatched upward message."""
        key = record["handler"] or "", record["kind"] or "", record["outcome"]
        handled = _of(self.handled, key, Handled, HANDLED_MAX)
        handled.messages += 1
        handled.weight += record["weight"]
        if record["outcome"] != "ok":
            kept = {name: record[name] for name in ("block", "index", "para_id", "outcome", "weight")}
            self.failures.append({**kept, "handler": key[0], "failure": (record["failure"] or "")[:TEXT_MAX]})

    # --- questions ---

    @property
    def session(self) -> int | None:
        """The session of the newest receipt."""
        if self.blocks:
            return self.blocks[-1].session
        receipt: Any = self.status and self.status["last_receipt"]
        return receipt["session"] if receipt else None

    def newest(self) -> Iterator[KeptVerdict]:
        """Yield the kept verdicts, newest first."""
        return reversed(self.verdicts)

    def channels_of(self, para: int) -> Iterator[tuple[ChannelId, KeptChannel]]:
        """Yield the channels from and to a para."""
        return ((ends, channel) for ends, channel in self.channels.items() if para in ends)

    def deposits(self, para: int) -> tuple[int, int]:
        """Return what the kept events reserved on a para's account, and what they returned to it."""
        reserved = returned = 0
        for event in self.events:
            for side in ("sender", "recipient"):
                if event[side] == para:
                    reserved += event[f"{side}_reserved"]
                    returned += event[f"{side}_returned"]
        return reserved, returned

    def _count_messages(self, verdict: KeptVerdict, times: int) -> None:
        if verdict.kind in SENDING:
            for recipient in verdict.recipients:
                channel = _of(self.channels, (verdict.para_id, recipient), KeptChannel, CHANNELS_MAX)
                channel.messages = max(0, channel.messages + times)


def _of(entries: OrderedDict[K, V], key: K, make: Any, entries_max: int) -> V:
    """Return the entry of a key, made if it is new; the one that was made first leaves if there are too many."""
    found = entries.get(key)
    if found is None:
        found = entries[key] = make()
        if len(entries) > entries_max:
            entries.popitem(last=False)
    return found
