# SPDX-License-Identifier: Apache-2.0
"""Retries requests to Kafka after transient errors: the one place that knows which errors are transient, and how long one is retried.

Outages that last longer are waited for in `validator.waiting`; `validator.kafka.calls` bounds the calls of a lane.

librdkafka retries producing, fetching and committing. It returns the errors of other requests to its caller: metadata, offsets, groups and
admin requests. A topic that was just created has no leader for a moment, and a coordinator that just started has to load.

All questions about offsets are asked here, because some answers look like offsets and are none: where a partition's leader has just died,
librdkafka returns -1001 without an error, or the special number that it was asked with. Such an answer is a transient error, too.
"""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import OffsetSpec

from validator.errors import Unavailable, UserError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient, TopicMetadata

    Partition = tuple[str, int]
    """A topic's full name, and one of its partitions."""

T = TypeVar("T")

ANSWER_S_MAX: Final = 15.0
"""Seconds in which Kafka must answer a request, all retries together: a person is waiting."""

ATTEMPT_S_MAX: Final = 3.0
"""Seconds in which Kafka must answer one attempt: Ctrl-C has no effect while a call of librdkafka blocks."""

APPEAR_S_MAX: Final = 2.0
"""Seconds in which every broker learns of a new topic; one that is still unknown then does not exist."""

RETRY_S: Final = 0.1
"""Seconds between an error and the next attempt."""

_NEW_TOPIC: Final = frozenset({
    KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION,
})  # fmt: skip
"""What a broker reports for a topic that another one has just created, and for a misspelt one."""

_PASSING: Final = frozenset(
    {
        # a leader changes, or is elected for the first time
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.LISTENER_NOT_FOUND,
        KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
        KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        # a coordinator or controller changes, or is loading
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_CONTROLLER,
        KafkaError._WAIT_COORD,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.CONCURRENT_TRANSACTIONS,
        # a broker starts, stops or is overloaded
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.THROTTLING_QUOTA_EXCEEDED,
        KafkaError._TRANSPORT,
        KafkaError._PARTIAL,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._RETRY,
        # librdkafka gives up a broker by the address that it was first given, while a question to it is on its way
        KafkaError._DESTROY_BROKER,
        # no partition that was asked about has a leader: so librdkafka says it of offsets while the only broker starts
        KafkaError._NOENT,
    }
)
"""Errors that pass."""


def passes(error: KafkaError) -> bool:
    """Return whether an error is transient. A fatal one is not, nor is an unknown topic after its time."""
    return not error.fatal() and (error.retriable() or error.code() in _PASSING)


def ends_reading(error: KafkaError) -> bool:
    """Return whether a consumer that reads assigned partitions does not continue after an error.

    After one that passes librdkafka continues by itself. It also asks for the coordinator of a group that the consumer never joins, to
    which it may have no right.
    """
    return not passes(error) and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED


def brokers_are_gone(error: KafkaError) -> bool:
    """Return whether a client reports that it has no connection to any broker; it continues by itself once one is back."""
    return error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)


def user_error(error: KafkaError, text: str) -> UserError:
    """Return the error with a text for people: `Unavailable` if it `passes`."""
    return Unavailable(text) if passes(error) else UserError(text)


def answer(question: Callable[[float], T], *, patience_s: float | None = None) -> T:
    """Return what ``question`` returns; retry it while it raises a transient error.

    ``question`` gets the seconds that are left, at most `ATTEMPT_S_MAX`, for the timeout of its call. ``patience_s`` bounds all attempts
    together (`ANSWER_S_MAX`); an unknown topic has `APPEAR_S_MAX` from the first such error on. Raises `confluent_kafka.KafkaException`:
    the first error that is not transient, or the last transient one with the number of attempts.
    """
    patience_s = ANSWER_S_MAX if patience_s is None else patience_s
    began = time.monotonic()
    unknown_since: float | None = None
    attempts = 0
    while True:
        attempts += 1
        try:
            return question(min(max(RETRY_S, began + patience_s - time.monotonic()), ATTEMPT_S_MAX))
        except KafkaException as exception:
            error: KafkaError = exception.args[0]
            if not passes(error) and not is_missing(error):
                raise
            now, deadline = time.monotonic(), began + patience_s
            if is_missing(error):
                unknown_since = now if unknown_since is None else unknown_since
                deadline = min(deadline, unknown_since + APPEAR_S_MAX)
            if now + RETRY_S < deadline:
                time.sleep(RETRY_S)
                continue
            if attempts == 1:
                raise
            raise KafkaException(_counted(error, attempts, now - began)) from exception


def check(error: KafkaError | None) -> None:
    """Raise the error that a response holds for one of its topics or partitions, so that `answer` retries."""
    if error is not None:
        raise KafkaException(error)


