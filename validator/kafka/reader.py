# SPDX-License-Identifier: Apache-2.0
"""Reads committed records as an observer: it joins no consumer group and commits no offsets."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from validator.errors import Unavailable, UserError
from validator.kafka import retry
from validator.kafka.client import admin_config, consumer_config
from validator.kafka.consume import NOT_UNPACKED, UNPACKED_BYTES_MAX, NotUnpacked, available
from validator.kafka.newest import Newest
from validator.kafka.refusals import why
from validator.kafka.registry import plain_values
from validator.kafka.retry import (
    answer,
    await_broker,
    brokers_are_gone,
    ends_reading,
    is_missing,
    offsets_of,
    partitions_of,
    user_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka import Message

    from validator.kafka.client import KafkaTable

RECORDS_PER_POLL: Final = 1_000
SPARING_RECORDS_PER_POLL: Final = 16
_SPARING: Final = {
    "fetch.message.max.bytes": 1,
    "queued.max.messages.kbytes": 16 * 1024,
    "receive.message.max.bytes": UNPACKED_BYTES_MAX,
}
"""Fetches hold one batch of a producer, and are begun while less than 16 MiB of values are left."""
POLL_S: Final = 0.2
"""Seconds that one poll of the topics waits for records."""


class TopicRecord(NamedTuple):
    """A Kafka record; ``topic`` is without the prefix, ``timestamp_ms`` is Unix time."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


