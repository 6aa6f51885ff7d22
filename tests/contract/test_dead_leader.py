# SPDX-License-Identifier: Apache-2.0
"""Right after the leader of a topic has died, nobody who reads or counts its committed records gets less than there is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer

from tests.brokers import Cluster
from validator.checkpoint.markers import LaneOnKafka, read_markers
from validator.kafka.settings import producer_config
from validator.kafka.topics import create_topics, list_topics
from validator.lanes.marker import Marker
from validator.topics import DEAD_LETTERS, MARKERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.broker

PREFIX: Final = "dead-leader."
LANES: Final = ("a", "b")
BLOCK: Final = 45
LETTERS: Final = 7
ASKED_S: Final = 15.0
"""Seconds after a death in which everything is asked again and again: a new leader is elected after six, and then catches up."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("dead-leader")) as started:
        create_topics(started.kafka, prefix=PREFIX)
        producer = Producer(producer_config(started.kafka, transactional_id="dead-leader"))
        producer.init_transactions(60)
        for block in range(1, BLOCK + 1):
            producer.begin_transaction()
            for lane in LANES:
                record = Marker(block, {(f"{PREFIX}blocks", 0): block}).encode(lane)
                producer.produce(PREFIX + MARKERS, record.value, record.key, partition=0)
            if block <= LETTERS:
                source = {"source": b"%d" % block}
                producer.produce(PREFIX + DEAD_LETTERS, b"letter", LANES[0].encode(), partition=0, headers=source)
            producer.commit_transaction(60)
        yield started


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """Leave every test a cluster that is whole."""
    yield
    cluster.restart_dead()
    cluster.wait_until_whole()


def asked(kafka: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Return what is asked, by name."""
    return {
        "marker": lambda: LaneOnKafka(kafka, PREFIX, LANES[0]).written().marker.block,
        "markers": lambda: {lane: marker.block for lane, marker in read_markers(kafka, PREFIX).items()},
        "letters": lambda: len(LaneOnKafka(kafka, PREFIX, LANES[0]).dead_letters()),
        "letter ends": lambda: sum(LaneOnKafka(kafka, PREFIX, LANES[0]).dead_letter_ends().values()),
        "topics": lambda: {each.name: each.records for each in list_topics(kafka, prefix=PREFIX)},
    }


@pytest.mark.parametrize("topic", [MARKERS, DEAD_LETTERS])
def test_nobody_gets_less_after_the_death_of_a_leader(cluster: Cluster, topic: str) -> None:
    questions = asked(cluster.kafka)
    before = {name: ask() for name, ask in questions.items()}
    assert before["marker"] == BLOCK
    assert before["letters"] == LETTERS
    leader = cluster.leader(PREFIX + topic)
    assert cluster.nodes[leader].kill()
    ends = time.monotonic() + ASKED_S
    while time.monotonic() < ends:
        assert {name: ask() for name, ask in questions.items()} == before
    assert cluster.leader(PREFIX + topic) != leader
