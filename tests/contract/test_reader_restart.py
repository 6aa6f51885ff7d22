# SPDX-License-Identifier: Apache-2.0
"""A reader that goes to another offset, at any moment, continues there and returns each record once."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer

from validator.kafka.reader import TopicReader
from validator.kafka.topics import create_topics

PREFIX = "restart."
RECORDS, FIRST = 4, 1


@pytest.fixture(scope="module")
def filled(kafka: dict[str, Any]) -> dict[str, Any]:
    create_topics(kafka, prefix=PREFIX)
    producer = Producer(kafka)
    for number in range(RECORDS):
        producer.produce(f"{PREFIX}candidates", b"%d" % number, b"a", partition=0)
    producer.flush()
    return kafka


@pytest.mark.parametrize("gap_ms", [None, 0, 1, 2, 4, 8, 16])
def test_restart_while_first_offset_is_being_looked_up(filled: dict[str, Any], gap_ms: int | None) -> None:
    with TopicReader(filled, PREFIX, ["candidates"]) as reader:
        spans = reader.spans()
        if gap_ms is not None:
            reader.poll(0.0)
            time.sleep(gap_ms / 1000)
        reader.start_at({place: FIRST if place == ("candidates", 0) else low for place, (low, _) in spans.items()})
        offsets = [record.offset for record in reader.read_to_end()]
        offsets += [record.offset for _ in range(3) for record in reader.poll(0.1)]
    assert offsets == list(range(FIRST, RECORDS))
