# SPDX-License-Identifier: Apache-2.0
"""Iterators over output topics: typed records with filters, whose position can be kept and resumed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Self, TypeAlias, TypedDict, TypeVar, cast

from validator.client.records import (
    PARTS,
    ChannelEvent,
    ChannelHeadroom,
    Dispatch,
    Error,
    ParaHeadroom,
    Position,
    Receipt,
    Record,
    Verdict,
)
from validator.codec.json_form import error_fields, to_json, without_never
from validator.errors import UserError, is_below

if TYPE_CHECKING:
    from types import TracebackType

    from validator.client.backend import Reading
    from validator.kafka.reader import TopicRecord


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """A record of a plugin's topic. Its schema names the ``fields``; hashes and payloads are bytes."""

    fields: Mapping[str, Any]
    at: Position

    @property
    def lane(self) -> str | None:
        """The lane that it is about, if it names one."""
        return self.fields.get("lane")

    @property
    def paras(self) -> tuple[int, ...]:
        """The paras that it names."""
        named = (self.fields.get(name) for name in ("para_id", "sender", "recipient"))
        return tuple(para for para in named if isinstance(para, int))


R = TypeVar("R", bound=Record | PluginRecord)

POLL_S: Final = 0.2
"""Seconds that one poll of a topic waits for records."""


POLLED_MAX: Final = 1_000
"""Records that `Stream.poll` returns at most by default."""


class Positions(TypedDict):
    """Where a stream continues: by partition, the offset after the last record that was taken. It may be kept as JSON.

    ``topic_id`` is Kafka's id of the topic, which is another one once the topic was deleted and made again; None if Kafka names none.
    """

    topic_id: str | None
    offsets: dict[int, int]


Start: TypeAlias = Literal["beginning", "now"] | Positions | Mapping[str, Any] | Mapping[int, int]
"""Where a stream begins: with the first record, with what arrives from now on, at positions kept before, or at offsets by partition."""


class PositionsForeign(UserError):
    """Positions that a topic never had: they belong to another one."""


class PositionsExpired(UserError):
    """Positions behind which Kafka has removed records, for example after retention."""


