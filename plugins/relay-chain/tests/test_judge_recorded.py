# SPDX-License-Identifier: Apache-2.0
"""A lane in this process follows the shipped blocks from a mock node, and the judge compares it with the chain: without Kafka and Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from oracle_world import kinds, settle
from relay_world import source
from validator_relay_chain import keys
from validator_relay_chain.convert import Step
from validator_relay_chain.follow import Follower
from validator_relay_chain.header import to_hex
from validator_relay_chain.metadata import MetadataCache
from validator_relay_chain.oracle import records
from validator_relay_chain.oracle.facts import BlockFacts, CandidateFact
from validator_relay_chain.oracle.judge import Disagreement, Judge
from validator_relay_chain.pool import Clock, NodePool
from validator_relay_chain.position import Position
from validator_relay_chain.prepare import configuration, prepare
from validator_relay_chain.rules import RulesGuard
from validator_relay_chain.source import Chain
from validator_relay_chain.storage import Queued, decode_channel, encode_channel, encode_queue
from validator_relay_chain.transport import read_start
from validator_simulators.relay_chain import MockNode, Recording
from validator_simulators.relay_chain.recording import SHIPPED

from tests.unit.lanes.chains import inputs_of, record
from validator.codec.json_form import encode_json
from validator.config import Config
from validator.lanes.configured import lane_definition
from validator.lanes.processor import LaneProcessor
from validator.plugin.job_api import RecordUnreadable

LANE = "polkadot"
JsonRecord = tuple[str, dict[str, Any]]


class Lane:
    """Takes what the follower commits."""

    def __init__(self) -> None:
        self.records: list[JsonRecord] = []

    def commit(self, records: Sequence[JsonRecord], position: Position) -> None:
        self.records += records

    def show(self, step: Step, target: int, head: int) -> None:
        pass


def followed(recording: Recording, folder: Path, *, joined: int | None = None) -> tuple[Config, list[JsonRecord]]:
    """Return the configuration of a lane that follows a recording, and all of its records.

    ``joined`` is the block after which it joins while that is the finalised head, so that it knows nothing of what comes.
    """
    with MockNode(recording, head=joined) as node:
        pool = NodePool([node.url], Clock())
        try:
            chain = Chain(pool, MetadataCache(folder / "metadata"))
            prepared = prepare(chain, LANE, folder, from_block=None if joined else recording.first + 1)
            node.finalise(recording.last)
            begun, cursor = read_start(folder / "start.json")
            out = Lane()
            where = source(node.url, to_block=recording.last, compare_every_blocks=1)
            guard = RulesGuard(LANE, folder)
            Follower(
                LANE, where, chain, Clock(), Position.decode(cursor), out,
                check_rules=guard.check, features_at=guard.features_at,
            ).run()  # fmt: skip
        finally:
            pool.close()
    tables = configuration(prepared, [node.url], str(folder), None)
    config = Config.model_validate({"job": {"headroom_interval_blocks": 1}, "chains": tables["chains"]})
    return config, [*begun, *out.records]


def judged(
    config: Config, given: list[JsonRecord], change: Callable[[BlockFacts], BlockFacts] = lambda each: each
) -> list[Disagreement]:
    """Execute a lane's records, and return what the judge finds. ``change`` alters facts."""
    judge = Judge(LANE)
    inputs = [record(topic, body) for topic, body in given if topic != records.FACTS]
    for output in LaneProcessor.create(lane_definition(config, LANE)).process(inputs_of(inputs)):
        for topic, _, value, _ in output.records:
            for format_ in records.formats_of_lanes().get(topic, ()):
                try:
                    judge.take(topic, format_.decode(value))
                except RecordUnreadable:
                    continue
    settle(judge)
    found: list[Disagreement] = []
    form = next(each.form for each in records.own_topics() if each.topic.name == records.FACTS)
    for topic, body in given:
        if topic == records.FACTS:
            datum = records.decode(records.FACTS, encode_json(form.format.schema, body))
            compared = judge.compare(change(BlockFacts.from_datum(datum)))
            assert compared is not None
            found += compared
    assert judge.counts["blocks"] == sum(topic == records.FACTS for topic, _ in given)
    assert judge.counts["skipped"] == 0
    return found


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Config, list[JsonRecord]]:
    return followed(Recording.load(SHIPPED), tmp_path_factory.mktemp("shipped"))


def test_chain_agrees_with_the_lane(shipped: tuple[Config, list[JsonRecord]]) -> None:
    assert kinds(judged(*shipped)) == []


@pytest.mark.usefixtures("speech")
def test_recorded_blocks_are_the_same_whatever_the_node_speaks(
    shipped: tuple[Config, list[JsonRecord]], tmp_path: Path
) -> None:
    _, given = followed(Recording.load(SHIPPED), tmp_path)
    assert given == shipped[1]


CHANNEL = keys.channel_key(keys.HRMP_CHANNELS, 2004, 2034)


def stored(recording: Recording, number: int, key: bytes) -> bytes:
    value = recording.value(recording.blocks[recording.canonical[number]], to_hex(key))
    assert value is not None
    return bytes.fromhex(value[2:])


def test_every_change_of_storage_is_found(tmp_path: Path) -> None:
    changed = Recording.load(SHIPPED)
    last = changed.last
    channel = decode_channel(stored(changed, last, CHANNEL))
    assert channel.mqc_head is not None
    changes = {
        CHANNEL: encode_channel(channel._replace(mqc_head=bytes(32), msg_count=2)),
        keys.para_key(keys.HRMP_WATERMARKS, 2004): bytes(4),
        keys.para_key(keys.DMP_QUEUES, 2000): encode_queue([Queued(last - 1, b"x")]),
    }
    changed.put_storage(last, {to_hex(key): to_hex(value) for key, value in changes.items()})
    found = judged(*followed(changed, tmp_path))
    assert [kind for kind, _ in kinds(found)] == ["ChannelHead", "ChannelRoom", "DownwardCount", "Watermark"]
    assert {reason for _, reason in kinds(found)} == {"ours"}
    assert {each.block for each in found} == {last}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda facts: replace(facts, backed=facts.backed + 1), "CandidatesMissing"),
        (lambda facts: replace(facts, included=facts.included[1:]), "InclusionMissing"),
        (lambda facts: replace(facts, timed_out=(CandidateFact(2000, known=True),)), "TimeoutMissing"),
        (lambda facts: replace(facts, session_ends=True, opened=((1, 2),)), "ChannelsOpened"),
        (lambda facts: replace(facts, session_ends=True, closed=((1, 2),)), "ChannelsClosed"),
    ],
)
def test_every_change_of_events_is_found(
    shipped: tuple[Config, list[JsonRecord]], change: Callable[[BlockFacts], BlockFacts], kind: str
) -> None:
    last = Recording.load(SHIPPED).last
    found = judged(*shipped, lambda facts: change(facts) if facts.block == last else facts)
    assert kinds(found) == [(kind, "ours")]