def partitions_of(client: Any, topic: str, *, patience_s: float | None = None) -> list[int]:
    """Return the numbers of a topic's partitions; ``client`` is a producer, consumer or admin client.

    Raises `confluent_kafka.KafkaException` as `answer` does; `is_missing` says whether the topic does not exist.
    """

    def ask(left_s: float) -> list[int]:
        return partition_numbers(topic, client.list_topics(topic, timeout=left_s).topics[topic])

    return answer(ask, patience_s=patience_s)


def partition_numbers(topic: str, metadata: TopicMetadata) -> list[int]:
    """Return the numbers of the partitions that metadata name. Raises `confluent_kafka.KafkaException` if they are not known yet."""
    check(metadata.error)
    if not metadata.partitions:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE, f"no partition of {topic} is known yet"))
    return sorted(metadata.partitions)


def offsets_of(
    admin: AdminClient,
    asked: Mapping[TopicPartition, OffsetSpec],
    *,
    committed: bool = False,
    patience_s: float | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset that is asked for of each partition, among all records or only ``committed`` ones. Raises as `answer` does.

    librdkafka's admin client learns nothing from FENCED_LEADER_EPOCH: it would ask with the same old epoch for minutes. Every retry reads
    the metadata first.
    """
    isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def ask(left_s: float) -> dict[TopicPartition, int]:
        futures = admin.list_offsets(dict(asked), isolation_level=isolation, request_timeout=left_s)
        return {place: _known(place, future.result().offset) for place, future in futures.items()}

    return _asked(admin, ask, patience_s) if asked else {}


def spans_of(
    consumer: Consumer, places: Collection[Partition], *, patience_s: float | None = None
) -> dict[Partition, tuple[int, int]]:
    """Return each partition's first offset and its end, as the consumer sees it: of the committed records, or of all.

    `Consumer.get_watermark_offsets` would return the end as the first offset if it does not know that: an empty partition. Raises as
    `answer` does.
    """

    def ask(left_s: float) -> dict[Partition, tuple[int, int]]:
        first, end = (
            {
                (found.topic, found.partition): _known(found, found.offset)
                # as a timestamp, each of these numbers stands for the offset that it names
                for found in consumer.offsets_for_times(
                    [TopicPartition(*place, which) for place in places], timeout=left_s / 2
                )
            }
            for which in (OFFSET_BEGINNING, OFFSET_END)
        )
        return {place: (first[place], end[place]) for place in places}

    return _asked(consumer, ask, patience_s) if places else {}


def committed_of(
    consumer: Consumer, places: Collection[TopicPartition], *, patience_s: float | None = None
) -> list[TopicPartition]:
    """Return the offsets that the consumer's group has committed, each with its metadata; `OFFSET_INVALID` where it has committed none.

    Raises as `answer` does.
    """

    def ask(left_s: float) -> list[TopicPartition]:
        found: list[TopicPartition] = consumer.committed(list(places), timeout=left_s)
        for each in found:
            check(each.error)
            if each.offset != OFFSET_INVALID:
                _known(each, each.offset)
        return found

    return answer(ask, patience_s=patience_s)


def _asked(client: Any, question: Callable[[float], T], patience_s: float | None) -> T:
    """Return the answer to a question about offsets; the metadata are read before each further attempt."""
    attempts = count()

    def ask(left_s: float) -> T:
        deadline = time.monotonic() + left_s
        if next(attempts):
            client.list_topics(timeout=left_s)
        return question(max(RETRY_S, deadline - time.monotonic()))

    return answer(ask, patience_s=patience_s)


def _known(place: TopicPartition, offset: int) -> int:
    """Return an offset. Raises `confluent_kafka.KafkaException`: the error of its partition, or a transient one if it is no offset."""
    check(place.error)
    if offset < 0:
        at = f"{place.topic}[{place.partition}]"
        raise KafkaException(
            KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, f"no offset of {at} is known yet, found {offset}")
        )
    return offset


def is_missing(error: KafkaError) -> bool:
    """Return whether an error says that a topic or partition does not exist."""
    return error.code() in _NEW_TOPIC


def missing_topics(client: Any, topics: Iterable[str], *, patience_s: float | None = None) -> list[str]:
    """Return the topics that do not exist. Lists all topics: asking for a single one might create it. Raises as `answer` does."""
    wanted, missing = tuple(topics), list[str]()

    def ask(left_s: float) -> None:
        known = client.list_topics(timeout=left_s).topics
        missing[:] = [topic for topic in wanted if topic not in known]
        if missing:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))

    try:
        answer(ask, patience_s=patience_s)
    except KafkaException as error:
        if not is_missing(error.args[0]):
            raise
    return missing


def await_broker(client: Any, *, patience_s: float | None = None) -> None:
    """Return once any broker answers; for a consumer that reports that all brokers are gone.

    Raises `confluent_kafka.KafkaException` as `answer` does.
    """
    answer(lambda left_s: client.list_topics(timeout=left_s), patience_s=patience_s)


def _counted(error: KafkaError, attempts: int, waited_s: float) -> KafkaError:
    return KafkaError(error.code(), f"{error.str()}; {attempts} attempts in {waited_s:.0f} s")
