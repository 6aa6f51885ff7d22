# SPDX-License-Identifier: Apache-2.0
"""The exactly-once writer on a real broker: committed output appears once, other output never, and a successor takes over."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from streaming.taking_over import Rivals, end_open_transactions
from streaming.transactions import KafkaOutput, TransactionalWriter
from validator.checkpoint.markers import LaneOnKafka, read_markers
from validator.codec.encode import BlockOutput, OutputRecord, encode_dead_letter
from validator.config import DEFAULT_PROTOCOL
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.errors import UserError
from validator.job.start_check import refuse_written
from validator.kafka.settings import WHOLE, admin_config, consumer_config
from validator.kafka.topics import create_topics
from validator.kafka.transaction import Fenced, WriteFailed, WriterFenced
from validator.lanes import sink as sink_module
from validator.lanes.definition import LaneDefinition
from validator.lanes.marker import Marker
from validator.lanes.sink import LaneSink, TransactionalSink
from validator.plugin.runtime import RuntimePlan

LANE = "polkadot"


@pytest.fixture
def prefix(kafka: dict[str, Any], request: pytest.FixtureRequest) -> str:
    name = f"writer-{request.node.name.removeprefix('test_')[:40]}."
    create_topics(kafka, prefix=name)
    return name


def committed(kafka: dict[str, Any], topic: str) -> list[bytes]:
    """Return the committed values of a topic."""
    consumer = Consumer(consumer_config(kafka, WHOLE, group_id="reads-committed"))
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(120)
            assert message is not None, f"{topic} does not end"
            error = message.error()
            if error is None:
                values.append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
    finally:
        consumer.close()


def write(
    sink: LaneSink, output: list[BlockOutput], offset: int, found: str, left: str, lane: str = LANE
) -> dict[str, int]:
    """Write a batch that finds the lane at one point and leaves it at another."""
    sink.begin(lane, found)
    sink.write(lane, output)
    written = sink.commit(lane, {(f"candidates of {lane}", 0): offset})
    sink.leave(lane, left)
    return written


def opened(kafka: dict[str, Any], prefix: str, job: str = "job-1") -> LaneSink:
    return KafkaOutput.of(TransactionalSink, kafka, prefix, job).open()


def block(number: int, text: str = "") -> BlockOutput:
    return BlockOutput(number, [OutputRecord("verdicts", LANE.encode(), f"{number}{text}".encode())])


def dead_letters_at(*offsets: int, topic: str) -> BlockOutput:
    letters = [DeadLetter(LANE, DeadReason.LATE, "late", Source(topic, 0, at), b"raw %d" % at) for at in offsets]
    return BlockOutput(None, [*map(encode_dead_letter, letters), OutputRecord("lanes", LANE.encode(), b"status")])


def test_batch_and_marker_are_committed_together(kafka: dict[str, Any], prefix: str) -> None:
    inputs = prefix + "candidates"
    sink = opened(kafka, prefix)
    sink.write(LANE, [block(1), block(2)])
    sink.write(LANE, [dead_letters_at(3, topic=inputs)])
    assert sink.commit(LANE, {(inputs, 0): 5}) == {"verdicts": 2, "dead-letters": 1, "lanes": 1}
    assert committed(kafka, prefix + "verdicts") == [b"1", b"2"]
    assert LaneOnKafka(kafka, prefix, LANE).written().marker == Marker(2, {(inputs, 0): 5})


def test_repeated_batch_writes_only_new_output(kafka: dict[str, Any], prefix: str) -> None:
    inputs = prefix + "candidates"
    first = opened(kafka, prefix)
    first.write(LANE, [block(1), dead_letters_at(1, topic=inputs)])
    first.commit(LANE, {(inputs, 0): 2})
    for sink in (first, opened(kafka, prefix)):  # by the same worker, then by another one
        sink.write(LANE, [block(1, "again"), dead_letters_at(1, topic=inputs)])
        assert sink.commit(LANE, {(inputs, 0): 2}) == {}
    wider = opened(kafka, prefix)
    wider.write(LANE, [block(1, "again"), block(2), dead_letters_at(1, 2, topic=inputs)])
    assert wider.commit(LANE, {(inputs, 0): 3}) == {"verdicts": 1, "dead-letters": 1, "lanes": 1}
    assert committed(kafka, prefix + "verdicts") == [b"1", b"2"]
    assert len(committed(kafka, prefix + "dead-letters")) == 2


def test_uncommitted_output_is_never_read(kafka: dict[str, Any], prefix: str) -> None:
    inputs = prefix + "candidates"
    abandoned = TransactionalWriter(LaneOnKafka(kafka, prefix, LANE), "job-1")
    abandoned.write(block(1, "abandoned").records)
    abandoned._writer.producer.flush(30)
    successor = opened(kafka, prefix, "job-2")
    successor.write(LANE, [block(1)])
    successor.commit(LANE, {(inputs, 0): 1})
    assert committed(kafka, prefix + "verdicts") == [b"1"]
    # the fenced writer can do no harm, and its error says why
    with pytest.raises(WriterFenced, match="another job has taken over lane polkadot"):
        abandoned.commit(Marker(1, {(inputs, 0): 1}))
    assert committed(kafka, prefix + "verdicts") == [b"1"]


def test_fence_that_is_heard_between_two_records_is_a_fence(kafka: dict[str, Any], prefix: str) -> None:
    """librdkafka hears it in the background, and then says of the next record only that the producer is useless."""
    early, late = (LaneOnKafka(kafka, prefix, LANE).writer() for _ in range(2))
    record = (prefix + "verdicts", LANE.encode(), b"1", None)
    early.send([record])

    def has_heard() -> bool:
        with pytest.raises(KafkaException) as raised:
            early.producer.begin_transaction()  # serves no report on a record
        return bool(raised.value.args[0].fatal())

    deadline = time.monotonic() + 60
    while not has_heard():
        assert time.monotonic() < deadline, "the fence is not heard within 60 s"
        time.sleep(0.01)
    with pytest.raises(Fenced):
        early.send([record])
    late.send([record])
    late.commit([])
    assert committed(kafka, prefix + "verdicts") == [b"1"]


def test_fenced_job_is_told_by_whom(kafka: dict[str, Any], prefix: str) -> None:
    sleeper, successor = opened(kafka, prefix, "job-1"), opened(kafka, prefix, "job-2")
    for sink, number in ((sleeper, 1), (successor, 2), (successor, 3)):
        sink.write(LANE, [block(number)])
        sink.commit(LANE, {(f"{prefix}candidates", 0): number})
    sleeper.write(LANE, [block(4)])
    with pytest.raises(WriterFenced, match="another job has taken over lane polkadot: job-2"):
        sleeper.commit(LANE, {(f"{prefix}candidates", 0): 4})
    successor.write(LANE, [block(4)])
    successor.commit(LANE, {(f"{prefix}candidates", 0): 4})
    assert committed(kafka, prefix + "verdicts") == [b"1", b"2", b"3", b"4"]


def test_workers_of_one_job_write_a_lane_in_turns(kafka: dict[str, Any], prefix: str) -> None:
    """If Spark gives a task to another worker, the previous worker is left with a stale writer; the lane's state says so."""
    workers = [opened(kafka, prefix), opened(kafka, prefix)]
    for number, turn in enumerate((0, 0, 1, 0, 1, 1), 1):
        write(workers[turn], [block(number)], number, f"after {number - 1}", f"after {number}")
    assert committed(kafka, prefix + "verdicts") == [b"1", b"2", b"3", b"4", b"5", b"6"]

    # a restarted job finds everything emitted, writes nothing, and continues
    restarted = opened(kafka, prefix, "job-2")
    assert write(restarted, [block(6)], 6, "after 5", "after 6") == {}
    assert write(restarted, [block(7)], 7, "after 6", "after 7") == {"verdicts": 1}