class TopicReader:
    """Reads all partitions of some topics, or the ``partitions`` of one topic.

    It starts at the first record or, with ``tail``, that many offsets before each partition's end. Records without a value, which delete a
    key from a compacted topic, are left out; with ``nulls`` they are returned with an empty value. Kafka has ``patience_s``, by default
    `retry.ANSWER_S_MAX`, to answer a request, and to come back if all brokers are gone. With ``sparing`` it holds few records in advance: a
    fetch is bounded in compressed bytes only, and may otherwise become gigabytes. Values in Confluent's framing are returned in their plain
    form, unless it ``keeps_form`` or the schema registry does not know their ids. ``missing`` says what to do about a topic that does not
    exist. With ``newest`` it leaves out what `Newest` knows to be older than what it has returned of the same key. As a context manager it
    closes its connections on exit.
    Every method raises `UserError` if the topics do not exist, and `Unavailable` if no broker answers.
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
        sparing: bool = False,
        keeps_form: bool = False,
        newest: bool = False,
        missing: str = "create the topics with `validator topics create`",
    ) -> None:
        self._kafka = kafka
        self._plain = bytes if keeps_form else plain_values(kafka)
        self._left: list[Message] = []
        """Messages of a poll that failed: the schema registry did not answer."""
        self._prefix = prefix
        self._topics = [prefix + topic for topic in topics]
        self._missing = missing
        self._nulls = nulls
        self._newest = Newest() if newest else None
        self._patience_s = retry.ANSWER_S_MAX if patience_s is None else patience_s
        config = consumer_config(kafka, group_id="validator-reader", partition_eof=True)
        if sparing:
            config |= _SPARING
        self._records_per_poll = SPARING_RECORDS_PER_POLL if sparing else RECORDS_PER_POLL
        self._bootstrap = config["bootstrap.servers"]
        self._ends: dict[tuple[str, int], int] = {}
        """By full topic and partition, the last end that was reached."""
        self._read_on: set[tuple[str, int]] = set()
        """Partitions with records since their last end."""
        self._next: dict[tuple[str, int], int] = {}
        """By full topic and partition, the offset after the last record; whatever comes from before it has been returned."""
        self._wanted: list[TopicPartition] | None = None
        """Where the next poll begins, None if it continues."""
        with self._translated():
            self._consumer = Consumer(config)
        try:
            with self._translated():
                self._go_to(self._places(topics, partitions, tail))
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    @property
    def at_end(self) -> bool:
        """Whether every partition has been read to its end at least once."""
        return all(place in self._ends for place in self._assigned)

    @property
    def caught_up(self) -> bool:
        """Whether every partition was at its end when its last records were returned: no transaction has been read in part."""
        return self.at_end and not self._read_on

    def end_of(self, topic: str, partition: int) -> int:
        """Return the offset at which a partition ended when it was last read to its end; 0 if it never was."""
        return self._ends.get((self._prefix + topic, partition), 0)

    def poll(self, timeout_s: float) -> list[TopicRecord]:
        """Return the records that have arrived, waiting up to ``timeout_s`` for them."""
        records = []
        with self._translated():
            if self._wanted is not None:
                self._consumer.assign(self._wanted)
                self._wanted = None
            self._left = self._left or available(self._consumer, self._records_per_poll, timeout_s)
        # the registry may not answer: then the next poll begins with the same messages
        values = [self._plain(_bytes(each.value()) or b"") if each.error() is None else b"" for each in self._left]
        messages, self._left = self._left, []
        for message, value in zip(messages, values, strict=True):
            error = message.error()
            if error is None:
                topic = message.topic()
                if message.offset() < self._next.get((topic, message.partition()), 0):
                    continue
                self._next[topic, message.partition()] = message.offset() + 1
                self._read_on.add((topic, message.partition()))
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
            elif brokers_are_gone(error):
                with self._translated():
                    await_broker(self._consumer, patience_s=self._patience_s)
            elif error.code() in NOT_UNPACKED:
                at = f"{message.topic()}[{message.partition()}]"
                raise NotUnpacked(f"records of {at} cannot be unpacked: {error.str()} ({error.name()})")
            elif ends_reading(error):
                raise self._user_error(error, message.topic())
        return records

    def read_to_end(self, progress_s: float | None = None) -> Iterator[TopicRecord]:
        """Yield every committed record up to the end of each partition, which is the start of its first open transaction.

        With ``progress_s`` wait for these transactions, as `read_past_transactions` does.
        """
        if progress_s is not None:
            yield from self.read_past_transactions(progress_s)
            return
        while True:
            yield from self.poll(POLL_S)
            if self.at_end:
                return

    def ends(self) -> dict[tuple[str, int], int]:
        """Return, by full topic and partition, the present end: the offset after the last record, committed or not."""
        with self._translated():
            return self._ends_with_uncommitted()

    def read_past_transactions(
        self, progress_s: float, ends: Mapping[tuple[str, int], int] | None = None
    ) -> Iterator[TopicRecord]:
        """Yield every committed record up to the present end, or earlier ``ends``, waiting for the transactions that are open before it.

        Raises `Unavailable` if there is no progress for ``progress_s`` seconds.
        """
        wanted = {place: end for place, end in (self.ends() if ends is None else ends).items() if end}
        deadline = time.monotonic() + progress_s
        while any(self._ends.get(place, -1) < end for place, end in wanted.items()):
            records = self.poll(POLL_S)
            if records:
                deadline = time.monotonic() + progress_s
            elif time.monotonic() > deadline:
                topics = ", ".join(sorted({topic for topic, _ in wanted}))
                raise Unavailable(f"{topics} cannot be read to its end: a transaction may be open there")
            yield from records

    def restart(self, topic: str, partition: int, offset: int) -> None:
        """Continue with a single partition, from an offset."""
        with self._translated():
            self._go_to([TopicPartition(self._prefix + topic, partition, offset)])

    def start_at(self, topic: str, offsets: Mapping[int, int]) -> None:
        """Continue with the partitions of one topic, each from an offset."""
        with self._translated():
            self._go_to([TopicPartition(self._prefix + topic, *place) for place in sorted(offsets.items())])

    def spans(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return, by topic (without the prefix) and partition, the first available offset and the one after the last."""
        with self._translated():
            return {
                (topic.removeprefix(self._prefix), partition): self._span(TopicPartition(topic, partition))
                for topic, partition in self._assigned
            }

    def _go_to(self, places: list[TopicPartition]) -> None:
        """Let the next poll begin at places.

        Only then is it assigned, and offsets before it are passed over: librdkafka looks up the number behind `OFFSET_BEGINNING` in the
        background, and if another assignment follows meanwhile, the answer moves that one back.
        """
        self._assigned = [(place.topic, place.partition) for place in places]
        self._next = {(place.topic, place.partition): max(place.offset, 0) for place in places}
        self._ends.clear()
        self._read_on.clear()
        self._left = []
        self._wanted = places

    # --- requests to Kafka: each goes through `retry.answer` ---

    def _span(self, place: TopicPartition) -> tuple[int, int]:
        """Return a partition's first offset and the one after its last."""
        first, end = answer(
            lambda left_s: self._consumer.get_watermark_offsets(place, left_s), patience_s=self._patience_s
        )
        return first, end

    def _ends_with_uncommitted(self) -> dict[tuple[str, int], int]:
        """Return the offsets after the last records, committed or not."""
        admin = AdminClient(admin_config(self._kafka))
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in self._assigned}
        ends = offsets_of(admin, asked, patience_s=self._patience_s)
        return {(place.topic, place.partition): end for place, end in ends.items()}

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
                raise UserError(
                    f"topic {name} does not exist at {self._bootstrap} ({error.args[0].str()}): check [topics] prefix, or {self._missing}"
                ) from error
            places += [TopicPartition(name, number, OFFSET_BEGINNING) for number in numbers]
        if tail is not None:
            for place in places:
                low, high = self._span(place)
                place.offset = max(low, high - tail)
        return places

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._user_error(error.args[0]) from error

    def _user_error(self, error: Any, topic: str | None = None) -> UserError:
        right = f"Read on topic {topic or ', '.join(self._topics)}"
        return user_error(error, f"no records can be read at {self._bootstrap}: {why(error, self._kafka, right)}")


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
