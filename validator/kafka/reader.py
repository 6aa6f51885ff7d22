# SPDX-License-Identifier: Apache-2.0
"""Reads committed records as an observer: it joins no consumer group and commits no offsets.

A bounded reader must not return less than there is. It asks the leaders of its partitions where they begin and end before it reads, and
begins at these offsets itself: where they are gone is an error (`auto.offset.reset`). The end of a fetch counts only if it is not before
the end that was asked for: a broker that has just become a leader may not yet know how far its records are committed, and fetches end
there, while it does not answer the question (KIP-207).
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from validator.errors import Unavailable, UserError
from validator.kafka import retry
from validator.kafka.calls import ASK_ENDS, CALL_S_MAX, CLOSE, OPEN_READER, READ, within
from validator.kafka.refusals import why
from validator.kafka.registry import plain_values
from validator.kafka.retry import (
    await_broker,
    brokers_are_gone,
    committed_of,
    ends_reading,
    is_missing,
    offsets_of,
    partitions_of,
    spans_of,
    user_error,
)
from validator.kafka.settings import WHOLE, admin_config, consumer_config
from validator.kafka.topics import described

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka import Consumer, Message
    from confluent_kafka.admin import TopicDescription

    from validator.kafka.settings import KafkaTable, Reading


POLL_S: Final = 0.2
"""Seconds that one poll of the topics waits for records."""
SILENCE_S_MAX: Final = 60.0
"""Seconds without a record before an end that Kafka has named, after which a reader gives up: fetching the largest value takes less."""


class TopicRecord(NamedTuple):
    """A Kafka record; ``topic`` is without the prefix, ``timestamp_ms`` is Unix time."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


class TopicMissing(UserError):
    """A topic does not exist."""