def test_worker_that_gets_a_lane_back_after_a_batch_without_blocks(kafka: dict[str, Any], prefix: str) -> None:
    """The other worker has moved no block, but has fenced the writer off."""
    workers = [opened(kafka, prefix), opened(kafka, prefix)]
    for offset, (turn, output) in enumerate([(0, [block(1)]), (1, []), (0, [block(2)]), (1, []), (0, [])], 1):
        write(workers[turn], output, offset, f"after {offset - 1}", f"after {offset}")
    assert committed(kafka, prefix + "verdicts") == [b"1", b"2"]
    assert LaneOnKafka(kafka, prefix, LANE).written().marker == Marker(2, {(f"candidates of {LANE}", 0): 5})


def test_writer_fenced_in_mid_batch_fails_the_batch(kafka: dict[str, Any], prefix: str) -> None:
    workers = [opened(kafka, prefix), opened(kafka, prefix)]
    workers[1].write(LANE, [block(6)])
    workers[1].commit(LANE, {(f"{prefix}candidates", 0): 6})
    # in the middle of a batch the only way out is to repeat it
    workers[1].write(LANE, [block(7)])
    other = opened(kafka, prefix)
    other.write(LANE, [block(7)])
    with pytest.raises(WriteFailed, match="lane polkadot has been taken over"):
        workers[1].commit(LANE, {(f"{prefix}candidates", 0): 7})
    other.commit(LANE, {(f"{prefix}candidates", 0): 7})
    assert committed(kafka, prefix + "verdicts")[-1] == b"7"


