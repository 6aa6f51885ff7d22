# SPDX-License-Identifier: Apache-2.0
"""What Kafka has of a lane besides its output: the marker, who wrote it, the last receipt, and the offsets of its group."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from validator_simulators import SimulationSettings

from tests.added_partitions import add_partitions
from tests.contract.test_lane_writer import LANE, block, committed, dead_letters_at, opened
from tests.unit.lanes.chains import chain, definition_of, inputs_of
from validator.checkpoint import markers
from validator.checkpoint.markers import LaneOnKafka, group_of, partition_of, read_markers
from validator.codec.encode import BlockOutput
from validator.kafka.settings import COMMITS, admin_config, consumer_config, producer_config
from validator.kafka.topics import create_topics
from validator.kafka.transaction import KafkaGone
from validator.lanes.marker import ForeignMarker, Marker
from validator.lanes.processor import LaneProcessor
from validator.topics import MARKERS, RECEIPTS


@pytest.fixture
def prefix(kafka: dict[str, Any], request: pytest.FixtureRequest) -> str:
    name = f"marker-{request.node.name.removeprefix('test_')[:40]}."
    create_topics(kafka, prefix=name)
    return name


def test_marker_survives_deleted_group_offsets(kafka: dict[str, Any], prefix: str) -> None:
    """Kafka forgets the offsets of a group that is idle for a week; this test deletes them."""
    inputs = prefix + "candidates"
    for lane, last in ((LANE, 1), ("kusama", 9), (LANE, 2)):
        sink = opened(kafka, prefix)
        sink.write(lane, [block(last), dead_letters_at(last, topic=inputs)])
        sink.commit(lane, {(inputs, 0): last + 1})
    await_group(kafka, prefix, 2)
    admin = AdminClient(admin_config(kafka))
    for future in admin.delete_consumer_groups([group_of(prefix, LANE)]).values():
        future.result()
    assert LaneOnKafka(kafka, prefix, LANE).written().marker == Marker(2, {(inputs, 0): 3})
    successor = opened(kafka, prefix)
    successor.write(LANE, [block(2, "again"), dead_letters_at(2, topic=inputs), block(3)])
    successor.commit(LANE, {(inputs, 0): 4})
    assert committed(kafka, prefix + "verdicts") == [b"1", b"9", b"2", b"3"]
    assert len(committed(kafka, prefix + "dead-letters")) == 3
    assert LaneOnKafka(kafka, prefix, LANE).written().marker == Marker(3, {(inputs, 0): 4})


def await_group(kafka: dict[str, Any], prefix: str, block: int) -> None:
    """Wait until the lane's group has a block: it gets it at some time after the commit."""
    for _ in range(600):
        if LaneOnKafka(kafka, prefix, LANE).group_block() == block:
            return
        time.sleep(0.2)
    raise AssertionError("the group does not get the block")


def test_group_gets_what_was_committed_for_peoples_tools(kafka: dict[str, Any], prefix: str) -> None:
    sink = opened(kafka, prefix)
    sink.write(LANE, [block(5)])
    sink.commit(LANE, {(prefix + "candidates", 0): 7, (prefix + "blocks", 0): 0})
    await_group(kafka, prefix, 5)
    consumer = Consumer(consumer_config(kafka, COMMITS, group_id=group_of(prefix, LANE)))
    asked = [TopicPartition(prefix + topic, 0) for topic in ("candidates", "blocks", "markers")]
    assert [each.offset for each in consumer.committed(asked, timeout=60)] == [7, OFFSET_INVALID, 6]
    consumer.close()


def test_marker_behind_its_group_is_refused_until_kafka_shows_the_last_one(kafka: dict[str, Any], prefix: str) -> None:
    first = opened(kafka, prefix)
    first.write(LANE, [block(5)])
    first.commit(LANE, {})
    consumer = Consumer(consumer_config(kafka, COMMITS, group_id=group_of(prefix, LANE)))
    await_group(kafka, prefix, 5)
    consumer.commit(offsets=[TopicPartition(prefix + MARKERS, 0, 8)], asynchronous=False)
    consumer.close()
    with pytest.raises(
        KafkaGone, match="does not show the last marker of lane polkadot: it shows one at block 5, but block 7 is "
    ):
        opened(kafka, prefix).write(LANE, [block(6)])
    producer = Producer(producer_config(kafka))
    producer.produce(prefix + MARKERS, Marker(7).encode(LANE).value, LANE.encode(), partition=0)
    assert producer.flush(60) == 0
    later = opened(kafka, prefix)
    later.write(LANE, [block(6), block(7), block(8)])
    assert later.commit(LANE, {}) == {"verdicts": 1}


def executed(blocks: int) -> list[BlockOutput]:
    """Return what a lane emits for its first blocks, with its receipts."""
    of = chain(SimulationSettings(seed=5, blocks=blocks, candidates_per_block=1, lane=LANE))
    processor = LaneProcessor.create(definition_of(of))
    return [each for each in processor.process(inputs_of(of.records)) if each.block is not None]