class TopicReader:
    """Reads all partitions of some topics, or the ``partitions`` of one topic.

    It starts at the first record or, with ``tail``, that many offsets before each partition's end. Records without a value, which delete a
    key from a compacted topic, are left out; with ``nulls`` they are returned with an empty value. Kafka has ``patience_s``, by default
    `retry.ANSWER_S_MAX`, to answer a request, and to come back if all brokers are gone. ``reading`` says how much it holds in advance, and
    whether it continues where others raise (`validator.kafka.settings.Reading`). Values in Confluent's framing are returned in their plain
    form, unless it ``keeps_form`` or the schema registry does not know their ids. With ``newest`` it leaves out what `Newest` knows to be
    older than what it has returned of the same key. Its calls are watched (`validator.kafka.calls`) if a ``lane`` waits for them. Errors
    begin with ``cannot``, and ``missing`` says what to do about a topic that does not exist. As a context manager it closes its connections
    on exit.
    Every method raises `TopicMissing` if a topic does not exist, and `Unavailable` if no broker answers, or one has not, or no longer, what
    lies between the place where the reader is and the end: that may pass, and another reader would begin again.
    """

    def __init__(
        self,
        kafka: KafkaTable,
        prefix: str,
        topics: Sequence[str],
        *,
        partitions: Sequence[int] | None = None,
        tail: int | None = None,
        nulls: bool = False,
        patience_s: float | None = None,
        reading: Reading = WHOLE,
        group_id: str = "validator-reader",
        keeps_form: bool = False,
        newest: bool = False,
        lane: str | None = None,
        cannot: str = "no records can be read at",
        missing: str = "create the topics with `validator topics create`",
    ) -> None:
        self._kafka = kafka
        self._plain = bytes if keeps_form else plain_values(kafka)
        self._left: list[Message] = []
        """Messages of a poll that failed: the schema registry did not answer."""
        self._prefix = prefix
        self._topics = [prefix + topic for topic in topics]
        self._missing = missing
        self._admin: AdminClient | None = None
        """Asks for ends that have nothing to do with transactions, and for topics; the consumer asks where open transactions begin."""
        self._nulls = nulls
        self._newest = Newest() if newest else None
        self._lane = lane
        if patience_s is None:
            patience_s = retry.ANSWER_S_MAX if lane is None else CALL_S_MAX
        self._patience_s = patience_s
        config = consumer_config(kafka, reading, group_id=group_id)
        self._reading, self._group_id, self._cannot = reading, group_id, cannot
        self.bootstrap = config["bootstrap.servers"]
        self._ends: dict[tuple[str, int], int] = {}
        """By full topic and partition, the last end that was reached."""
        self._due: dict[tuple[str, int], int] = {}
        """By full topic and partition, where committed records ended when the reader began: an end before that is none."""
        self._read_on: set[tuple[str, int]] = set()
        """Partitions with records since their last end."""
        self._next: dict[tuple[str, int], int] = {}
        """By full topic and partition, the offset after the last record; whatever comes from before it has been returned."""
        self.heard = 0
        """Messages so far: records, and ends of partitions."""
        self._from_first: set[tuple[str, int]] = set()
        """Partitions that are read from their first record, whichever that is, and of which none has come yet."""
        self._lost: set[tuple[str, int]] = set()
        """Partitions of which a broker did not have what comes next."""
        self._wanted: list[TopicPartition] | None = None
        """Where the next poll begins, None if it continues."""
        with self._translated():
            self._consumer = Consumer(config)
        try:
            opening = OPEN_READER._replace(bound_s=OPEN_READER.bound_s * len(topics))
            with self._translated(), within(opening, lane):
                self._go_to(self._places(topics, partitions, tail))
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with within(CLOSE, self._lane):
            self._consumer.close()

    @property
    def at_end(self) -> bool:
        """Whether every partition has been read at least to where it ended when the reader began."""
        return self._wanted is None and not any(self._lacking(self._due))

    @property
    def caught_up(self) -> bool:
        """Whether every partition was at its end when its last records were returned: no transaction has been read in part."""
        return self.at_end and not self._read_on

    def end_of(self, topic: str, partition: int) -> int:
        """Return the offset at which a partition ended when it was last read to an end; 0 if it never was."""
        return self._ends.get((self._prefix + topic, partition), 0)

    def positions(self) -> dict[tuple[str, int], int]:
        """Return, by topic (without the prefix) and partition, the offset that comes next: after the last record, or the end behind it."""
        return {
            (topic.removeprefix(self._prefix), partition): self._at((topic, partition))
            for topic, partition in self._next
        }

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        """Return the records that have arrived, waiting up to ``timeout_s`` for them."""
        with within(READ, self._lane):
            return self._polled(timeout_s)

    def _polled(self, timeout_s: float) -> list[TopicRecord]:
        records = []
        with self._translated():
            self._begin_wanted()
            if self._lost:
                self._recover()
            self._left = self._left or available(self._consumer, self._reading.records_per_poll, timeout_s)
        # the registry may not answer: then the next poll begins with the same messages
        values = [self._plain(_bytes(each.value()) or b"") if each.error() is None else b"" for each in self._left]
        messages, self._left = self._left, []
        self.heard += len(messages)
        for message, value in zip(messages, values, strict=True):
            error = message.error()
            if error is None:
                topic = message.topic()
                if message.offset() < self._next.get((topic, message.partition()), 0):
                    continue
                self._next[topic, message.partition()] = message.offset() + 1
                self._read_on.add((topic, message.partition()))
                self._from_first.discard((topic, message.partition()))
                if topic is not None and (message.value() is not None or self._nulls):
                    place = message.partition(), message.offset()
                    name, headers = topic.removeprefix(self._prefix), tuple(message.headers() or ())
                    at = message.timestamp()[1]
                    record = TopicRecord(name, *place, _bytes(message.key()), value, at, headers)
                    if self._newest is None or self._newest.takes(record):
                        records.append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[message.topic(), message.partition()] = message.offset()
                self._read_on.discard((message.topic(), message.partition()))
            elif brokers_are_gone(error) and not self._reading.follows:
                with self._translated():
                    await_broker(self._consumer, patience_s=self._patience_s)
            elif error.code() in NOT_UNPACKED:
                at = f"{message.topic()}[{message.partition()}]"
                raise NotUnpacked(f"records of {at} cannot be unpacked: {error.str()} ({error.name()})")
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._lost.add((message.topic(), message.partition()))
            elif ends_reading(error):
                raise self._user_error(error, message.topic())
        return records

    def read_to_end(self, progress_s: float | None = None) -> Iterator[TopicRecord]:
        """Yield every committed record up to the end of each partition, which is the start of its first open transaction.

        With ``progress_s`` wait for these transactions, as `read_past_transactions` does.
        """
        if progress_s is not None:
            yield from self.read_past_transactions(progress_s)
        else:
            yield from self.poll(POLL_S)  # which finds out where the partitions end
            yield from self._read_to(self._due, SILENCE_S_MAX, "its leader may not have it yet")

    def ends(self) -> dict[tuple[str, int], int]:
        """Return, by full topic and partition, the present end: the offset after the last record, committed or not."""
        with self._translated(), within(ASK_ENDS, self._lane):
            asked = {TopicPartition(*place): OffsetSpec.latest() for place in self._assigned}
            ends = offsets_of(self._asks(), asked, patience_s=self._patience_s)
            return {(place.topic, place.partition): end for place, end in ends.items()}

    def topics(self) -> dict[str, TopicDescription]:
        """Return the topics, without the prefix, as they are now: a topic that was deleted and made again has another id."""
        with self._translated():
            found = described(self._asks(), self._topics, patience_s=self._patience_s)
        return {topic.removeprefix(self._prefix): description for topic, description in found.items()}

    def _asks(self) -> AdminClient:
        if self._admin is None:  # an idle client has the length 0, so it is false
            self._admin = AdminClient(admin_config(self._kafka))
        return self._admin

    def read_past_transactions(
        self, progress_s: float, ends: Mapping[tuple[str, int], int] | None = None
    ) -> Iterator[TopicRecord]:
        """Yield every committed record up to the present end, or earlier ``ends``, waiting for the transactions that are open before it.

        Raises `Unavailable` if there is no progress for ``progress_s`` seconds.
        """
        yield from self._read_to(self.ends() if ends is None else ends, progress_s, "a transaction may be open there")

    def _read_to(self, ends: Mapping[tuple[str, int], int], silence_s: float, why: str) -> Iterator[TopicRecord]:
        """Yield records up to ``ends``. Raises `Unavailable` after ``silence_s`` seconds, all in polls, without one."""
        silent_s = 0.0
        while any(self._lacking(ends)):
            heard, began = self.heard, time.monotonic()
            records = self.poll(POLL_S)
            silent_s = 0.0 if self.heard != heard else silent_s + time.monotonic() - began
            if silent_s > silence_s:
                (topic, partition), at, end = next(self._lacking(ends))
                raise Unavailable(
                    f"{topic}[{partition}] cannot be read to its end, {end}: nothing came from offset {at} on for {silence_s:.0f} s: {why}"
                )
            yield from records

    def _lacking(self, ends: Mapping[tuple[str, int], int]) -> Iterator[tuple[tuple[str, int], int, int]]:
        """Yield the partitions that have not been read to their ends, each with the offset that comes next and its end."""
        for place, end in ends.items():
            reached = self._ends.get(place, 0)
            if reached < end:
                yield place, self._at(place), end

    def restart(self, topic: str, partition: int, offset: int) -> None:
        """Continue with a single partition, from an offset."""
        self.start_at({(topic, partition): offset})

    def start_at(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Continue with some partitions, each from an offset."""
        self._go_to(
            [TopicPartition(self._prefix + topic, number, at) for (topic, number), at in sorted(offsets.items())]
        )

    def start_at_committed(self) -> None:
        """Continue where the reader's group has committed, and at the first record of partitions of which it has committed nothing."""
        with self._translated():
            asked = [TopicPartition(*place) for place in self._assigned]
            found = committed_of(self._consumer, asked, patience_s=self._patience_s)
            at = [each.offset if each.offset >= 0 else OFFSET_BEGINNING for each in found]
            places = zip(found, at, strict=True)
            self._go_to([TopicPartition(each.topic, each.partition, offset) for each, offset in places])

    def rest(self) -> None:
        """Fetch nothing until the next place to start at."""
        with self._translated():
            self._consumer.assign([])
        self._left = []

    def begin(self) -> None:
        """Ask now where the partitions begin and end, so that `positions` has them; otherwise the next poll does."""
        with self._translated(), within(ASK_ENDS, self._lane):
            self._begin_wanted()

    def spans(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return, by topic (without the prefix) and partition, the first available offset and the one after the last."""
        with self._translated(), within(ASK_ENDS, self._lane):
            spans = spans_of(self._consumer, self._assigned, patience_s=self._patience_s)
        return {(topic.removeprefix(self._prefix), partition): span for (topic, partition), span in spans.items()}

    def _go_to(self, places: list[TopicPartition]) -> None:
        """Let the next poll begin at places."""
        self._assigned = [(place.topic, place.partition) for place in places]
        self._next.clear()
        self._ends.clear()
        self._due.clear()
        self._read_on.clear()
        self._from_first.clear()
        self._lost.clear()
        self._left = []
        self._wanted = places

    # --- requests to Kafka: each goes through `retry.answer` ---

    def _begin_wanted(self) -> None:
        """Begin to read at the places that are wanted, at the first offset of those that have none."""
        if self._wanted is None:
            return
        places = self._wanted
        spans = spans_of(self._consumer, self._assigned, patience_s=self._patience_s)
        for place in places:
            first, end = spans[place.topic, place.partition]
            self._due[place.topic, place.partition] = end
            if place.offset == OFFSET_BEGINNING:
                self._from_first.add((place.topic, place.partition))
            self._next[place.topic, place.partition] = first if place.offset == OFFSET_BEGINNING else place.offset
        self._assign()
        self._wanted = None

    def _recover(self) -> None:
        """Continue in partitions of which a broker did not have what comes next.

        Raises `Unavailable` if it is gone; if retention removed it, the next poll begins with what is left. A reader that follows just
        continues there.
        """
        spans = spans_of(self._consumer, self._lost, patience_s=self._patience_s)
        removed = []
        for place, (first, end) in spans.items():
            at, where = self._at(place), f"{place[0]}[{place[1]}]"
            if at > end and self._reading.begins_again:
                at = first
            elif at > end:
                raise Unavailable(
                    f"{where} ends at offset {end}, before {at}, which comes next: it was replaced, or has lost records"
                )
            if at < first and place not in self._from_first and not self._reading.follows:
                removed.append(f"retention removed offsets {at} to {first - 1} of {where} before they were read")
            self._next[place] = max(at, first)
        self._lost.clear()
        self._assign()
        if removed:
            raise Unavailable("; ".join(removed))

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*place, self._at(place)) for place in self._next])

    def _at(self, place: tuple[str, int]) -> int:
        """Return the offset that comes next: the markers of transactions take offsets, but are no records."""
        return max(self._next.get(place, 0), self._ends.get(place, 0))

    def _places(
        self, topics: Sequence[str], partitions: Sequence[int] | None, tail: int | None
    ) -> list[TopicPartition]:
        places = []
        for topic in topics:
            name = self._prefix + topic
            try:
                numbers = (
                    partitions_of(self._consumer, name, patience_s=self._patience_s)
                    if partitions is None
                    else partitions
                )
            except KafkaException as error:
                if not is_missing(error.args[0]):
                    raise
                raise TopicMissing(
                    f"topic {name} does not exist at {self.bootstrap} ({error.args[0].str()}): check [topics] prefix, or {self._missing}"
                ) from error
            places += [TopicPartition(name, number, OFFSET_BEGINNING) for number in numbers]
        if tail is not None:
            spans = spans_of(
                self._consumer, [(place.topic, place.partition) for place in places], patience_s=self._patience_s
            )
            for place in places:
                low, high = spans[place.topic, place.partition]
                place.offset = max(low, high - tail)
        return places

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._user_error(error.args[0]) from error

    def _user_error(self, error: Any, topic: str | None = None) -> UserError:
        reason = why(error, self._kafka, f"Read on topic {topic or ', '.join(self._topics)}", group=self._group_id)
        return user_error(error, f"{self._cannot} {self.bootstrap}: {reason}")


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


NOT_UNPACKED: Final = frozenset({KafkaError._BAD_COMPRESSION, KafkaError._BAD_MSG, KafkaError._CRIT_SYS_RESOURCE})
"""What librdkafka reports of a producer's batch that it has no memory to unpack, or that is larger unpacked than it takes."""


class NotUnpacked(UserError):
    """Records cannot be unpacked (`NOT_UNPACKED`)."""


def available(consumer: Consumer, records_max: int, timeout_s: float) -> list[Message]:
    """Return the records that have arrived, at most ``records_max``; wait up to ``timeout_s`` for the first one.

    `Consumer.consume` alone waits its full timeout for a full list, which never comes at the end of a topic. Raises `MemoryError`, also
    where the client itself raises something else.
    """
    try:
        first = consumer.poll(timeout_s)
        if first is None or records_max == 1:
            return [] if first is None else [first]
        return [first, *consumer.consume(records_max - 1, 0)]
    except SystemError as error:  # "returned a result with an exception set"
        if isinstance(error.__cause__ or error.__context__, MemoryError):
            raise MemoryError from error
        raise


class _Last(NamedTuple):
    partition: int
    timestamp_ms: int


class Newest:
    """Finds which records are older than one of their key that came before.

    Added partitions change the partition of most keys. The last record in the former one stays forever, and partitions are read in any
    order. Inside a partition the order decides, between partitions the time, which is the broker's. Clocks of brokers may differ by a
    moment, so this is for what people are shown, which is written again. What decides about output has numbers (`Marker.merged`).
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, bytes | None], _Last] = {}

    def takes(self, record: TopicRecord) -> bool:
        """Return whether nothing newer of the record's key came from another partition, and note the record."""
        key, found = (record.topic, record.key), _Last(record.partition, record.timestamp_ms)
        last = self._last.get(key, found)
        if record.partition != last.partition and record.timestamp_ms < last.timestamp_ms:
            return False
        self._last[key] = found
        return True
