# SPDX-License-Identifier: Apache-2.0
"""A deployment of an earlier version continues under this one: what it had read, executed and emitted stays, and nothing comes twice."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.codecs import codec_for, decoded
from tests.streaming.harness import SAME_WHATEVER_ARRIVES, Outputs, consume, of_lane
from tests.upgrade.record import HERE, LANES, has_consumed, submit, up, wait_until
from validator.codec.json_form import comparable_json, to_json
from validator.config import load_config
from validator.core.inputs import DeadLetter, Input, Source
from validator.kafka.broker import EmbeddedBroker
from validator.lanes.configured import lane_definition
from validator.lanes.processor import LaneProcessor
from validator.topics import INPUT_TOPICS

RECORDED = sorted(HERE.glob("*.tar.xz"))
CODEC = codec_for(*(protocol for protocol, _ in LANES.values()))


def read(folder: Path, topics: tuple[str, ...]) -> Outputs:
    """Read topics from the broker that runs in a deployment's folder."""
    return consume(EmbeddedBroker(folder / ".validator" / "broker").kafka, "recorded.", topics)


def inputs_of(read_inputs: Outputs, lane: str, protocol: str) -> list[Input | DeadLetter]:
    """Decode a lane's records as they are on its topics."""
    found = []
    for topic, records in read_inputs.items():
        for offset, (key, value) in enumerate(records):
            if key == lane.encode():
                item = decoded(topic, value, Source("recorded." + topic, 0, offset), key, protocol)
                found.append(item if isinstance(item, DeadLetter) else item[1])
    return found


def alone(folder: Path, read_inputs: Outputs, lane: str) -> Outputs:
    """Return what this program gives for all of a lane's recorded inputs, without any earlier state."""
    definition = lane_definition(load_config(folder / "validator.toml"), lane, kept_in=folder / "alone")
    outputs: Outputs = {topic: [] for topic in SAME_WHATEVER_ARRIVES}
    for _, records in LaneProcessor.create(definition).process(inputs_of(read_inputs, lane, LANES[lane][0])):
        for record in records:
            outputs[record.topic].append((record.key, record.value))
    return outputs


def same_meaning(topic: str, found: list[tuple[bytes, bytes]], expected: list[tuple[bytes, bytes]]) -> bool:
    """Return whether two programs say the same, apart from runtime digests and from what the earlier one did not know yet.

    A runtime digest names versions of Python and of libraries. The program of v0.1.0 did not say when a para's queues were dropped.
    """
    left_out = {"runtime_digest"}
    if topic == "channel-events":
        left_out.add("index")
        expected, found = ([each for each in records if not _drops(each[1])] for records in (expected, found))
    if [key for key, _ in found] != [key for key, _ in expected]:
        return False
    for (_, one), (_, other) in zip(found, expected, strict=True):
        first, second = comparable_json(topic, one, other)
        if any(first[name] != second[name] for name in first if name not in left_out):
            return False
    return True


def _drops(event: bytes) -> bool:
    return to_json("channel-events", event)["event"] == "messages_dropped"


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_deployment_of_an_earlier_version_continues(recorded: Path, tmp_path: Path) -> None:
    folder = tmp_path / "another place"
    with tarfile.open(recorded) as packed:
        packed.extractall(folder, filter="data")
    with (folder / "validator.toml").open("a", encoding="utf-8") as file:
        # the default of that time; by today's a small chain emits headroom with every block
        file.write("\n[job]\nheadroom_interval_blocks = 10\n")
    outputs = (*SAME_WHATEVER_ARRIVES, "dead-letters")
    with up(folder):
        before = read(folder, (*INPUT_TOPICS, *outputs))
        had = sum(len(before[topic]) for topic in INPUT_TOPICS)
        assert has_consumed(folder, had), "the state knows what it has consumed"
        added = submit(folder, folder / "later")
        wait_until(lambda: has_consumed(folder, had + added))
        after = read(folder, (*INPUT_TOPICS, *outputs))
    assert sum(len(after[topic]) for topic in INPUT_TOPICS) == had + added
    assert after["dead-letters"] == []
    inputs = {topic: after[topic] for topic in INPUT_TOPICS}
    for lane in LANES:
        got, earlier = of_lane(after, lane), of_lane(before, lane)
        for topic, expected in alone(folder, inputs, lane).items():
            count = len(earlier[topic])
            assert got[topic][:count] == earlier[topic], "what is emitted stays"
            assert same_meaning(topic, got[topic], expected), topic
            new = got[topic][count:]
            if topic != "channel-events":
                assert new == expected[len(expected) - len(new) :], "what is new names this program"
        assert 0 < len(earlier["receipts"]) < len(got["receipts"])
