# SPDX-License-Identifier: Apache-2.0
"""A start compares its configuration with the checkpoint and with the topics before it is ready; this process plays the job's part."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from validator_simulators import SimulationSettings

from streaming import taking_over
from streaming.taking_over import known_of_lanes, writers
from streaming.transactions import TransactionalWriter
from tests.sending import send
from tests.unit.lanes.chains import Chain, chain, config_of
from validator.checkpoint.kafka import SecondLook
from validator.checkpoint.markers import LaneOnKafka
from validator.codec.encode import OutputRecord, encode_dead_letter
from validator.codec.inflight import NO_LANE
from validator.config import Config
from validator.core.inputs import DeadLetter, DeadReason, Source
from validator.errors import UserError
from validator.history.engine import InputPartition, by_block, skipped_records
from validator.job import start_check
from validator.job.orders import lane_reports
from validator.job.start_check import (
    Look,
    check_accepted,
    look,
    look_offline,
    note_executed,
    refusal_of,
    refuse_without_kafka,
)
from validator.kafka.settings import admin_config, producer_config
from validator.kafka.topics import create_topics
from validator.lanes.configured import lane_definitions
from validator.lanes.kept_start import NOTHING, Accepted, kept_starts, started_epochs
from validator.lanes.marker import Marker
from validator.lanes.parked import Fault, Parked
from validator.lanes.processor import LaneProcessor
from validator.topics import INPUT_TOPICS

CHAIN = chain(SimulationSettings(seed=3, blocks=24, candidates_per_block=3, violation_share=0.1))

OTHER = chain(SimulationSettings(seed=4, blocks=6, candidates_per_block=2, lane="kusama"))
LAST = CHAIN.blocks[-1].block
TOPICS_S_MAX = 60.0
GENESIS = Accepted(genesis=frozenset({CHAIN.lane}))


def with_keys(of: Chain, **keys: Any) -> Chain:
    """Return a chain with other keys in its table."""
    return Chain(of.lane, {**of.table, **keys}, of.blocks, of.records)


def richer(of: Chain, para: int = 0) -> Chain:
    """Return a chain of which one genesis para has another balance."""
    paras = [dict(each) for each in of.table["genesis_paras"]]
    paras[para]["balance"] += 1
    return with_keys(of, genesis_paras=paras)


class Deployment:
    """A folder and topics in which a job has run."""

    def __init__(self, kafka: dict[str, Any], prefix: str, folder: Path) -> None:
        self.kafka, self.prefix, self.folder = kafka, prefix, folder

    def config(self, *chains: Chain, rebuild: bool = False, **job: Any) -> Config:
        job = {"directory": str(self.folder), "root_interval_blocks": 5, "rebuild": rebuild, **job}
        return config_of(*chains, job=job, kafka=self.kafka, topics={"prefix": self.prefix})

    def run(self, *chains: Chain, batch: int = 0, complete: bool = True) -> None:
        """Do the work of a job: take the chains' records, emit everything, leave markers, a checkpoint and what it began with."""
        config = self.config(*chains)
        definitions = lane_definitions(config)
        look(config, definitions, NOTHING, SecondLook(self.kafka, 0)).keep()
        send(
            self.kafka,
            self.prefix,
            [(each.topic, each.lane.encode(), each.value) for of in chains for each in of.records],
        )
        ends = self.ends(*chains)
        for lane, definition in definitions.items():
            outputs = list(LaneProcessor.create(definition).process(self.inputs(definition, ends)))
            records = [record for _, records in outputs for record in records]
            block = max((block for block, _ in outputs if block is not None), default=None)
            self.emit([*records, Marker(block, ends).encode(lane)])
        for folder in ("offsets", "commits") if complete else ("offsets",):
            (self.folder / "checkpoint" / folder).mkdir(parents=True, exist_ok=True)
            sources: dict[str, dict[str, int]] = {}
            for (topic, partition), end in ends.items():
                sources.setdefault(topic, {})[str(partition)] = end
            (self.folder / "checkpoint" / folder / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(sources)}")

    def ends(self, *chains: Chain) -> dict[tuple[str, int], int]:
        counts = dict.fromkeys(INPUT_TOPICS, 0)
        for of in chains:
            for record in of.records:
                counts[record.topic] += 1
        return {(self.prefix + topic, 0): count for topic, count in counts.items()}

    def inputs(self, definition: Any, ends: dict[tuple[str, int], int]) -> Iterator[Any]:
        partitions = [InputPartition(self.kafka, place, end) for place, end in sorted(ends.items())]
        kinds = {self.prefix + topic: kind for topic, kind in INPUT_TOPICS.items()}
        streams = (
            each.inputs(definition.codec, kinds[each.topic], definition.name, definition.records) for each in partitions
        )
        yield from by_block(streams)
        for each in partitions:
            each.close()

    def emit(self, records: list[OutputRecord]) -> None:
        send(self.kafka, self.prefix, [(topic, key, value) for topic, key, value, _ in records])

    def remove_checkpoint(self) -> None:
        for path in sorted((self.folder / "checkpoint").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()

    def start(self, *chains: Chain, accepted: Accepted = NOTHING, **job: Any) -> Look:
        config = self.config(*chains, **job)
        return look(config, lane_definitions(config), accepted, SecondLook(self.kafka, 0))

    def refused(self, *chains: Chain, accepted: Accepted = NOTHING, **job: Any) -> str:
        before = self.files()
        with pytest.raises(UserError) as refused:
            self.start(*chains, accepted=accepted, **job)
        assert self.files() == before
        assert "\n" not in str(refused.value)
        return str(refused.value)

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.folder.rglob("*")) if path.is_file()}


