# SPDX-License-Identifier: Apache-2.0
"""Writes test records to Kafka, with one producer per broker since an idempotent one takes half a second to start, and reads them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from confluent_kafka import Producer

from validator.kafka.reader import TopicReader
from validator.kafka.sender import RecordSender
from validator.kafka.settings import producer_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from validator.kafka.reader import TopicRecord

TRANSACTION_S_MAX = 60.0
"""Seconds in which a transaction must end."""


def send(kafka: Mapping[str, Any], prefix: str, records: Iterable[tuple[str, bytes | None, bytes | None]]) -> None:
    """Write (topic without the prefix, key, value) in order; return once the broker has acknowledged all of them."""
    sender = _sender(tuple(sorted(kafka.items())))
    for topic, key, value in records:
        sender.send(prefix + topic, key, value)  # type: ignore[arg-type]  # a foreign record may have no key or no value
    sender.flush()


def in_transactions(kafka: Mapping[str, Any], records: Iterable[tuple[str, bytes | None, bytes | None]]) -> None:
    """Write (topic, key, value) in order, one transaction for each record, so that an offset without a record comes after it."""
    producer = Producer(producer_config(dict(kafka), transactional_id=f"test-{uuid4()}"))
    producer.init_transactions(TRANSACTION_S_MAX)
    for topic, key, value in records:
        producer.begin_transaction()
        producer.produce(topic, value, key)
        producer.commit_transaction(TRANSACTION_S_MAX)


def committed(kafka: Mapping[str, Any], prefix: str, topics: Sequence[str], **options: Any) -> list[TopicRecord]:
    """Return all records, those of a transaction included whose commit has returned while the broker still writes its markers."""
    with TopicReader(kafka, prefix, topics, **options) as reader:
        return list(reader.read_past_transactions(TRANSACTION_S_MAX))


@cache
def _sender(kafka: tuple[tuple[str, Any], ...]) -> RecordSender:
    return RecordSender(dict(kafka), "")