def test_record_that_kafka_refuses_is_named_with_lane_topic_and_size(kafka: dict[str, Any], prefix: str) -> None:
    """Nobody else says which of many lanes and topics an operator has to look at."""
    limit = ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ConfigResource.Type.TOPIC, prefix + "verdicts", incremental_configs=[limit])
    admin = AdminClient(admin_config(kafka))
    for done in admin.incremental_alter_configs([topic]).values():
        done.result(60)
    sink = opened(kafka, prefix)
    incompressible = random.Random(1).randbytes(3000)
    sink.write(LANE, [BlockOutput(1, [OutputRecord("verdicts", b"polkadot", incompressible)])])
    with pytest.raises(
        WriteFailed, match=rf"Kafka refused a record of {prefix}verdicts with 3000 bytes, of lane polkadot: "
    ):
        sink.commit(LANE, {(f"{prefix}candidates", 0): 1})


def test_each_lane_has_a_separate_marker(kafka: dict[str, Any], prefix: str) -> None:
    inputs = prefix + "candidates"
    sink = opened(kafka, prefix)
    for lane, last in ((LANE, 4), ("kusama", 9)):
        sink.write(lane, [block(last)])
        sink.commit(lane, {(inputs, 0): last})
    assert LaneOnKafka(kafka, prefix, LANE).written().marker == Marker(4, {(inputs, 0): 4})
    assert LaneOnKafka(kafka, prefix, "kusama").written().marker == Marker(9, {(inputs, 0): 9})
    assert LaneOnKafka(kafka, prefix, "westend").written().marker == Marker()


def test_marker_keeps_offsets_that_later_batches_do_not_touch(kafka: dict[str, Any], prefix: str) -> None:
    for at, topic in enumerate(("candidates", "blocks", "candidates")):
        sink = opened(kafka, prefix)  # another worker each time
        sink.write(LANE, [block(at + 1)])
        sink.commit(LANE, {(prefix + topic, 0): at + 1})
    last = Marker.decode(committed(kafka, prefix + "markers")[-1])
    assert last == Marker(3, {(f"{prefix}candidates", 0): 3, (f"{prefix}blocks", 0): 2})


def test_dead_letter_already_on_topic_is_not_repeated(kafka: dict[str, Any], prefix: str) -> None:
    """The marker is not enough for records that are late or in a taken place. Aborted dead letters and other lanes' do not count."""
    inputs = prefix + "candidates"
    assert TransactionalWriter(LaneOnKafka(kafka, prefix, LANE), "job-1").written_dead_letters() == set()
    other = opened(kafka, prefix)
    other.write(
        "kusama",
        [BlockOutput(None, [letter._replace(key=b"kusama") for letter in dead_letters_at(7, topic=inputs).records])],
    )
    other.commit("kusama", {(inputs, 0): 9})
    abandoned = TransactionalWriter(LaneOnKafka(kafka, prefix, LANE), "job-1")
    abandoned.write(dead_letters_at(5, topic=inputs).records)
    abandoned._writer.producer.flush(30)
    first = opened(kafka, prefix)
    first.write(LANE, [dead_letters_at(1, 3, topic=inputs)])
    first.commit(LANE, {(inputs, 0): 9})
    writer = TransactionalWriter(LaneOnKafka(kafka, prefix, LANE), "job-1")
    assert writer.written_dead_letters() == {f"{inputs}/0/{offset}".encode() for offset in (1, 3)}
    writer.write(dead_letters_at(8, topic=inputs).records)
    assert f"{inputs}/0/8".encode() in writer.written_dead_letters()

    again = opened(kafka, prefix)
    again.write(LANE, [dead_letters_at(1, 2, 3, topic=inputs)])
    assert again.commit(LANE, {(inputs, 0): 9}) == {"dead-letters": 1, "lanes": 1}