def deployed(kafka: dict[str, Any], name: str, folder: Path) -> Deployment:
    """Return a deployment with its own topics, which are named for a test."""
    prefix = re.sub("[^a-z-]+", "-", name)[:80] + "."
    create_topics(kafka, prefix=prefix)
    return Deployment(kafka, prefix, folder / "job")


@pytest.fixture
def deployment(kafka: dict[str, Any], request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    return deployed(kafka, f"look-{request.node.name}", tmp_path)


def test_start_without_kafka_refuses_what_was_executed_at_the_last_stop(deployment: Deployment) -> None:
    """`validator up` says so before it starts a broker."""
    deployment.run(CHAIN)
    (deployment.folder / "checkpoint" / "metadata").write_text('{"id": "one"}')
    first, later = (with_keys(CHAIN, handlers=[{"name": "remark", **keys}]) for keys in ({}, {"from_block": LAST + 1}))
    config = deployment.config(first)
    refuse_without_kafka(config, NOTHING)  # nothing is kept yet
    note_executed(config)
    away = {"kafka": {"bootstrap.servers": "localhost:1"}}
    with pytest.raises(UserError, match=rf"but block {LAST} is already executed: .* from_block = {LAST + 1} or more"):
        refuse_without_kafka(config.model_copy(update=away), NOTHING)
    refuse_without_kafka(deployment.config(later).model_copy(update=away), NOTHING)
    deployment.start(later)
    with pytest.raises(UserError, match="--accept-change polkadot:genesis"):
        refuse_without_kafka(deployment.config(richer(CHAIN)).model_copy(update=away), NOTHING)
    refuse_without_kafka(deployment.config(richer(CHAIN)).model_copy(update=away), GENESIS)
    with pytest.raises(UserError, match="--accept-change polkadot:removed"):
        refuse_without_kafka(deployment.config(OTHER).model_copy(update=away), NOTHING)
    (deployment.folder / "checkpoint" / "metadata").write_text('{"id": "other"}')
    refuse_without_kafka(deployment.config(OTHER).model_copy(update=away), NOTHING)


def test_another_genesis_balance_is_refused_by_a_start_and_by_a_rebuild(deployment: Deployment) -> None:
    deployment.run(CHAIN)
    deployment.start(CHAIN).keep()
    para = CHAIN.table["genesis_paras"][0]
    words = (
        f"chains.polkadot.genesis_paras[{para['para_id']}].balance: lane polkadot began with {para['balance']}, "
        f"found {para['balance'] + 1}: "
    )
    assert deployment.refused(richer(CHAIN)).startswith(words)
    deployment.start(richer(CHAIN), accepted=GENESIS).keep()
    deployment.start(richer(CHAIN))
    assert "found" in deployment.refused(CHAIN)  # the accepted beginning is the kept one now
    deployment.start(CHAIN, accepted=GENESIS).keep()

    deployment.remove_checkpoint()
    assert "has no checkpoint: start with --rebuild" in deployment.refused(CHAIN)
    assert deployment.refused(richer(CHAIN), rebuild=True).startswith(words)
    deployment.start(CHAIN, rebuild=True)


def test_rebuild_elsewhere_compares_what_is_emitted_block_by_block(deployment: Deployment, tmp_path: Path) -> None:
    deployment.run(CHAIN)
    deployment.folder = tmp_path / "another machine"
    deployment.start(CHAIN, rebuild=True)
    deployment.start(CHAIN, rebuild=True, root_interval_blocks=3, headroom_interval_blocks=1)
    line = deployment.refused(richer(CHAIN), rebuild=True)
    assert line.startswith("lane polkadot: block 5 would not be rebuilt as it was emitted: receipts has state_root ")
    assert line.endswith("with --accept-change polkadot:5")
    deployment.start(richer(CHAIN), rebuild=True, accepted=Accepted(blocks={CHAIN.lane: 5}))
    deployment.start(richer(CHAIN), rebuild=True, accepted=GENESIS)
    assert "block 5 would not" in deployment.refused(
        richer(CHAIN), rebuild=True, accepted=Accepted(blocks={CHAIN.lane: 6})
    )
    line = deployment.refused(with_keys(CHAIN, enactment="on-inclusion"), rebuild=True)
    assert re.match(
        r"lane polkadot: block \d+ would not be rebuilt as it was emitted: verdicts has candidate \d+: \w+ ", line
    )


def test_verdict_that_differs_in_a_number_is_found(deployment: Deployment, tmp_path: Path) -> None:
    """Both sides reject the same candidates, with another limit in the error."""
    deployment.run(CHAIN)
    deployment.folder = tmp_path / "another machine"
    limits = CHAIN.table["host_configuration"]
    refusing = {name: value - 1 for name, value in limits.items() if name == "max_upward_message_size"}
    changed = with_keys(CHAIN, host_configuration={**limits, **refusing})
    line = deployment.refused(changed, rebuild=True, root_interval_blocks=0)
    assert "verdicts has candidate" in line
    assert "the rebuild" in line


def test_dispatch_that_differs_is_found(deployment: Deployment, tmp_path: Path) -> None:
    """A message fails in the rebuild: no verdict or receipt says so."""
    changed = with_keys(CHAIN, ump_failing_messages=[])
    deployment.run(CHAIN)
    assert CHAIN.table["ump_failing_messages"]
    deployment.folder = tmp_path / "another machine"
    line = deployment.refused(changed, rebuild=True)
    found = re.search(
        r"block (\d+) would not be rebuilt as it was emitted: dispatches has \d+: outcome failed, the rebuild ok: ",
        line,
    )
    assert found, line
    accepted = Accepted(blocks={CHAIN.lane: int(found[1])})
    deployment.start(changed, rebuild=True, accepted=accepted)


def test_another_prefix_is_refused_without_kafka(deployment: Deployment) -> None:
    deployment.run(CHAIN)
    before = deployment.files()
    was = deployment.prefix
    deployment.prefix = "elsewhere."
    with pytest.raises(UserError) as refused:
        look_offline(deployment.config(CHAIN))
    assert str(refused.value).startswith("[topics] prefix: ")
    assert f"belongs to topics with the prefix '{was}', found 'elsewhere.'" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "belongs to topics with the prefix" in deployment.refused(CHAIN)
    deployment.prefix = was
    deployment.start(CHAIN)
    assert deployment.files() == before


def test_topics_that_end_before_the_checkpoint_are_other_topics(deployment: Deployment) -> None:
    """They were deleted and created again, or belong to another Kafka: retention has nothing to do with it."""
    deployment.run(CHAIN)
    path = deployment.folder / "checkpoint" / "offsets" / "0"
    blocks = f'"{deployment.prefix}blocks": {{"0": '
    path.write_text(path.read_text().replace(blocks, f"{blocks}9"))
    line = deployment.refused(CHAIN)
    assert f"{deployment.prefix}blocks[0] ends at offset {len(CHAIN.blocks)}, but " in line
    assert " (seen twice, 0 s apart): it is another topic or another Kafka than the job read" in line


def created_again(deployment: Deployment) -> None:
    """Delete the input topics and create them again, with as many records as before."""
    admin = AdminClient(admin_config(deployment.kafka))
    names = [deployment.prefix + topic for topic in INPUT_TOPICS]
    for future in admin.delete_topics(names).values():
        future.result()
    deadline = time.monotonic() + TOPICS_S_MAX
    while set(names) & set(admin.list_topics(timeout=10).topics):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    create_topics(deployment.kafka, prefix=deployment.prefix)
    send(
        deployment.kafka,
        deployment.prefix,
        [(each.topic, each.lane.encode(), each.value) for each in CHAIN.records],
    )


def test_topics_created_again_that_have_grown_as_far_are_other_topics(deployment: Deployment) -> None:
    deployment.run(CHAIN)
    deployment.start(CHAIN).keep()
    path = deployment.folder / "topics.json"
    before = json.loads(path.read_text())["ids"]
    assert set(before) == {deployment.prefix + topic for topic in INPUT_TOPICS}
    assert path.stat().st_mode & 0o777 == 0o600
    created_again(deployment)
    line = deployment.refused(CHAIN)
    blocks = f"{deployment.prefix}blocks"
    assert line.startswith(f"{blocks} has id ")
    assert (
        f", but {deployment.folder / 'checkpoint'} has read the one with id {before[blocks]} (seen twice, 0 s apart): it is another topic"
        in line
    )
    assert "if the topics were created again, remove the checkpoint; " in line
    assert line.endswith(f"remove {path}")
    deployment.remove_checkpoint()
    deployment.start(CHAIN, rebuild=True).keep()
    after = json.loads(path.read_text())["ids"]
    assert all(after[topic] != before[topic] for topic in before)


def test_checkpoint_without_ids_of_topics_starts_and_gets_them(deployment: Deployment) -> None:
    """It comes from an earlier version, or from one that knew fewer topics."""
    deployment.run(CHAIN)
    path = deployment.folder / "topics.json"
    path.unlink()
    deployment.start(CHAIN).keep()
    kept = json.loads(path.read_text())
    blocks = kept["ids"].pop(f"{deployment.prefix}blocks")
    path.write_text(json.dumps(kept))
    deployment.start(CHAIN).keep()
    assert json.loads(path.read_text())["ids"] == {**kept["ids"], f"{deployment.prefix}blocks": blocks}


def test_change_of_a_key_without_a_block_needs_the_next_one(deployment: Deployment) -> None:
    deployment.run(CHAIN)
    changed = with_keys(CHAIN, ump_default_weight=7)
    line = deployment.refused(changed)
    assert line.startswith("chains.polkadot.ump_default_weight: lane polkadot began with ")
    assert f"block {LAST} is executed: put it back, or start once with --accept-change polkadot:{LAST + 1}" in line
    assert f"expected --accept-change polkadot:{LAST + 1}" in deployment.refused(
        changed, accepted=Accepted(blocks={CHAIN.lane: 3})
    )
    deployment.start(changed, accepted=Accepted(blocks={CHAIN.lane: LAST + 1})).keep()
    deployment.start(changed).keep()
    deployment.remove_checkpoint()
    line = deployment.refused(changed, rebuild=True)
    assert "would not be rebuilt as it was emitted" in line
    assert f"blocks before {LAST + 1} were executed with chains.polkadot.ump_default_weight " in line
    assert "which was changed to 7, and a rebuild" in line


def test_change_waits_until_the_last_batch_is_complete(deployment: Deployment) -> None:
    deployment.run(CHAIN, complete=False)
    line = deployment.refused(with_keys(CHAIN, ump_default_weight=7), accepted=Accepted(blocks={CHAIN.lane: LAST + 1}))
    assert "the last batch of the checkpoint is not complete" in line
    deployment.start(CHAIN)


def test_rules_of_executed_blocks_are_refused(deployment: Deployment) -> None:
    deployment.run(CHAIN)
    rules = [{"from_block": LAST, "profile": "router/2021-09"}]
    assert f"its rules differ from block {LAST} on" in deployment.refused(with_keys(CHAIN, rules=rules))
    deployment.start(with_keys(CHAIN, rules=[{**rules[0], "from_block": LAST + 1}]))


def test_removed_chain_is_refused_and_its_records_are_not_dead(deployment: Deployment) -> None:
    deployment.run(CHAIN, OTHER)
    line = deployment.refused(CHAIN)
    assert line.startswith(
        f"chains.kusama: the lane has emitted up to block {OTHER.blocks[-1].block} and is not configured any more"
    )
    removed = Accepted(removed=frozenset({"kusama"}))
    found = deployment.start(CHAIN, accepted=removed)
    assert found.retired == {"kusama": deployment.ends(CHAIN, OTHER)}
    found.keep()
    assert deployment.start(CHAIN).retired == found.retired
    assert "began with" in deployment.refused(CHAIN, richer(OTHER)), "a lane that returns has its state"
    deployment.remove_checkpoint()
    assert deployment.start(CHAIN, rebuild=True).retired == found.retired
    deployment.folder = deployment.folder / "elsewhere"
    assert deployment.refused(CHAIN, rebuild=True).startswith("chains.kusama: ")
    assert deployment.start(CHAIN, rebuild=True, accepted=removed).retired == found.retired


def test_accepted_change_that_is_none_is_refused(deployment: Deployment) -> None:
    deployment.run(CHAIN)
    changed = with_keys(CHAIN, ump_default_weight=7)
    both = Accepted(genesis=frozenset({CHAIN.lane}), blocks={CHAIN.lane: LAST + 1})
    assert deployment.refused(changed, accepted=both).startswith("--accept-change polkadot:genesis: nothing of lane")
    for accepted in (GENESIS, Accepted(blocks={CHAIN.lane: LAST + 1}), Accepted(removed=frozenset({"kusama"}))):
        assert re.match(
            r"--accept-change \w+:\w+: nothing of lane \w+ has changed so", deployment.refused(CHAIN, accepted=accepted)
        )


def test_lane_that_has_taken_nothing_may_begin_otherwise(deployment: Deployment) -> None:
    deployment.run(CHAIN)
    deployment.start(CHAIN, OTHER).keep()
    deployment.start(CHAIN, richer(OTHER)).keep()
    deployment.start(CHAIN)  # nor is it missed


def test_start_without_changes_asks_for_no_markers(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash a transaction may be open there, and only the job that has taken over can end it."""
    deployment.run(CHAIN)

    def asked(*_: object, **__: object) -> dict[str, Marker]:
        raise AssertionError("asked for markers")

    monkeypatch.setattr(start_check, "read_markers", asked)
    deployment.start(CHAIN)


def test_rebuild_with_cut_verdicts_compares_the_rest(deployment: Deployment, tmp_path: Path) -> None:
    deployment.run(CHAIN)
    deployment.folder = tmp_path / "another machine"
    admin = AdminClient(admin_config(deployment.kafka))
    for future in admin.delete_records([TopicPartition(f"{deployment.prefix}verdicts", 0, 8)]).values():
        future.result()
    deployment.start(CHAIN, rebuild=True)
    assert "block 5 would not be rebuilt" in deployment.refused(richer(CHAIN), rebuild=True)


def test_rebuild_after_a_crash_does_not_wait_for_an_open_transaction(deployment: Deployment, tmp_path: Path) -> None:
    """Only the job that takes the lanes over can end it; what is committed before it is compared."""
    deployment.run(CHAIN)
    deployment.folder = tmp_path / "another machine"
    producer = Producer(producer_config(deployment.kafka, transactional_id=f"{deployment.prefix}killed"))
    producer.init_transactions(60.0)
    producer.begin_transaction()
    for topic in ("verdicts", "receipts", "markers"):
        producer.produce(f"{deployment.prefix}{topic}", b"uncommitted", CHAIN.lane.encode())
    assert producer.flush(60.0) == 0
    try:
        deployment.start(CHAIN, rebuild=True)
        assert "block 5 would not be rebuilt" in deployment.refused(richer(CHAIN), rebuild=True)
    finally:
        producer.abort_transaction(60.0)


def test_refusal_that_validator_lanes_predicts_is_that_of_the_start(deployment: Deployment) -> None:
    deployment.run(CHAIN)

    def predicted(of: Chain) -> str | None:
        config = deployment.config(of)
        kept = kept_starts(deployment.folder / "lanes")[CHAIN.lane]
        return refusal_of(config, CHAIN.lane, kept, started_epochs(lane_definitions(config)[CHAIN.lane].epochs), LAST)

    rules = {"profile": "router/2021-09"}
    limits = {**CHAIN.table["host_configuration"], "hrmp_channel_max_size": 7}
    handlers = {"handlers": [{"name": "remark"}], "ump_weights": {}, "ump_failing_messages": []}
    for keys in (
        {"ump_default_weight": 7},
        {"host_configuration": limits, **handlers},
        handlers,
        {"rules": [{"from_block": LAST, **rules}]},
        {"enactment": "on-inclusion"},
    ):
        changed = with_keys(CHAIN, **keys)
        assert predicted(changed) == deployment.refused(changed)
    assert predicted(richer(CHAIN)) == deployment.refused(richer(CHAIN))
    for fits in (CHAIN, with_keys(CHAIN, rules=[{"from_block": LAST + 1, **rules}])):
        assert predicted(fits) is None
        deployment.start(fits)


def test_accepted_change_of_an_unknown_lane_is_refused_without_kafka(deployment: Deployment) -> None:
    deployment.run(CHAIN, OTHER)
    config = deployment.config(CHAIN)
    with pytest.raises(UserError) as refused:
        check_accepted(config, Accepted(blocks={"poladot": 4}))
    assert str(refused.value) == (
        "--accept-change poladot:4: no such lane, did you mean polkadot; lanes are kusama, polkadot"
    )
    elsewhere = Accepted(removed=frozenset({"elsewhere"}))
    for known in (GENESIS, Accepted(removed=frozenset({"kusama"})), Accepted(blocks={CHAIN.lane: 4})):
        check_accepted(config, known)
    with pytest.raises(UserError, match="--accept-change elsewhere:removed: no such lane; lanes"):
        check_accepted(config, elsewhere)
    deployment.remove_checkpoint()
    check_accepted(config, elsewhere)  # its topics may still know it


SKIPPED = Source("candidates", 0, 7)


@pytest.mark.parametrize("killed", ["kusama", "removed", NO_LANE])
def test_what_stands_behind_an_open_transaction_is_known(
    kafka: dict[str, Any], killed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Kafka ends the transaction by itself after minutes, which must not be what lets this pass
    monkeypatch.setattr(taking_over, "ABANDONED_S_MAX", 20.0)
    prefix = f"without-checkpoint-{killed}."
    create_topics(kafka, prefix=prefix)
    config = Config.model_validate({"kafka": kafka, "topics": {"prefix": prefix}})
    parked = Parked(Fault.BUG, "a bug", 3).record("polkadot").records
    (other,) = Parked(Fault.BUG, "a bug", 3).record("kusama").records
    letter = DeadLetter("polkadot", DeadReason.SKIPPED, "skipped", SKIPPED, b"raw")
    abandoned = TransactionalWriter(LaneOnKafka(kafka, prefix, killed), "job-1")
    abandoned.write([encode_dead_letter(letter._replace(lane=killed, reason=DeadReason.LATE)), other])
    assert abandoned._writer.producer.flush(60) == 0
    writer = TransactionalWriter(LaneOnKafka(kafka, prefix, "polkadot"), "job-1")
    writer.write([encode_dead_letter(letter), *parked])
    writer.commit(Marker(3))
    assert (skipped_records(kafka, prefix), lane_reports(config).parked) == ({}, {}), "it is hidden"
    found = known_of_lanes(config, writers(["polkadot", "kusama"], ["removed"]))
    assert found == {"skipped": {"polkadot": frozenset({SKIPPED})}, "parked": frozenset({"polkadot"})}