class Begin(NamedTuple):
    """A `Start` that was checked: offsets by partition, None for what arrives from now on, and the topic that they are of."""

    offsets: Mapping[int, int] | None
    topic_id: str | None = None

    def resolved(self, topic: str, topic_id: str | None, spans: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return the offset that comes first in each partition: that of its first record where the positions have none.

        ``topic`` has the prefix; ``spans`` are the first offset and the one after the last. Raises `PositionsForeign`: the positions
        belong to another topic, a partition does not exist or ends before its offset; `PositionsExpired`: records behind it are gone.
        """
        if self.topic_id is not None and topic_id is not None and self.topic_id != topic_id:
            raise PositionsForeign(
                f"start: expected positions of {topic}, whose id is {topic_id}, found id {self.topic_id}: the topic was deleted and made "
                "again since they were kept, or they belong to another one; start='beginning' reads what there is"
            )
        if self.offsets is None:
            return {partition: end for partition, (_, end) in spans.items()}
        for partition, offset in sorted(self.offsets.items()):
            if partition not in spans:
                raise PositionsForeign(
                    f"start: expected a partition of {topic}, which has 0 to {max(spans)}, found {partition}"
                )
            first, end = spans[partition]
            if not first <= offset <= end:
                there = f"offsets from {first} to {end - 1}" if end > first else "no records"
                refused = PositionsExpired if offset < first else PositionsForeign
                raise refused(
                    f"start: expected the next offset of partition {partition}, found {offset}, but {topic}[{partition}] has {there}: "
                    "leave the partition out to begin with what there is"
                )
        return {partition: self.offsets.get(partition, first) for partition, (first, _) in spans.items()}


BEGINNING: Final = Begin({})
NOW: Final = Begin(None)

_TYPES: Final[dict[str, Any]] = {
    "verdicts": Verdict,
    "dispatches": Dispatch,
    "channel-events": ChannelEvent,
    "headroom": ParaHeadroom,
    "receipts": Receipt,
}


def read_record(topic: str, value: bytes, at: Position) -> Any:
    """Return the `Record` that a Kafka value of a topic, without the prefix, holds. Raises `UserError` for anything else."""
    fields = without_never(to_json(topic, value, digits=bytes))
    for name, items in fields.items():
        if isinstance(items, list):
            part = PARTS.get(name)
            fields[name] = tuple(items if part is None else (part(**item) for item in items))
    if topic == "verdicts":
        error = None if fields.pop("ok") else fields["error"]
        fields["error"] = error and Error(error["kind"], error["clause"], error_fields(error))
    is_channel = topic == "headroom" and "para_id" not in fields
    return (ChannelHeadroom if is_channel else _TYPES[topic])(**fields, at=at)


class Wanted(NamedTuple):
    """Which records a stream yields; None and False leave a filter out."""

    lane: str | None = None
    para: int | None = None
    rejected: bool = False
    error: str | None = None

    def takes(self, record: Record | PluginRecord) -> bool:
        """Return whether a record is wanted."""
        if self.lane is not None and record.lane != self.lane:
            return False
        if self.para is not None and self.para not in record.paras:
            return False
        if self.error is not None and not (
            isinstance(record, Verdict) and record.error is not None and is_below(record.error.kind, self.error)
        ):
            return False
        return not (self.rejected and getattr(record, "ok", True))


def begin_of(start: Start) -> Begin:
    """Return where to begin. Raises `UserError`."""
    if start == "now":
        return NOW
    if start == "beginning":
        return BEGINNING
    if not isinstance(start, Mapping):
        raise UserError(f"start: expected 'beginning', 'now' or positions, found {start!r}")
    kept: Mapping[Any, Any] = start
    offsets, topic_id = (kept["offsets"], kept.get("topic_id")) if "offsets" in kept else (kept, None)
    try:
        found = {int(partition): int(offset) for partition, offset in offsets.items()}
    except (AttributeError, TypeError, ValueError):
        raise UserError(f"start: expected offsets by partition, found {offsets!r}") from None
    if not found:
        raise UserError(
            "start: expected an offset for at least one partition, found none; 'beginning' starts with the first record"
        )
    return Begin(found, topic_id)


class Stream(Generic[R]):
    """The records of a topic. Iterating ends at the topic's end, or with ``follow`` waits for what arrives.

    A record is taken when the iteration yields it; records that a filter leaves out are taken, too. As a context manager a stream closes
    its connections on exit. Every method raises `UserError` if Kafka does not answer, once the topic was deleted and made again, and for a
    record that cannot be read, which the error names: the records before it come first, and the stream stays there, so the next call raises
    it again. One thread reads a stream; any other may close it.
    """

    def __init__(
        self,
        topic: str,
        reading: Reading,
        wanted: Wanted,
        *,
        follow: bool,
        why: Callable[[], str] | None = None,
        read: Callable[[bytes, Position], R] | None = None,
    ) -> None:
        """``why`` says what the lanes wait for. It may raise `UserError`. ``read`` is for topics of plugins."""
        self._record = partial(read_record, topic) if read is None else read
        self._topic, self._reading, self._wanted, self._follow, self._why = topic, reading, wanted, follow, why
        self._lock = Lock()
        """Held while the reading is in use, so that it can be closed from another thread."""
        self._is_closed = False
        self._unread: deque[TopicRecord] = deque()
        """What a poll has brought and was not read yet: it begins with the record that cannot be read, if there is one."""
        self._waiting: deque[R] = deque()
        self._read = reading.positions()
        """By partition, the offset after the last record that was read, wanted or not."""
        self._taken = dict(self._read)
        """The same for the last record that was taken."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; another thread that waits for records gets a `UserError` within `POLL_S`."""
        if self._is_closed:
            return
        self._is_closed = True  # before the lock is free: a thread that polls in a loop would take it again
        with self._lock:
            self._reading.close()

    @property
    def positions(self) -> Positions:
        """Where another stream continues behind the records that were taken; before the first, that is where this stream began."""
        return {"topic_id": self._reading.topic_id, "offsets": dict(self._taken)}

    def __iter__(self) -> Iterator[R]:
        while True:
            for _ in range(self.look(POLL_S)):
                yield self.next()
            if self.at_end and not self._follow:
                return

    def look(self, timeout_s: float, count: int = 1) -> int:
        """Return how many records are here to be taken with `next`; if they are fewer than ``count``, look once for further ones.

        It waits up to ``timeout_s`` seconds, at most `POLL_S`, and takes none.
        """
        if len(self._waiting) < count:
            self._poll(min(POLL_S, timeout_s))
        return len(self._waiting)

    def next(self) -> R:
        """Take the next record; `look` has said that there is one."""
        record = self._waiting.popleft()
        self._taken[record.at.partition] = record.at.offset + 1
        if not self._waiting:
            self._taken.update(self._read)
        return record

    def poll(self, timeout_s: float, count_max: int = POLLED_MAX) -> list[R]:
        """Return up to ``count_max`` records that are here, or that arrive within ``timeout_s`` seconds; an empty list if none does."""
        deadline = time.monotonic() + timeout_s
        while not self._waiting:
            left = deadline - time.monotonic()
            self._poll(max(0.0, min(POLL_S, left)))
            if left <= 0:
                break
        return [self.next() for _ in range(min(count_max, len(self._waiting)))]

    def take(self, count: int, timeout_s: float = 60.0) -> list[R]:
        """Return the next ``count`` records, which are in memory until then.

        Raises `TimeoutError` if fewer arrive within ``timeout_s`` seconds, and takes none then; it says what the lanes wait for.
        """
        deadline = time.monotonic() + timeout_s
        while self.waiting < count:
            left = deadline - time.monotonic()
            if left <= 0:
                raise self.too_few(count, timeout_s)
            self.look(left, count)
        return [self.next() for _ in range(count)]

    def too_few(self, count: int, timeout_s: float) -> TimeoutError:
        """Return the error of a `take` that has found fewer than ``count`` records in time."""
        found = f"{self._topic}: expected {count} records within {timeout_s:.0f} s, found {self.waiting}"
        try:
            return TimeoutError(found if self._why is None else f"{found}; {self._why()}")
        except UserError as error:  # it may lack the rights to look
            return TimeoutError(f"{found}; why is not known: {error}")

    @property
    def waiting(self) -> int:
        """How many records are here to be taken."""
        return len(self._waiting)

    @property
    def at_end(self) -> bool:
        """Whether the topic was read to its end, and every record was taken."""
        return self._reading.at_end and not self._waiting and not self._unread

    def _poll(self, timeout_s: float) -> None:
        with self._lock:
            if self._is_closed:
                raise UserError(f"{self._topic}: expected an open stream, found a closed one")
            if not self._unread:
                self._unread.extend(self._reading.poll(timeout_s))
        error = self._read_on()
        if not self._unread:  # an end may lie behind the last record
            self._read.update(self._reading.positions())
        if not self._waiting:
            self._taken.update(self._read)
        if error is not None:
            raise error

    def _read_on(self) -> UserError | None:
        """Read what a poll has brought. Return why the first record cannot be read; one behind others waits for the next poll."""
        is_first = True
        while self._unread:
            raw = self._unread[0]
            at = Position(raw.partition, raw.offset)
            try:
                record = self._record(raw.value, at)
            except UserError as error:
                words = str(error).removeprefix(f"{self._topic}: ")
                return UserError(f"{self._topic}[{at.partition}]@{at.offset}: {words}") if is_first else None
            self._unread.popleft()
            self._read[at.partition] = at.offset + 1
            if self._wanted.takes(record):
                self._waiting.append(cast("R", record))
            is_first = False
        return None
