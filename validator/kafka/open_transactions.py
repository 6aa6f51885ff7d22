# SPDX-License-Identifier: Apache-2.0
"""Finds transactions that hold up whoever reads committed records: of a producer that has neither committed nor aborted.

librdkafka's admin client cannot ask who the producer is (DescribeProducers, ListTransactions); Kafka's own program can.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from validator.kafka.reader import POLL_S, TopicReader
from validator.kafka.retry import offsets_of, partitions_of, user_error
from validator.kafka.settings import UNCOMMITTED, admin_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from validator.kafka.settings import KafkaTable

OPEN_S_MIN: Final = 10.0
"""Seconds that a transaction is open before it is worth a word: producers commit all the time."""

RECORD_S_MAX: Final = 5.0
"""Seconds in which the first record of an open transaction must come."""


class OpenTransaction(NamedTuple):
    """An open transaction by the place of its first record, and the time of that in Unix time; ``topic`` is the full name."""

    topic: str
    partition: int
    offset: int
    since_ms: int

    def words(self, kafka: KafkaTable) -> str:
        """Describe it in one line."""
        bootstrap = admin_config(kafka)["bootstrap.servers"]
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            f"an open transaction of a producer since {since} on {self.topic}-{self.partition}, offset {self.offset}: what follows waits "
            f"for it; Kafka's `kafka-transactions.sh --bootstrap-server {bootstrap} describe-producers --topic {self.topic} --partition "
            f"{self.partition}` names the producer"
        )


def open_transactions(
    kafka: KafkaTable, topics: Iterable[str], *, now_s: float | None = None, patience_s: float | None = None
) -> list[OpenTransaction]:
    """Return the transactions on some topics, by full names, that have been open for `OPEN_S_MIN` seconds: the first of each partition.

    Raises `UserError` if a topic does not exist, and `Unavailable` if Kafka does not answer.
    """
    try:
        admin = AdminClient(admin_config(kafka))
        latest = OffsetSpec.latest()
        asked = {
            TopicPartition(topic, number): latest
            for topic in topics
            for number in partitions_of(admin, topic, patience_s=patience_s)
        }
        ends = offsets_of(admin, asked, patience_s=patience_s)
        stable = offsets_of(admin, asked, committed=True, patience_s=patience_s)  # later, so what lies between is open
        places = [(place.topic, place.partition, stable[place]) for place, end in ends.items() if stable[place] < end]
        found = _with_times(kafka, places)
    except KafkaException as error:
        reason = error.args[0]
        raise user_error(reason, f"open transactions cannot be looked for: {reason.str()} ({reason.name()})") from error
    now_s = time.time() if now_s is None else now_s
    return [each for each in found if now_s - each.since_ms / 1000 >= OPEN_S_MIN]


def _with_times(kafka: KafkaTable, places: Sequence[tuple[str, int, int]]) -> list[OpenTransaction]:
    """Return transactions with the times of their first records, without those that end meanwhile."""
    if not places:
        return []
    left, found = {place[:2]: place[2] for place in places}, []
    with TopicReader(
        kafka, "", sorted({topic for topic, _ in left}), reading=UNCOMMITTED, nulls=True, keeps_form=True
    ) as reader:
        reader.start_at(left)
        deadline = time.monotonic() + RECORD_S_MAX
        while left and time.monotonic() < deadline:
            for record in reader.poll(POLL_S):
                place = record.topic, record.partition
                if record.offset == left.pop(place, None):
                    found.append(OpenTransaction(*place, record.offset, record.timestamp_ms))
    return sorted(found)
