# SPDX-License-Identifier: Apache-2.0
"""The consumer group of the whole job: after each batch, its offsets are what every lane has consumed.

A lane's own group has no offset beyond the lane's last record, so its lag grows with every record of another lane on the same partition.
This group's lag does not. It is for people and their tools: the job itself relies on its checkpoint and on the markers.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from validator.kafka.calls import CLOSE, waited_for
from validator.kafka.settings import COMMITS, consumer_config

if TYPE_CHECKING:
    from validator.kafka.settings import KafkaTable


def job_group(prefix: str) -> str:
    """Return the consumer group whose offsets show the job's progress."""
    return f"{prefix}job"


class JobOffsets:
    """Commits the job's offsets. A commit that Kafka does not take is left to the next one."""

    def __init__(self, kafka: KafkaTable, prefix: str) -> None:
        """Raises `confluent_kafka.KafkaException` if the client does not accept its configuration."""
        self._consumer = Consumer(consumer_config(kafka, COMMITS, group_id=job_group(prefix)))

    def commit(self, end: str) -> None:
        """Commit the end of a batch, as the source gives it: JSON, offsets by topic and partition. Does not wait."""
        offsets = [
            TopicPartition(topic, int(partition), offset)
            for topic, partitions in json.loads(end).items()
            for partition, offset in partitions.items()
        ]
        with suppress(KafkaException):
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        """Wait for the last commit and close the connections, if Kafka answers."""
        with suppress(TimeoutError):
            waited_for(CLOSE, self._consumer.close)
