# SPDX-License-Identifier: Apache-2.0
"""How far each lane is behind its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.kafka.reader import TopicReader
from validator.lanes.marker import Marker
from validator.topics import INPUT_TOPICS

if TYPE_CHECKING:
    from validator.kafka.client import KafkaTable


def lags(kafka: KafkaTable, prefix: str) -> dict[str, int]:
    """Return, by lane, how many offsets of the input topics are beyond its marker; lanes that have emitted nothing are omitted.

    The offsets are those of complete partitions, so lanes that share a partition count each other's records. Raises `UserError` if Kafka
    or a topic is not available.
    """
    with TopicReader(kafka, prefix, ["markers"]) as reader:
        markers = {record.key: Marker.decode(record.value) for record in reader.read_to_end()}
    with TopicReader(kafka, prefix, list(INPUT_TOPICS)) as reader:
        spans = reader.spans()
    return {
        (lane or b"").decode(): sum(
            max(0, end - max(beginning, marker.consumed.get((prefix + topic, partition), 0)))
            for (topic, partition), (beginning, end) in spans.items()
        )
        for lane, marker in markers.items()
    }
