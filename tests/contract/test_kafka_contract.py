# SPDX-License-Identifier: Apache-2.0
"""What the product needs from a broker, checked on each kind of broker that it supports."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from streaming.range_source import committed_ends
from tests.contract.kafka_backends import Backend, Container, embedded, no_docker
from validator.errors import UserError
from validator.kafka.reader import TopicReader
from validator.kafka.retry import answer
from validator.kafka.settings import COMMITS, WHOLE, admin_config, consumer_config, producer_config
from validator.kafka.topics import create_topics, list_topics, topic_config
from validator.kafka.transaction import KafkaGone
from validator.topics import TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.broker
Table = dict[str, object]


@pytest.fixture(scope="module", params=["embedded", "container"])
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Backend, Table]]:
    if request.param == "embedded":
        chosen = embedded(tmp_path_factory.mktemp("contract"))
        chosen.start()
        yield chosen, chosen.kafka
        chosen.stop()
        return
    reason = no_docker()
    if reason is not None:
        pytest.skip(reason)
    container = Container()
    try:
        yield container, {"bootstrap.servers": container.start()}
    finally:
        container.remove()


@pytest.fixture
def kafka(backend: tuple[Backend, Table]) -> Table:
    return backend[1]


def new_topic(kafka: Table, name: str, **config: str) -> str:
    admin = AdminClient(admin_config(kafka))  # kept referenced: otherwise the answer does not arrive
    admin.create_topics([NewTopic(name, 1, config=config)])[name].result()
    return name


def produce(kafka: Table, topic: str, *values: bytes, key: bytes = b"polkadot") -> None:
    producer = Producer(producer_config(kafka))
    for value in values:
        producer.produce(topic, key=key, value=value)
    assert producer.flush(30) == 0


def read_all(kafka: Table, topic: str) -> list[bytes | None]:
    """Read partition 0 from its beginning to its end, committed records only."""
    consumer = Consumer(consumer_config(kafka, WHOLE, group_id="reader"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    while True:
        message = consumer.poll(120)
        assert message is not None, "no answer within 120 s"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            consumer.close()
            return values
        values.append(message.value())


def test_partition_keeps_its_order(kafka: Table) -> None:
    topic = new_topic(kafka, "order")
    values = [b"%d" % number for number in range(5_000)]
    produce(kafka, topic, *values)
    assert read_all(kafka, topic) == values


def test_only_committed_transactions_are_read(kafka: Table) -> None:
    topic = new_topic(kafka, "transactions")
    producer = Producer(producer_config(kafka, transactional_id="transactions"))
    producer.init_transactions(30)
    for value, ending in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        ending(30)
    assert read_all(kafka, topic) == [b"kept"]


def test_new_producer_fences_older_one_with_same_id(kafka: Table) -> None:
    topic = new_topic(kafka, "fencing")
    older, newer = (Producer(producer_config(kafka, transactional_id="fencing")) for _ in range(2))
    older.init_transactions(30)
    older.begin_transaction()
    older.produce(topic, b"of the older")
    newer.init_transactions(30)
    with pytest.raises(KafkaException) as caught:
        older.commit_transaction(30)
    assert caught.value.args[0].name() in {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
    newer.begin_transaction()
    newer.produce(topic, b"of the newer")
    newer.commit_transaction(30)
    assert read_all(kafka, topic) == [b"of the newer"]


def test_group_offset_is_part_of_a_transaction(kafka: Table) -> None:
    topic = new_topic(kafka, "markers")
    place = TopicPartition(topic, 0, 17)
    reader = Consumer(consumer_config(kafka, COMMITS, group_id="markers"))
    offsets = []
    for commit in (False, True):
        # A new producer each time, as the sink makes one after a failure: one that has aborted with records under way can fail again.
        producer = Producer(producer_config(kafka, transactional_id="markers"))
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"value")
        producer.send_offsets_to_transaction([place], reader.consumer_group_metadata(), 30)
        ending = producer.commit_transaction if commit else producer.abort_transaction
        ending(30)
        offsets.append(reader.committed([TopicPartition(topic, 0)], timeout=30)[0].offset)
    reader.close()
    assert offsets == [-1001, 17]  # -1001: no offset is known


def test_largest_candidate_is_accepted(kafka: Table) -> None:
    create_topics(kafka, prefix="large.")
    value = bytes(range(256)) * (5 << 12)  # 5 MiB, the largest proof of validity
    produce(kafka, "large.candidates", value)
    assert read_all(kafka, "large.candidates") == [value]


def test_compaction_keeps_latest_record_of_each_key(kafka: Table) -> None:
    topic = new_topic(
        kafka, "compacted", **{"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    )
    produce(kafka, topic, *(b"%d" % number for number in range(100)))
    for attempt in range(300):
        time.sleep(0.2)
        produce(kafka, topic, b"%d" % attempt, key=b"another")  # makes a new segment: the open one is not compacted
        values = read_all(kafka, topic)
        if b"98" not in values[:100]:
            break
    assert b"99" in values
    assert b"98" not in values[:100]


def test_misspelt_topic_is_not_created(kafka: Table) -> None:
    producer = Producer(producer_config(kafka) | {"message.timeout.ms": 3_000})
    producer.produce("misspelt", b"value")
    producer.flush(30)
    assert "misspelt" not in AdminClient(admin_config(kafka)).list_topics(timeout=30).topics


def test_topics_are_created_once_as_in_the_table(kafka: Table) -> None:
    assert all(state.partitions is None for state in list_topics(kafka, prefix="once."))
    names = ["once." + topic.name for topic in TOPICS]
    assert create_topics(kafka, prefix="once.", partitions=2) == dict.fromkeys(names, True)
    assert create_topics(kafka, prefix="once.", partitions=3) == dict.fromkeys(names, False)
    produce(kafka, "once.blocks", b"1", b"2", b"3")
    states = {state.name: state for state in list_topics(kafka, prefix="once.")}
    assert list(states) == names
    assert {state.partitions for state in states.values()} == {2}
    assert {name: state.records for name, state in states.items() if state.records} == {"once.blocks": 3}
    admin = AdminClient(admin_config(kafka))
    for topic in TOPICS:
        resource = ConfigResource(ResourceType.TOPIC, "once." + topic.name)
        found = admin.describe_configs([resource])[resource].result()
        wanted = topic_config(topic, topic.retention_ms)
        assert {name: found[name].value for name in wanted} == wanted, topic.name


@pytest.mark.parametrize("days", [-400, -1, 1, 400])
def test_writers_clock_does_not_matter(kafka: Table, days: int) -> None:
    create_topics(kafka, prefix="clock.")
    producer = Producer(producer_config(kafka))
    refused: list[object] = []
    before_ms = time.time_ns() // 1_000_000
    for topic in TOPICS:
        at_ms = before_ms + days * 86_400_000
        producer.produce(
            "clock." + topic.name,
            b"x",
            b"key",
            timestamp=at_ms,
            on_delivery=lambda error, _: error and refused.append(error),
        )
    assert producer.flush(60) == 0
    assert refused == []
    with TopicReader(kafka, "clock.", [topic.name for topic in TOPICS]) as reader:
        assert {record.timestamp_ms >= before_ms - 60_000 for record in reader.read_to_end()} == {True}


LAST_WRITE = """
import json, sys
from validator.checkpoint.markers import LaneOnKafka
print([LaneOnKafka(json.loads(sys.argv[1]), "once.", f"lane-{number}").group_block() for number in range(20)])
"""


def start_python(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)])


@contextmanager
def asked_for_ends(kafka: Table, topic: str) -> Iterator[list[Exception]]:
    """Ask for the end of a topic again and again, as the job does before each batch; yield the errors that do not pass."""
    admin, done, errors = AdminClient(admin_config(kafka)), Event(), list[Exception]()

    def ask() -> None:
        while not done.is_set():
            try:
                committed_ends(admin, (topic,), OffsetSpec.latest())
            except KafkaGone:
                continue
            except Exception as error:  # noqa: BLE001 - the test shows it
                errors.append(error)

    asking = Thread(target=ask)
    asking.start()
    yield errors
    time.sleep(1.0)
    done.set()
    asking.join()


def test_data_topics_and_positions_survive_a_restart(backend: tuple[Backend, Table]) -> None:
    broker, kafka = backend
    topic = new_topic(kafka, "restart")
    producer = Producer(producer_config(kafka, transactional_id="restart"))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"before")
    consumer = Consumer(consumer_config(kafka, COMMITS, group_id="restart"))
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 1)], consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    with asked_for_ends(kafka, topic) as errors:
        broker.stop()
        assert broker.start() == kafka["bootstrap.servers"]
    assert errors == [], "what passes is waited for"
    asking = [start_python(LAST_WRITE, json.dumps(kafka)) for _ in range(3)]  # while the coordinator loads
    assert [process.wait(60) for process in asking] == [0, 0, 0]
    (position,) = answer(lambda left_s: consumer.committed([TopicPartition(topic, 0)], timeout=left_s))
    assert position.offset == 1
    consumer.close()
    produce(kafka, topic, b"after")
    assert read_all(kafka, topic) == [b"before", b"after"]


def test_unknown_client_option_is_reported(kafka: Table) -> None:
    with pytest.raises(UserError, match=r'No such configuration property: "secrity\.protocol"'):
        list_topics(kafka | {"secrity.protocol": "SSL"})