def test_batch_does_not_wait_for_dead_letters_that_it_has_handed_on_itself(
    kafka: dict[str, Any], prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module, "HELD_BYTES_MAX", 0)
    inputs = prefix + "candidates"
    first = opened(kafka, prefix)
    first.write(LANE, [block(1), dead_letters_at(60, topic=inputs)])
    first.commit(LANE, {(inputs, 0): 100})
    worker = opened(kafka, prefix)
    for written in (
        {"dead-letters": 2, "lanes": 2},
        {},
    ):  # the second time as after a failure between its commit and Spark's
        worker.write(LANE, [dead_letters_at(100, topic=inputs)])
        worker.write(LANE, [dead_letters_at(50, 60, topic=inputs)])
        assert worker.commit(LANE, {(inputs, 0): 101}) == written
    assert len(committed(kafka, prefix + "dead-letters")) == 3


def test_lanes_that_hand_on_dead_letters_do_not_wait_for_each_other(kafka: dict[str, Any], prefix: str) -> None:
    """Who was first needs nothing that stands behind the other's transaction; the other one waits until the first commits."""
    inputs = prefix + "candidates"
    one, two = (TransactionalWriter(LaneOnKafka(kafka, prefix, lane), "job-1") for lane in (LANE, "kusama"))
    for writer in (one, two):
        writer.marker(())
        writer.note_dead_letters()
        writer.write(dead_letters_at(1, topic=inputs).records)
        writer._writer.producer.flush(30)
    assert one.written_dead_letters() == set()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(two.written_dead_letters)
        with pytest.raises(TimeoutError):
            waiting.result(3.0)
        one.commit(Marker(None, {(inputs, 0): 2}))
        assert waiting.result(60.0) == set()
    two.commit(Marker(None, {(inputs, 0): 2}))


def test_transaction_of_dead_writer_does_not_block_another_lane(kafka: dict[str, Any], prefix: str) -> None:
    """An open transaction on the topic of markers hides later records; a starting job ends those of its lanes."""
    dead = TransactionalWriter(LaneOnKafka(kafka, prefix, "kusama"), "job-1")
    dead.write([Marker(1).encode("kusama")])
    dead._writer.producer.flush(30)
    with pytest.raises(UserError, match="cannot be read to its end"):
        LaneOnKafka(kafka, prefix, LANE).written(progress_s=2.0)
    end_open_transactions(kafka, prefix, [LANE, "kusama"])
    assert (
        LaneOnKafka(kafka, prefix, LANE).written().marker
        == LaneOnKafka(kafka, prefix, "kusama").written().marker
        == Marker()
    )


def test_job_without_checkpoint_refuses_topics_with_its_verdicts(
    kafka: dict[str, Any], prefix: str, tmp_path: Path
) -> None:
    definitions = {LANE: LaneDefinition(LANE, bytes(32), (), RuntimePlan(DEFAULT_PROTOCOL))}

    def start() -> None:
        refuse_written(prefix, tmp_path / "checkpoint", definitions, read_markers(kafka, prefix, progress_s=60.0))

    start()
    writer = TransactionalWriter(LaneOnKafka(kafka, prefix, LANE), "job-1")
    writer.write(block(17).records)
    writer.commit(Marker(17))
    with pytest.raises(
        UserError, match=r"holds lane polkadot up to block 17, but .*checkpoint has no checkpoint: .*--rebuild"
    ) as refused:
        start()
    assert "\n" not in str(refused.value)


def test_job_that_comes_back_late_does_not_take_its_lanes_back(kafka: dict[str, Any], prefix: str) -> None:
    """Its writers may have heard only that records timed out; the markers say whose the lanes are now."""
    rivals = Rivals()
    end_open_transactions(kafka, prefix, [LANE])
    rivals.taken(kafka, prefix, [LANE], "job-1")
    rivals.look(kafka, prefix, [LANE])
    write(opened(kafka, prefix, "job-1"), [block(1)], 1, "", "1")
    rivals.look(kafka, prefix, [LANE])
    rivals.taken(kafka, prefix, [LANE], "job-1b")  # another session of the same process
    write(opened(kafka, prefix, "job-1b"), [block(2)], 2, "1", "2")
    rivals.look(kafka, prefix, [LANE])
    write(opened(kafka, prefix, "job-2"), [block(3)], 3, "2", "3")
    with pytest.raises(WriterFenced, match=f"^another job has taken over lane {LANE}: job-2$"):
        rivals.look(kafka, prefix, [LANE])
    later = Rivals()  # a process that starts now takes them over, as ever
    later.look(kafka, prefix, [LANE])
    later.taken(kafka, prefix, [LANE], "job-3")
    later.look(kafka, prefix, [LANE])