def test_marker_that_the_lane_did_not_write_is_found_and_corrected(kafka: dict[str, Any], prefix: str) -> None:
    """One record is enough, whoever may write it, to let a lane execute without a word."""
    outputs = executed(3)
    inputs = Producer(producer_config(kafka))
    for value in (b"1", b"2"):
        inputs.produce(prefix + "candidates", value, LANE.encode(), partition=0)
    assert inputs.flush(60) == 0
    sink = opened(kafka, prefix)
    sink.confirm(LANE, corrects=False)
    sink.write(LANE, outputs[:2])
    sink.commit(LANE, {(prefix + "candidates", 0): 2})
    assert LaneOnKafka(kafka, prefix, LANE).last_receipt() == outputs[1].block
    opened(kafka, prefix).confirm(LANE, corrects=False)
    end = 10**9
    for forged, why in (
        (Marker(45), "at block 45, but the last receipt is of block 2"),
        (Marker(45, {(prefix + "candidates", 0): 2}), "at block 45"),
        (Marker(2, {(prefix + "candidates", 0): end}), rf"up to {end}, which ends at 2"),
    ):
        producer = Producer(producer_config(kafka))
        producer.produce(prefix + MARKERS, forged.encode(LANE).value, LANE.encode(), partition=0)
        assert producer.flush(60) == 0
        with pytest.raises(ForeignMarker, match=f"was not written by this lane: .*{why}"):
            opened(kafka, prefix).confirm(LANE, corrects=False)
    later = opened(kafka, prefix)
    later.confirm(LANE, corrects=True)
    later.write(LANE, outputs)
    assert later.commit(LANE, {})["receipts"] == 1
    assert len(committed(kafka, prefix + "receipts")) == 3


def test_last_receipt_is_found_behind_those_of_other_lanes_and_in_any_partition(
    kafka: dict[str, Any], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markers, "RECEIPTS_BACK", 2)
    monkeypatch.setattr(markers, "RECEIPTS_FURTHER", 3)
    (receipt,) = (record for record in executed(1)[0].records if record.topic == RECEIPTS)
    producer = Producer(producer_config(kafka))

    def send(lane: str, times: int = 1) -> None:
        for _ in range(times):
            producer.produce(prefix + RECEIPTS, receipt.value, lane.encode())
        assert producer.flush(60) == 0

    assert LaneOnKafka(kafka, prefix, LANE).last_receipt() is None
    send(LANE)
    send("kusama", 20)
    assert LaneOnKafka(kafka, prefix, LANE).last_receipt() == 1
    add_partitions(kafka, prefix + RECEIPTS)
    assert LaneOnKafka(kafka, prefix, LANE).last_receipt() == 1
    assert LaneOnKafka(kafka, prefix, "westend").last_receipt() is None


def test_partition_of_a_key_is_the_producers(kafka: dict[str, Any], prefix: str) -> None:
    add_partitions(kafka, prefix + RECEIPTS)
    keys = [b"", b"a", b"ab", b"abc", b"abcd", b"polkadot", b"kusama/2000", b"\xff" * 37]
    found: dict[bytes, int] = {}
    producer = Producer(producer_config(kafka))
    for key in keys[1:]:
        producer.produce(
            prefix + RECEIPTS, b"v", key, on_delivery=lambda _, sent: found.update({sent.key(): sent.partition()})
        )
    assert producer.flush(60) == 0
    assert found == {key: partition_of(key, 3) for key in keys[1:]}
    assert len(set(found.values())) == 3


def test_marker_without_value_resets_the_lane(kafka: dict[str, Any], prefix: str) -> None:
    opened_once = opened(kafka, prefix)
    opened_once.write(LANE, [block(7)])
    opened_once.commit(LANE, {})
    producer = Producer(producer_config(kafka))
    producer.produce(prefix + MARKERS, None, LANE.encode(), partition=0)
    assert producer.flush(60) == 0
    assert LaneOnKafka(kafka, prefix, LANE).written().marker == Marker()
    assert opened(kafka, prefix).commit(LANE, {}) == {}, "it is not missed, whatever the group says"


def test_added_partitions_of_the_markers_let_nothing_be_emitted_twice(kafka: dict[str, Any], prefix: str) -> None:
    """The former partition of a lane keeps a marker from before, and partitions are read in any order."""
    lanes, inputs = [LANE, "kusama", "westend", "paseo", "rococo"], prefix + "candidates"

    def emitted(blocks: int, offset: int) -> list[dict[str, int]]:
        found = []
        for lane in lanes:
            sink = opened(kafka, prefix)
            sink.write(lane, [block(number, lane) for number in range(1, blocks + 1)])
            found.append(sink.commit(lane, {(inputs, 0): offset}))
        return found

    assert emitted(2, 5) == [{"verdicts": 2}] * len(lanes)
    add_partitions(kafka, prefix + MARKERS)
    assert emitted(4, 9) == [{"verdicts": 2}] * len(lanes)
    marker = Marker(4, {(inputs, 0): 9})
    assert [LaneOnKafka(kafka, prefix, lane).written().marker for lane in lanes] == [marker] * len(lanes)
    assert read_markers(kafka, prefix) == dict.fromkeys(lanes, marker)
    assert emitted(4, 9) == [{}] * len(lanes)


def test_markers_of_several_partitions_are_one(kafka: dict[str, Any], prefix: str) -> None:
    """Whichever partition is read last, it holds an old marker of one of two lanes."""
    inputs = (prefix + "candidates", 0)
    add_partitions(kafka, prefix + MARKERS)
    producer = Producer(producer_config(kafka))
    for lane, newest in (("a", 0), ("b", 2)):
        old, new = Marker(3, {inputs: 5, (prefix + "blocks", 0): 7}), Marker(4, {inputs: 9})
        producer.produce(prefix + MARKERS, old.encode(lane).value, lane.encode(), partition=2 - newest)
        producer.produce(prefix + MARKERS, new.encode(lane).value, lane.encode(), partition=newest)
    producer.produce(prefix + MARKERS, None, b"a", partition=1)
    assert producer.flush(60) == 0
    both = Marker(4, {inputs: 9, (prefix + "blocks", 0): 7})
    assert [LaneOnKafka(kafka, prefix, lane).written().marker for lane in ("a", "b")] == [both, both]
    assert read_markers(kafka, prefix) == {"a": both, "b": both}
