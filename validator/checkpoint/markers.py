# SPDX-License-Identifier: Apache-2.0
"""Reads the markers of all lanes in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from validator.kafka.reader import TopicReader
from validator.lanes.marker import Marker
from validator.topics import MARKERS

if TYPE_CHECKING:
    from validator.kafka.client import KafkaTable


def read_markers(kafka: KafkaTable, prefix: str, *, progress_s: float | None = None) -> dict[str, Marker]:
    """Return the marker of each lane that has one; the empty name has the dead letters that belong to no configured lane.

    ``progress_s`` is of `TopicReader.read_to_end`. Raises `UserError`.
    """
    last: dict[bytes, dict[int, bytes]] = {}
    with TopicReader(kafka, prefix, [MARKERS], nulls=True, patience_s=progress_s) as reader:
        for record in reader.read_to_end(progress_s):
            last.setdefault(record.key or b"", {})[record.partition] = record.value
    return {key.decode(): Marker.merged(values.values()) for key, values in last.items() if any(values.values())}
