# SPDX-License-Identifier: Apache-2.0
"""A changed configuration through the real job: what is refused before it is ready, and a rebuild without one of its chains."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from validator_simulators import SimulationSettings

from streaming.run import job_group
from tests.streaming.harness import SAME_WHATEVER_ARRIVES, consume, decoded, produce
from tests.streaming.processes import JobProcess, job, write_configuration
from tests.unit.lanes.chains import Chain, chain
from validator import exit_codes
from validator.kafka.settings import COMMITS, consumer_config
from validator.kafka.topics import create_topics
from validator.topics import INPUT_TOPICS

PREFIX = "changes."
STAYS = chain(SimulationSettings(seed=5, blocks=12))
LEAVES = chain(SimulationSettings(seed=6, blocks=8, lane="kusama"))
EVERY = (*SAME_WHATEVER_ARRIVES, "dead-letters")


def group_offsets(kafka: dict[str, Any]) -> dict[str, int]:
    """Return what the job's consumer group shows to any Kafka tool: no lag, whichever lanes share the partition."""
    consumer = Consumer(consumer_config(kafka, COMMITS, group_id=job_group(PREFIX)))
    try:
        found = consumer.committed([TopicPartition(PREFIX + topic, 0) for topic in INPUT_TOPICS], timeout=60)
        return {each.topic.removeprefix(PREFIX): max(each.offset, 0) for each in found}
    finally:
        consumer.close()


def refused(running: JobProcess, line: str) -> None:
    assert running.end() == exit_codes.USER_ERROR
    assert running.lines[-1].startswith(f"validator: {line}")
    assert not any('"ready"' in each for each in running.lines)


@pytest.mark.long
@pytest.mark.spark
def test_change_is_refused_before_the_job_is_ready(kafka: dict[str, Any], tmp_path: Path) -> None:
    create_topics(kafka, prefix=PREFIX)
    produce(kafka, PREFIX, [*STAYS.records, *LEAVES.records])

    def configured(*chains: Chain, rebuild: bool = False) -> Path:
        return write_configuration(tmp_path, chains, kafka, PREFIX, master="local[2]", rebuild=rebuild)

    with job(configured(STAYS, LEAVES)) as running:
        running.wait_for_records(kafka, PREFIX, "receipts", len(STAYS.blocks) + len(LEAVES.blocks))
        assert running.terminate() == exit_codes.OK
    before = consume(kafka, PREFIX, EVERY)
    assert group_offsets(kafka) == {
        kind: len(each) for kind, each in consume(kafka, PREFIX, tuple(INPUT_TOPICS)).items()
    }

    paras = [{**each, "balance": each.get("balance", 0) + 1} for each in STAYS.table["genesis_paras"]]
    richer = Chain(STAYS.lane, {**STAYS.table, "genesis_paras": paras}, (), ())
    with job(configured(richer, LEAVES)) as running:
        refused(running, f"chains.polkadot.genesis_paras[{paras[0]['para_id']}].balance: lane polkadot began with ")
    with job(configured(STAYS)) as running:
        refused(running, f"chains.kusama: the lane has emitted up to block {LEAVES.blocks[-1].block} ")

    shutil.rmtree(tmp_path / "job")
    with job(configured(richer, LEAVES, rebuild=True)) as running:
        refused(running, "lane polkadot: block ")
    shutil.rmtree(tmp_path / "job")
    produce(kafka, PREFIX, [("candidates", b"kusama", LEAVES.records[0].value)])
    with job(configured(STAYS, rebuild=True), "kusama:removed") as running:
        running.wait_for_records(kafka, PREFIX, "dead-letters", 1)
        assert running.terminate() == exit_codes.OK
    assert [each["event"] for each in running.events()][:4] == ["started", "comparing", "accepted", "ready"]
    after = consume(kafka, PREFIX, EVERY)
    (letter,) = decoded(after, "dead-letters")
    assert letter["lane"] == "kusama"
    assert letter["offset"] == sum(each.topic == "candidates" for each in (*STAYS.records, *LEAVES.records))
    assert {topic: after[topic] for topic in SAME_WHATEVER_ARRIVES} == {
        topic: before[topic] for topic in SAME_WHATEVER_ARRIVES
    }
