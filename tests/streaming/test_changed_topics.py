# SPDX-License-Identifier: Apache-2.0
"""Input topics that change while the job runs: partitions are added, a topic is deleted and created again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from tests.added_partitions import add_partitions
from tests.streaming.harness import (
    Stream,
    consume,
    decoded,
    first_difference,
    last_status,
    of_lane,
    produce,
    wait_until,
)
from tests.streaming.processes import job, write_configuration
from tests.streaming.reference import IMMEDIATE, chains, definition, reference
from validator import exit_codes
from validator.kafka.retry import partitions_of
from validator.kafka.settings import admin_config
from validator.kafka.topics import create_topics, list_topics
from validator.topics import INPUT_TOPICS

CHAIN = chains()[0]
EARLY = 20
"""The last block whose records are there before the topics change."""

EARLY_RECORDS = [record for record in CHAIN.records if record.block <= EARLY]
LATER_RECORDS = [record for record in CHAIN.records if record.block > EARLY]


def test_partitions_are_added_to_every_input_topic(stream: Callable[..., Stream]) -> None:
    """Records of one block are then in several partitions of a topic, in which nothing says what came first."""
    running = stream({CHAIN.lane: definition(IMMEDIATE)})
    running.produce(EARLY_RECORDS)
    running.start()
    running.settle()
    for topic in INPUT_TOPICS:
        add_partitions(running.kafka, running.prefix + topic)
    spread(running.kafka, running.prefix, LATER_RECORDS)
    blocks = sum(record.topic == "blocks" for record in CHAIN.records)
    receipts = lambda: len(decoded(running.outputs(), "receipts"))  # noqa: E731
    running.wait_for(lambda: receipts() == blocks, "every block is executed")
    running.stop()
    outputs = running.outputs()
    assert first_difference(of_lane(outputs, CHAIN.lane), reference(IMMEDIATE)) is None
    assert last_status(outputs, CHAIN.lane)["consumed"] == len(CHAIN.records)


def spread(kafka: Any, prefix: str, records: Any) -> None:
    """Write records to all partitions in turn, as producers do that do not know how keys were divided before."""
    from confluent_kafka import Producer

    from validator.kafka.settings import producer_config

    producer = Producer(producer_config(kafka))
    for number, record in enumerate(records):
        producer.produce(prefix + record.topic, record.value, record.lane.encode(), partition=number % 3)
    assert producer.flush(60) == 0


def recreate(kafka: Any, name: str) -> None:
    """Delete a topic and create it again."""
    admin = AdminClient(admin_config(kafka))
    for future in admin.delete_topics([name]).values():
        future.result()
    wait_until(lambda: name not in admin.list_topics(timeout=10).topics, f"{name} is gone", Path("none"))
    prefix = name.removesuffix("candidates")

    def created() -> bool:
        create_topics(kafka, prefix=prefix)
        return all(state.partitions for state in list_topics(kafka, prefix=prefix)) and bool(partitions_of(admin, name))

    wait_until(created, f"{name} is there again", Path("none"))


@pytest.mark.long  # the job looks twice, two minutes apart
@pytest.mark.spark
def test_a_topic_that_is_created_again_is_noticed_with_its_first_batch(kafka: dict[str, Any], tmp_path: Path) -> None:
    """The new topic has more records than the one before, so that no offset says so; none of them is executed."""
    prefix = "recreated."
    create_topics(kafka, prefix=prefix)
    produce(kafka, prefix, EARLY_RECORDS)
    blocks = sum(record.topic == "blocks" for record in EARLY_RECORDS)
    with job(write_configuration(tmp_path, (CHAIN,), kafka, prefix)) as running:
        running.wait_for_records(kafka, prefix, "receipts", blocks)
        recreate(kafka, f"{prefix}candidates")
        produce(kafka, prefix, [record for record in CHAIN.records if record.topic == "candidates"])
        produce(kafka, prefix, [record for record in LATER_RECORDS if record.topic != "candidates"])
        assert running.end() == exit_codes.USER_ERROR
        said = running.lines[-1]
    assert said.startswith(f"validator: {prefix}candidates has id ")
    assert "check [kafka] bootstrap.servers; if the topics were created again, remove the checkpoint" in said
    assert len(decoded(consume(kafka, prefix, ("receipts",)), "receipts")) == blocks, (
        "nothing of the other topic is executed"
    )
