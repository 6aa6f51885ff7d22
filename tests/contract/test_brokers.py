# SPDX-License-Identifier: Apache-2.0
"""The cluster of three brokers does what the tests on it rely on: where things are, and what a fault takes away."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.brokers import NODES, OFFSETS, TRANSACTIONS, Cluster, partition_of
from validator.kafka.settings import COMMITS, admin_config, consumer_config, producer_config
from validator.kafka.topics import create_topics

pytestmark = [pytest.mark.broker, pytest.mark.long]  # of the tests, not of the product

PREFIX = "cluster."
GROUP = "group-a"
WRITER = "writer-ä"
CALL_S = 60.0
STOPPED_S = 0.9


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as started:
        create_topics(started.kafka, prefix=PREFIX)
        in_transaction(writer(started), b"first")
        yield started


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    """Leave every test a cluster that is whole."""
    yield
    cluster.restart_dead()
    cluster.wait_until_whole()


def writer(cluster: Cluster) -> Producer:
    """Return a transactional producer, which ends what an earlier one left open."""
    producer = Producer(producer_config(cluster.kafka, transactional_id=WRITER))
    producer.init_transactions(CALL_S)
    return producer


def in_transaction(producer: Producer, value: bytes) -> None:
    """Write one record, and an offset of the group, in one transaction."""
    producer.begin_transaction()
    producer.produce(PREFIX + "blocks", value)
    group = Consumer({"bootstrap.servers": "unused", "group.id": GROUP}).consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(PREFIX + "blocks", 0, 1)], group, CALL_S)
    producer.commit_transaction(CALL_S)


def blocks(cluster: Cluster, count: int) -> list[bytes]:
    """Read that many committed records."""
    consumer = Consumer(consumer_config(cluster.kafka, COMMITS, group_id="reader"))
    consumer.assign([TopicPartition(PREFIX + "blocks", 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + CALL_S
    while len(found) < count and time.monotonic() < deadline:
        if (message := consumer.poll(1.0)) is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def test_every_topic_has_three_replicas_of_which_two_must_be_in_sync(cluster: Cluster) -> None:
    found = cluster.admin.list_topics(timeout=CALL_S).topics
    assert {OFFSETS, TRANSACTIONS, PREFIX + "verdicts"} <= set(found)
    assert {len(part.replicas) for topic in found.values() for part in topic.partitions.values()} == {len(NODES)}
    asked = [ConfigResource(ResourceType.TOPIC, name) for name in found]
    configs = [future.result() for future in cluster.admin.describe_configs(asked).values()]
    assert {config["min.insync.replicas"].value for config in configs} == {"2"}


def test_coordinators_are_where_the_names_say(cluster: Cluster) -> None:
    (described,) = cluster.admin.describe_consumer_groups([GROUP]).values()
    assert cluster.group_coordinator(GROUP) == described.result().coordinator.id
    partitions = len(cluster.leaders(TRANSACTIONS))
    consumer = Consumer(consumer_config(cluster.kafka, COMMITS, group_id="reader"))
    consumer.assign([TopicPartition(TRANSACTIONS, number, 0) for number in range(partitions)])
    while (message := consumer.poll(CALL_S)) is not None and WRITER.encode() not in (message.key() or b""):
        pass
    assert message is not None
    assert message.partition() == partition_of(WRITER, partitions)
    assert cluster.transaction_coordinator(WRITER) == cluster.leader(TRANSACTIONS, message.partition())
    consumer.close()


def test_the_partition_of_a_name_is_that_of_java() -> None:
    # "polygenelubricants".hashCode() is Integer.MIN_VALUE, of which the absolute value is negative
    assert partition_of("polygenelubricants", 50) == 0
    assert partition_of("a", 1000) == 97
    assert partition_of("ab", 10_000) == 3105


def test_a_killed_leader_is_replaced_and_comes_back(cluster: Cluster) -> None:
    before = cluster.leader(PREFIX + "blocks")
    assert cluster.nodes[before].kill()
    assert cluster.running == set(NODES) - {before}
    cluster.wait(lambda: cluster.leader(PREFIX + "blocks") not in (before, -1), "another node leads")
    in_transaction(writer(cluster), b"by another leader")
    assert cluster.restart_dead() == {before}
    cluster.wait_until_whole()
    assert blocks(cluster, 2)[-1] == b"by another leader"


def test_a_killed_controller_is_replaced(cluster: Cluster) -> None:
    before = cluster.controller()
    assert before in NODES
    cluster.nodes[before].kill()
    cluster.wait(lambda: cluster.controller() not in (before, -1), "another node is the controller")


def test_a_node_that_is_cut_off_from_its_peers_hangs_and_then_follows(cluster: Cluster) -> None:
    before = cluster.leader(PREFIX + "blocks")
    pid = cluster.nodes[before].pid
    with cluster.cut_off(before, clients=False):
        cluster.wait(lambda: _leader_by_others(cluster, before) not in (before, -1), "the others choose a leader")
    cluster.wait_until_whole()
    assert cluster.nodes[before].pid == pid


def _leader_by_others(cluster: Cluster, number: int) -> int:
    """Return the leader that the metadata of the nodes but one names, by a client that knows no other node."""
    kafka = cluster.kafka_of(*(set(NODES) - {number}))
    try:
        found = (
            AdminClient(admin_config(kafka)).list_topics(PREFIX + "blocks", timeout=CALL_S).topics[PREFIX + "blocks"]
        )
    except KafkaException:
        return -1
    partition = found.partitions[0]
    return partition.leader if number not in partition.isrs else -1


def test_a_node_that_is_cut_off_from_clients_answers_once_it_is_back(cluster: Cluster) -> None:
    number = cluster.leader(PREFIX + "blocks")
    producer = Producer(producer_config(cluster.kafka))
    producer.produce(PREFIX + "blocks", b"before")
    assert producer.flush(CALL_S) == 0
    with cluster.cut_off(number, peers=False):
        producer.produce(PREFIX + "blocks", b"held")
        assert producer.flush(3.0) == 1
        assert cluster.out_of_sync() == []
    assert producer.flush(CALL_S) == 0


def test_without_a_majority_of_replicas_nothing_is_taken(cluster: Cluster) -> None:
    producer = Producer(producer_config(cluster.kafka))
    producer.produce(PREFIX + "blocks", b"before")
    assert producer.flush(CALL_S) == 0
    with cluster.stopped(*sorted(NODES)[:2]):
        producer.produce(PREFIX + "blocks", b"waits")
        assert producer.flush(3.0) == 1
    assert producer.flush(CALL_S) == 0


def test_a_node_with_a_slow_disk_takes_records_later(cluster: Cluster) -> None:
    producer = Producer(producer_config(cluster.kafka))

    def seconds() -> float:
        started = time.monotonic()
        producer.produce(PREFIX + "blocks", b"taken")
        assert producer.flush(CALL_S) == 0
        return time.monotonic() - started

    cluster.wait(lambda: seconds() < STOPPED_S / 3, "a record is taken at once")
    number = cluster.leader(PREFIX + "blocks")
    with cluster.slow_disk(number, stopped_s=STOPPED_S):
        cluster.wait(lambda: seconds() > STOPPED_S / 2, "a record is taken late")
