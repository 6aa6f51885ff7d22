# SPDX-License-Identifier: Apache-2.0
"""A producer's batch that no process can unpack is passed over with one dead letter, and what retention has removed is said."""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from validator_simulators import SimulationSettings

from streaming import reading_process, workers
from streaming.decode_stage import DecodeSettings
from streaming.range_source import OffsetRange, ReadFailed, SourceSettings, TaskRanges
from streaming.reading_process import InputReader, PassedOver
from tests.codecs import codec_for
from tests.sending import send
from tests.unit.lanes.chains import Record, chain, config_of, definition_of
from validator.checkpoint.kafka import cut_inputs, missing_blocks
from validator.codec.inflight import unpack
from validator.core.inputs import DeadLetter, DeadReason, RecordKind
from validator.kafka.settings import admin_config
from validator.kafka.topics import create_topics

IN_A_FRESH_PROCESS = pytest.mark.long
"""A process that has run other tests keeps what they freed, and forks of it have room for what must not fit."""

NUMBER = count()
MIB = 1024 * 1024
MEMORY_BYTES = 160 * MIB
"""Of which the stacks of the client's threads take a hundred."""
BOMB_BYTES = 120 * MIB
SNAPPY_BYTES = 90 * MIB
"""The embedded broker unpacks such a batch as a whole, too, in a heap of 256 MiB."""
CODECS = ("gzip", "lz4", "snappy", "zstd")

WRITE = """
import json, sys
from confluent_kafka import Producer
config, topic, sizes = json.loads(sys.argv[1])
producer = Producer(config)
for size in sizes:
    producer.produce(topic, bytes(size), on_delivery=print)
assert producer.flush(120) == 0
"""

Letters: TypeAlias = list[tuple[int, int | None]]
"""Offset, and the size of the whole value, -1 for what is passed over."""


class World:
    """A topic, and readers of it as the workers of one job have them."""

    def __init__(self, kafka: dict[str, Any], folder: Path) -> None:
        self.kafka, self.folder = kafka, folder
        self.topic = f"passed-over-{next(NUMBER)}"
        self.records = 0
        new = NewTopic(self.topic, 1, 1, config={"max.message.bytes": str(64 * MIB)})
        admin = AdminClient(admin_config(kafka))
        admin.create_topics([new])[self.topic].result(30)

    def write(self, codec: str, *sizes: int) -> None:
        """Write zeros of some sizes, all in one batch."""
        big = {"compression.type": codec, "message.max.bytes": 10**9, "batch.size": 10**9, "linger.ms": 1_000}
        config = self.kafka | big | {"queue.buffering.max.kbytes": 2_000_000}
        written = [sys.executable, "-c", WRITE, json.dumps([config, self.topic, sizes])]
        # not by this process: what it frees stays mapped, and readers would have it
        told = subprocess.run(written, check=True, timeout=300, capture_output=True, text=True)
        assert told.stdout.count("None <cimpl.Message") == len(sizes), told.stdout
        self.records += len(sizes)

    def read(self, first: int = 0, end: int | None = None, memory_bytes: int = MEMORY_BYTES) -> Letters:
        """Return the dead letters of a task; no record has a schema of ours."""
        decoding = DecodeSettings({self.topic: RecordKind.BLOCK}, {}, {}, 1 << 30, memory_bytes)
        settings = SourceSettings(
            self.kafka, (self.topic,), 1_000, 1, pickle.dumps(decoding), "run", passed_over=str(self.folder)
        )
        reader = InputReader(settings)
        task = TaskRanges((OffsetRange(self.topic, 0, first, self.records if end is None else end),))
        items = [item for chunk in reader.read(task) for row in chunk.to_pylist() for item in unpack(row["chunk"])]
        reader.close()
        assert all(isinstance(item, DeadLetter) for item in items)
        return [
            (item.source.offset, -1 if "compressed batch" in item.detail else item.whole and item.whole.size)
            for item in items
            if isinstance(item, DeadLetter)
        ]


@pytest.fixture
def world(kafka: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(workers, "WRITER_BYTES", 0)
    return World(kafka, tmp_path / "passed-over")


@IN_A_FRESH_PROCESS
@pytest.mark.parametrize("codec", CODECS)
def test_what_does_not_fit_is_one_letter_and_the_partition_goes_on(world: World, codec: str) -> None:
    """A record of 10 MiB fits, and is a letter with both ends; one that is larger than the memory is passed over."""
    world.write(codec, 9)
    world.write(codec, 10 * MIB)
    world.write(codec, SNAPPY_BYTES if codec == "snappy" else BOMB_BYTES)
    world.write(codec, 9, 9)
    expected: Letters = [(0, None), (1, 10 * MIB), (2, -1), (3, None), (4, None)]
    assert world.read() == expected
    assert PassedOver(str(world.folder)).within([OffsetRange(world.topic, 0, 0, 5)]) == [
        OffsetRange(world.topic, 0, 2, 3)
    ]
    # whoever repeats the batch follows the note, also with more memory, and in other ranges
    assert world.read(memory_bytes=1 << 32) == expected
    assert world.read(1, 3) + world.read(3) == expected[1:]


@IN_A_FRESH_PROCESS
def test_batch_of_several_records_is_one_letter(world: World) -> None:
    """Ranges of tasks may begin and end within it."""
    world.write("lz4", 9)
    world.write("lz4", *[12 * MIB] * 10)
    world.write("lz4", 9)
    assert world.read(0, 4) == [(0, None), (1, -1)]
    assert world.read(4) == [(11, None)]
    assert world.read() == [(0, None), (1, -1), (11, None)]


@IN_A_FRESH_PROCESS
def test_several_batches_in_a_row(world: World) -> None:
    world.write("zstd", BOMB_BYTES)
    world.write("lz4", BOMB_BYTES)
    world.write("lz4", 9)
    letters = world.read()
    assert letters[-1] == (2, None)
    assert letters[0] == (0, -1)
    assert all(size == -1 for _, size in letters[:-1])


def test_attempts_at_other_ranges_may_note_some_that_overlap(world: World) -> None:
    world.write("lz4", *[9] * 12)
    notes = PassedOver(str(world.folder))
    notes.note(OffsetRange(world.topic, 0, 3, 8))
    notes.note(OffsetRange(world.topic, 0, 5, 8))
    notes.note(OffsetRange(world.topic, 0, 3, 12))  # too late
    whole: Letters = [*((at, None) for at in range(3)), (3, -1), (5, -1), *((at, None) for at in range(8, 12))]
    assert world.read() == whole
    assert world.read(0, 5) + world.read(5) == whole


def test_process_that_cannot_even_reach_kafka_passes_nothing_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write("lz4", 9)
    monkeypatch.setattr(reading_process, "bound_worker", lambda *_, **__: os.abort())
    with pytest.raises(ReadFailed, match=r"the process that reads ended with -6"):
        world.read()
    assert not world.folder.exists()


def test_reason_of_the_letter() -> None:
    decoder = DecodeSettings({}, {}).opened()()
    decoder.pass_over(OffsetRange("t", 0, 2, 3))
    chunk = decoder.take()
    assert chunk is not None
    (letter,) = unpack(chunk.to_pylist()[0]["chunk"])
    assert isinstance(letter, DeadLetter)
    assert letter.reason is DeadReason.LIMIT


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
