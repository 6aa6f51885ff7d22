# SPDX-License-Identifier: Apache-2.0
"""The fold of committed records into what pages show. No I/O: records come in, in any order of topics, and pages ask.

A `Model` is shared by the thread that reads and those that answer; each holds ``lock`` while it uses the model.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from validator.codec.json_form import shown_json
from validator.console.journeys import KeptMessages
from validator.console.limits import (
    BLOCK_TIMES_MAX,
    BLOCKS_MAX,
    CHANNELS_MAX,
    DIGESTS_MAX,
    EVENTS_MAX,
    FAILURES_MAX,
    HANDLED_MAX,
    HISTORY_MAX,
    LANES_MAX,
    LETTERS_MAX,
    PARAS_MAX,
    RATE_SECONDS,
    REPLAYS_MAX,
    REQUESTS_MAX,
    TEXT_MAX,
    VERDICTS_MAX,
)
from validator.core.limits import UNREACHED
from validator.errors import UserError
from validator.kafka.reader import Newest
from validator.lanes.parked import status_of
from validator.messages import JOURNEYS
from validator.topics import DEAD_LETTER_REPLAYS, DEAD_LETTERS, LANES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from validator.codec.codec import Codec
    from validator.kafka.reader import TopicRecord


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
            self.add(record)

    def add(self, record: Json) -> None:
        self.records.append(record)


@dataclass(slots=True)
class KeptChannel(KeptPara):
    """A channel's headroom records, the newest last, and what was sent over it.

    A record only says what is left, so the most that was ever left stands in for the limits: the true ones are at least that.
    """

    places_most: int = 0
    bytes_most: int = 0
    messages: int = 0

    def add(self, record: Json) -> None:
        if not record["open"] or (self.now is not None and not self.now["open"]):
            self.places_most = self.bytes_most = 0  # another channel of the same ends begins
        self.records.append(record)
        self.places_most = max(self.places_most, record["places_left"])
        self.bytes_most = max(self.bytes_most, record["bytes_left"])

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
    parked_ms: int = 0
    """When the record that says so was written."""
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
    messages: KeptMessages = field(default_factory=KeptMessages)
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
            self.parked, self.parked_ms = (None if record["state"] == "running" else record), time_ms
            self.status = self.status and status_of(self.status, self.parked)
            return
        self.status, self.status_ms = status_of(record, self.parked), time_ms
        if self.status["executed_block"] is not None:
            self.executed_block = max(self.status["executed_block"], self.executed_block or 0)

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

    def time_of(self, block: int | None) -> int:
        """Return Kafka's time of a block's receipt in milliseconds; 0 if it is not among the kept ones."""
        return next((each.time_ms for each in reversed(self.blocks) if each.block == block), 0)

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


VERDICTS: Final = "verdicts"
TAILED: Final = ("receipts", "dispatches", "channel-events")
"""Topics of small records, of which the newest are read."""
LARGE: Final = ("blocks", DEAD_LETTERS)
"""Topics whose records may be large."""
COMPACTED: Final = ("headroom", LANES, DEAD_LETTER_REPLAYS)
"""Topics that keep the last record of each key, and are read from their beginning."""


class Model:
    """Everything that the pages show. ``version`` grows with every record that was taken."""

    def __init__(
        self, lanes: Iterable[str] = (), codec: Codec | None = None, message: Callable[[bytes], Json] | None = None
    ) -> None:
        """``message`` decodes a record of the topic `journeys`; None: no plugin declares the topic."""
        self.lock = RLock()
        self.version = 0
        self.lanes: OrderedDict[str, LaneModel] = OrderedDict()
        self.letters: deque[KeptLetter] = deque(maxlen=LETTERS_MAX)
        self.replayed: OrderedDict[str, Json] = OrderedDict()
        """By the place of a dead letter, the last ledger entry."""
        self.strangers = 0
        """Records that are none of their topic, or belong to a lane beyond `LANES_MAX`."""
        self._codec = codec
        self._message = message
        self._newest = Newest()
        self._takers: dict[str, Callable[[LaneModel, Json, TopicRecord], None]] = {
            VERDICTS: lambda lane, json, record: lane.take_verdict(json, record.value, record.timestamp_ms),
            "receipts": lambda lane, json, record: lane.take_receipt(json, record.timestamp_ms),
            "blocks": lambda lane, json, record: lane.take_block(json["block"], record.timestamp_ms),
            LANES: lambda lane, json, record: lane.take_status(json, record.timestamp_ms),
            "headroom": lambda lane, json, _: lane.take_headroom(json),
            "channel-events": lambda lane, json, _: lane.take_event(json),
            "dispatches": lambda lane, json, _: lane.take_dispatch(json),
            JOURNEYS: lambda lane, json, record: lane.messages.take(json, record.value),
        }
        for lane in sorted(lanes)[:LANES_MAX]:
            self.lanes[lane] = LaneModel(lane)

    def take(self, records: Iterable[TopicRecord]) -> None:
        """Take records as they were read. One that cannot be decoded is counted; pages show the others."""
        decoded = [(record, self._decoded(record)) for record in records]
        with self.lock:
            for record, json in decoded:
                self._take(record, json)
                self.version += 1

    @property
    def has_messages(self) -> bool:
        """Whether a plugin declares the topic of messages, so that they can be read."""
        return self._message is not None

    def message(self, value: bytes) -> Json:
        """Return a record of the topic `journeys` as JSON. Raises `UserError`."""
        if self._message is None:
            raise UserError(f"{JOURNEYS}: no installed plugin declares this topic")
        return self._message(value)

    def not_put_back(self) -> list[KeptLetter]:
        """Return the dead letters that were not put back, newest first."""
        return [letter for letter in reversed(self.letters) if letter.place not in self.replayed]

    @property
    def verdicts(self) -> int:
        """How many verdicts are kept."""
        return sum(len(lane.verdicts) for lane in self.lanes.values())

    def _decoded(self, record: TopicRecord) -> Json | None:
        try:
            if record.topic == JOURNEYS:
                return self.message(record.value)
            return shown_json(record.topic, record.value, self._codec)
        except UserError:
            return None

    def _take(self, record: TopicRecord, json: Json | None) -> None:
        if json is None:
            self.strangers += record.topic != "blocks"  # an order to a lane is no block
        elif record.topic == DEAD_LETTERS:
            self.letters.append(_letter(record, json))
        elif record.topic == DEAD_LETTER_REPLAYS:
            place = f"{json['letter_partition']}/{json['letter_offset']}"
            if json["attempt"] < self.replayed.get(place, json)["attempt"]:
                return  # each attempt has its own key, hence its own partition
            self.replayed[place] = {**json, "timestamp_ms": record.timestamp_ms}
            self.replayed.move_to_end(place)
            if len(self.replayed) > REPLAYS_MAX:
                self.replayed.popitem(last=False)
        elif (lane := self._lane(json["lane"], new=record.topic != "blocks")) is not None:
            if record.topic == LANES and not self._newest.takes(record):
                return
            self._takers[record.topic](lane, json, record)
            if record.topic == VERDICTS and self.verdicts > VERDICTS_MAX:
                max(self.lanes.values(), key=lambda each: len(each.verdicts)).forget_verdict()
        else:
            self.strangers += 1

    def _lane(self, name: str, *, new: bool) -> LaneModel | None:
        """Return a lane; ``new`` ones are made for what the job has written, not for inputs, whose lane anybody can choose."""
        found = self.lanes.get(name)
        if found is None and new and len(self.lanes) < LANES_MAX:
            found = self.lanes[name] = LaneModel(name)
        return found


def _letter(record: TopicRecord, json: Json) -> KeptLetter:
    size = (len(json["raw"]) - 2) // 2 if json["whole_bytes"] is None else json["whole_bytes"]
    return KeptLetter(
        record.partition,
        record.offset,
        record.timestamp_ms,
        json["lane"][:TEXT_MAX],
        json["reason"][:TEXT_MAX],
        json["detail"][:TEXT_MAX],
        json["topic"][:TEXT_MAX],
        json["block"],
        json["index"],
        size,
    )
