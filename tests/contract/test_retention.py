# SPDX-License-Identifier: Apache-2.0
"""Retention has removed inputs: a lane that starts over reports the missing block."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from validator_simulators import SimulationSettings

from tests.codecs import codec_for
from tests.sending import send
from tests.unit.lanes.chains import Record, chain, config_of, definition_of
from validator.checkpoint.kafka import cut_inputs, missing_blocks
from validator.kafka.settings import admin_config
from validator.kafka.topics import create_topics

CODEC = codec_for()
CHAIN = chain(SimulationSettings(seed=3, blocks=12, candidates_per_block=4, first_block=100))
AHEAD = 1000


@pytest.fixture
def prefix(kafka: dict[str, Any], request: pytest.FixtureRequest) -> str:
    name = re.sub("[^a-z-]+", "-", f"cut-{request.node.name}") + "."
    create_topics(kafka, prefix=name)
    write(kafka, name, CHAIN.records)
    return name


def write(kafka: dict[str, Any], prefix: str, records: Iterable[Record]) -> None:
    send(kafka, prefix, [(record.topic, record.lane.encode(), record.value) for record in records])


def of_topic(topic: str) -> list[Record]:
    return [record for record in CHAIN.records if record.topic == topic]


def cut(kafka: dict[str, Any], prefix: str, topic: str, records: int) -> None:
    """Remove the first records of a topic, as retention does."""
    admin = AdminClient(admin_config(kafka))
    for future in admin.delete_records([TopicPartition(prefix + topic, 0, records)]).values():
        future.result()


def test_complete_topics_miss_nothing(kafka: dict[str, Any], prefix: str) -> None:
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: 100}, AHEAD) == {}
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: 100, "kusama": 5}, AHEAD) == {}
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: 50}, AHEAD) == {}, (
        "a record that never arrived may still arrive"
    )


def test_missing_blocks_are_reported(kafka: dict[str, Any], prefix: str) -> None:
    cut(kafka, prefix, "blocks", 3)
    expected = (100, f"{prefix}blocks begins with block 103")
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: 100}, AHEAD) == {CHAIN.lane: expected}
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: 103}, AHEAD) == {}
    lacks = f"{prefix}blocks holds no record of the lane"
    assert missing_blocks(kafka, prefix, CODEC, {"kusama": 7}, AHEAD) == {"kusama": (7, lacks)}

    config = config_of(CHAIN, kafka=kafka, topics={"prefix": prefix})
    lack = cut_inputs(config, {CHAIN.lane: definition_of(CHAIN)}, kafka)
    assert lack is not None
    assert lack.fact == f"lane polkadot: block 100 is missing: {prefix}blocks begins with block 103"
    assert lack.advice.startswith("retention has removed the rest, and the lane cannot start with block 100: import ")


@pytest.mark.parametrize("topic", ["candidates", "channel-requests", "downward-messages"])
def test_missing_records_of_a_block_are_reported(kafka: dict[str, Any], prefix: str, topic: str) -> None:
    first = of_topic(topic)[0].block
    of_first = sum(record.block == first for record in of_topic(topic))
    following = of_topic(topic)[of_first].block
    cut(kafka, prefix, topic, 1)
    lacks = f"{prefix}{topic} holds {of_first - 1} of its {of_first} records"
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: 100}, AHEAD) == {CHAIN.lane: (first, lacks)}
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: following}, AHEAD) == {}
    cut(kafka, prefix, topic, len(of_topic(topic)))
    lacks = f"{prefix}{topic} holds 0 of its {of_first} records"
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: 100}, AHEAD) == {CHAIN.lane: (first, lacks)}
    # with the blocks gone too, the report names the first missing block
    cut(kafka, prefix, "blocks", 1)
    assert missing_blocks(kafka, prefix, CODEC, {CHAIN.lane: 100}, AHEAD)[CHAIN.lane][0] == 100


def test_records_out_of_order_are_found(kafka: dict[str, Any], prefix: str) -> None:
    """What was removed may belong to an earlier block; records of the first block can follow those of a later one."""
    name = prefix + "late."
    create_topics(kafka, prefix=name)
    candidates = of_topic("candidates")
    of_first = [record for record in candidates if record.block == candidates[0].block]
    others = [record for record in candidates if record not in of_first]
    write(kafka, name, [candidates[0], *others, *of_first, *of_topic("blocks")])
    cut(kafka, name, "candidates", 1)
    assert missing_blocks(kafka, name, CODEC, {CHAIN.lane: 100}, AHEAD) == {}
    assert missing_blocks(kafka, name, CODEC, {CHAIN.lane: 100}, 1)[CHAIN.lane][0] == candidates[0].block
