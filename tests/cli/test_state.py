# SPDX-License-Identifier: Apache-2.0
"""`validator state show` and `validator state verify`, on states made in this process; `tests/streaming` has them beside a job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cli.follower import LANE, Follower, follower, invoke
from tests.unit.lanes.backend import Store
from validator.cli import state as command
from validator.codec.decode import decode_record
from validator.codec.json_form import encode_input
from validator.codec.schemas import INPUT_TOPICS
from validator.config import load_config
from validator.core.inputs import DeadLetter, Input, Source
from validator.kafka.client import admin_config
from validator.lanes.configured import lane_definition
from validator.lanes.store import LaneCache, process_batch, restore_lane
from validator.lanes.stored import Part, write_end, write_entry, write_header
from validator.service import state
from validator.service.importing import state_keys
from validator.service.sender import RecordSender

if TYPE_CHECKING:
    from pathlib import Path

    from validator.core.router.state import RouterState
    from validator.lanes.worker import LaneWorker

BATCH = 17

Records = list[tuple[str, dict[str, Any]]]


@dataclass
class Job:
    """What a job leaves behind: inputs and outputs on the topics, and a store; Spark's part is played by this process."""

    chain: Follower
    store: Store = field(default_factory=Store)
    consumed: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.prefix = self.chain.config.topics.prefix
        self.checkpoint = self.chain.config_path.parent / "job" / "checkpoint"
        assert str(self.checkpoint.parent) == self.chain.config.job.directory
        (self.checkpoint / "commits").mkdir(parents=True)
        (self.checkpoint / "commits" / str(BATCH)).write_text("v1\n{}")
        self.consumed = {(self.prefix + topic, 0): 0 for topic in INPUT_TOPICS}

    def follow(self, records: Records, *, batches: int = 3, judged: Records | None = None) -> None:
        """Send records, take them in some batches, and tell what comes out; ``judged`` are taken instead of those that are sent."""
        sender = RecordSender(self.chain.config.kafka, self.prefix)
        for kind, record in records:
            sender.send(kind, LANE.encode(), encode_input(INPUT_TOPICS[kind], record))
        sender.flush()
        definition = lane_definition(self.chain.config, LANE)
        items = [self.item(kind, record) for kind, record in (records if judged is None else judged)]
        cache = LaneCache()
        for at in range(batches):
            attempt = self.store.attempt()
            batch = items[len(items) * at // batches : len(items) * (at + 1) // batches]
            for _, told in process_batch(definition, attempt, cache, batch):
                for topic, key, value, _ in told:
                    sender.send(topic, key, value)
            self.store.commit(attempt)
        sender.flush()

    def item(self, kind: str, record: dict[str, Any]) -> Input | DeadLetter:
        place = (self.prefix + kind, 0)
        source = Source(*place, self.consumed[place])
        self.consumed[place] += 1
        decoded = decode_record(INPUT_TOPICS[kind], encode_input(INPUT_TOPICS[kind], record), source, LANE.encode())
        return decoded if isinstance(decoded, DeadLetter) else decoded[1]

    def read(self, checkpoint: Path, output: Path, lanes: Sequence[str]) -> None:
        """Do what `streaming.state_reader` does."""
        assert checkpoint == self.checkpoint
        kept = self.store.committed
        with output.open("wb") as file:
            write_header(file, BATCH, self.consumed)
            entries = 0
            if kept.head is not None:
                write_entry(file, Part.HEAD, LANE, 0, kept.head)
                entries += 1
            if not lanes or LANE in lanes:
                for number, data in kept.slots.items():
                    write_entry(file, Part.SLOT, LANE, number, data)
                for number, data in enumerate(kept.journal):
                    write_entry(file, Part.JOURNAL, LANE, number, data)
                entries += len(kept.slots) + len(kept.journal)
            write_end(file, entries)

    def worker(self) -> LaneWorker:
        restored = restore_lane(lane_definition(self.chain.config, LANE), self.store.attempt())
        assert restored is not None
        return restored

    def state(self) -> RouterState:
        found: RouterState = self.worker().lane.rules.state  # type: ignore[attr-defined]
        return found

    def show(self, *arguments: str) -> Any:
        return invoke("state", "show", f"--lane={LANE}", *arguments, self.chain.option())

    def shown(self, *arguments: str) -> dict[str, Any]:
        result = self.show(*arguments, "--json")
        assert result.exit_code == 0, result.output
        (line,) = result.stdout.splitlines()
        document: dict[str, Any] = json.loads(line)
        return document

    def verify(self, *arguments: str) -> Any:
        return invoke("state", "verify", *arguments, self.chain.option())


@pytest.fixture
def job(tmp_path: Path, kafka: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    def make(blocks: int = 30, seed: int = 5) -> Job:
        made = Job(follower(tmp_path, kafka, f"state-{tmp_path.name}.", blocks=blocks, seed=seed))
        monkeypatch.setattr(state, "read_checkpoint", made.read)
        monkeypatch.setattr(command, "ensure_jars", lambda *_, **__: [])
        return made

    return make


def refused(result: Any, words: str) -> None:
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert result.stderr.startswith("validator: ")
    assert result.stderr.count("\n") == 1


# --- show --------------------------------------------------------------------------------------------------------------------------------


def test_a_lane_is_shown_in_figures(job: Callable[..., Job]) -> None:
    followed = job()
    last = len(followed.chain.records) - 1
    followed.follow(followed.chain.records[:last])
    worker = followed.worker()
    told = followed.show()
    assert told.exit_code == 0, told.output
    lane = worker.lane
    assert f"{LANE} · after block {lane.executed_block} · batch {BATCH}" in told.stdout
    assert lane.counters.waiting > 0
    assert f"  {lane.waits_for()}" in told.stdout
    for line in (
        f"session             {lane.rules.session}",
        f"channels            {len(followed.state().hrmp_channels)}",
        f"journal     3 batches with {len(b''.join(followed.store.committed.journal)) // 1000} kB",
        f"summary     {worker.summary().hex()}",
    ):
        assert line in told.stdout, told.stdout
    assert lane.rules.state_root().hex() in told.stdout.replace("\n", "").replace(" ", "")
    assert [path.name for path in followed.checkpoint.parent.iterdir()] == ["checkpoint"], "nothing is left behind"


def test_a_whole_lane_is_a_state_that_can_be_imported(job: Callable[..., Job], tmp_path: Path) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records)
    document = followed.shown()
    worker = followed.worker()
    assert document["state"] == state_keys(followed.state())
    assert document["state"]["contents"], "an empty one would prove little"
    assert (document["lane"], document["batch"]) == (LANE, BATCH)
    assert (document["executed_block"], document["first_block"]) == (60, 61)
    assert document["state_root"] == worker.lane.rules.state_root().hex()
    assert document["counters"]["consumed"] == len(followed.chain.records)

    exported = tmp_path / "STATE.json"
    exported.write_text(json.dumps(document))
    other = tmp_path / "other.toml"
    text = followed.chain.config_path.read_text(encoding="utf-8")
    other.write_text(text.replace(str(followed.checkpoint.parent), str(tmp_path / "other")), encoding="utf-8")
    result = invoke("lanes", "import", str(exported), f"--lane={LANE}", f"--config={other}")
    assert result.exit_code == 0, result.output
    definition = lane_definition(load_config(other), LANE)
    fork = definition.create().rules
    assert definition.first_block == 61
    assert state_keys(fork.state) == document["state"]  # type: ignore[attr-defined]


def test_a_para_is_shown_with_all_that_concerns_it(job: Callable[..., Job]) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records)
    whole, held = followed.shown()["state"], followed.state()
    para = max(held.hrmp_ingress_channels_index, key=lambda each: len(held.hrmp_ingress_channels_index[each]))
    document = followed.shown(f"--para={para}")
    part = document["state"]
    assert document["para_id"] == para
    for key in (
        "balances",
        "watermarks",
        "digests",
        "dmq",
        "dmq_heads",
        "ump_queues",
        "ingress",
        "egress",
        "mqc_heads",
    ):
        expected = {str(para): whole[key][str(para)]} if str(para) in whole[key] else {}
        assert part[key] == expected, key
    involved = [name for name in whole["channel_set"] if str(para) in name.split("->")]
    assert part["channel_set"] == involved
    assert part["channels"] == {name: whole["channels"][name] for name in involved}
    assert part["contents"] == {name: whole["contents"][name] for name in involved if name in whole["contents"]}

    told = followed.show(f"--para={para}").stdout
    assert f"{LANE} · para {para} · after block 60" in told
    assert f"channels to it ({len(held.hrmp_ingress_channels_index[para])})" in told
    for sender in held.hrmp_ingress_channels_index[para]:
        assert f" {sender} -> {para} " in told
    account = held.accounts[para]
    assert f"{account.free:,} free, {account.reserved:,} reserved" in told


def test_a_channel_is_shown_with_its_messages(job: Callable[..., Job]) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records)
    held = followed.state()
    (sender, recipient), messages = max(held.hrmp_channel_contents.items(), key=lambda each: len(each[1]))
    channel, name = held.hrmp_channels[sender, recipient], f"{sender}->{recipient}"
    document = followed.shown(f"--channel={sender},{recipient}")
    assert document["channel"] == [sender, recipient]
    assert document["messages_sent"] == channel.messages_sent
    assert list(document["state"]["channels"]) == [name]
    assert document["state"]["contents"] == {
        name: [{"sent_at": message.sent_at, "data": message.data.hex()} for message in messages]
    }
    told = followed.show(f"--channel={sender},{recipient}").stdout
    assert f"{len(messages)} of {channel.limit_used_places:,} places" in told
    assert channel.mqc_head.hex() in told.replace("\n", "").replace(" ", "")
    numbers = [line.split()[0] for line in told.split("MQC head after it")[1].splitlines() if line.strip()]
    first = channel.messages_sent - len(messages) + 1
    assert [int(number) for number in numbers if number.isdecimal()][: len(messages)] == list(
        range(first, channel.messages_sent + 1)
    )


def test_what_is_not_there_is_said_in_one_line(job: Callable[..., Job], tmp_path: Path) -> None:
    followed = job()
    refused(followed.show(), "no lane 'polkadot' in the checkpoint after batch 17; there are: none")
    followed.follow(followed.chain.records)
    refused(invoke("state", "show", "--lane=kusama", followed.chain.option()), "no lane 'kusama'")
    refused(
        followed.show("--para=9999"), "--para: lane polkadot knows nothing of para 9999 after block 30; valid are: "
    )
    sender, recipient = next(iter(followed.state().hrmp_channels))
    gone = followed.show(f"--channel={sender},9999")
    refused(gone, f"--channel: lane polkadot has no channel {sender},9999 and no request for it")
    assert f"{sender},{recipient}" in gone.stderr
    for text in ("2000", "2000,x", "1,2,3", "2000,99999999999", "-1,2"):
        refused(followed.show(f"--channel={text}"), "--channel: expected SENDER,RECIPIENT")
    refused(followed.show("--para=1", "--channel=1,2"), "found both")


def test_without_a_checkpoint_it_is_said_before_spark_starts(job: Callable[..., Job]) -> None:
    followed = job()
    (followed.checkpoint / "commits" / str(BATCH)).unlink()
    refused(followed.show(), "the job has not finished a batch yet")
    refused(followed.verify(), "the job has not finished a batch yet")
    (followed.checkpoint / "commits").rmdir()
    followed.checkpoint.rmdir()
    refused(followed.show(), f"{followed.checkpoint}: there is no checkpoint")


@pytest.mark.parametrize(
    "damage",
    [
        lambda kept: kept.slots.popitem(),
        lambda kept: kept.journal.pop(),
        lambda kept: kept.journal.reverse(),
        lambda kept: setattr(kept, "head", b"\x63" + kept.head[1:]),
        lambda kept: setattr(kept, "head", kept.head[:-1]),
    ],
)
def test_a_damaged_store_is_said_in_one_line(job: Callable[..., Job], damage: Callable[[Any], object]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    damage(followed.store.committed)
    refused(followed.show(), "lane polkadot: its state in the checkpoint cannot be used: ")


def test_a_reader_that_fails_is_told_in_its_words(
    job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()
    with pytest.raises(state.UserError, match="there is no checkpoint"):
        state.read_checkpoint(tmp_path / "checkpoint", tmp_path / "output", [])


# --- verify ------------------------------------------------------------------------------------------------------------------------------


def test_a_lane_that_is_what_its_topics_give(job: Callable[..., Job]) -> None:
    followed = job(blocks=60)
    followed.follow(followed.chain.records[:-1], batches=7)
    result = followed.verify()
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].startswith(f"OK: lane {LANE} after block 59, batch {BATCH} is what its ")
    assert "differs" not in result.stdout
    (told,) = [json.loads(line) for line in followed.verify("--json", f"--lane={LANE}").stdout.splitlines()]
    assert (told["ok"], told["records"], told["executed_block"]) == (True, len(followed.chain.records) - 1, 59)
    checks = {check["what"]: check for check in told["checks"]}
    assert checks["waiting records"]["stored"] != "0 records"
    assert checks["last receipts on the topic"]["stored"].startswith("59 told, ")
    assert all(check["same"] for check in checks.values())


def test_inputs_beyond_the_batch_and_copies_of_inputs_change_nothing(job: Callable[..., Job]) -> None:
    followed = job()
    records = followed.chain.records
    half = len(records) // 2
    # what is sent again is late or a duplicate, whatever its batch; and the topics go on behind what is consumed
    again = [*records[:half], *records[: half // 2], *records[half:], *records[-40:]]
    followed.follow(again, batches=5)
    before = dict(followed.consumed)
    followed.follow(records[:30], batches=1, judged=[])
    assert followed.consumed == before
    result = followed.verify("--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["records"] == len(again)


def test_a_lane_with_another_past_differs(job: Callable[..., Job]) -> None:
    followed = job()
    records = followed.chain.records
    accepted = {
        (each["block"], each["index"]) for each in followed.chain.expected if each["kind"] == "downward" and each["ok"]
    }
    place = next(
        at
        for at, (kind, record) in enumerate(records)
        if kind == "downward-messages" and (record["block"], record["index"]) in accepted
    )
    forged = deepcopy(records)
    forged[place][1]["msg"] = "ff" + forged[place][1]["msg"][2:]
    followed.follow(records, judged=forged)
    para = records[place][1]["para_id"]
    result = followed.verify()
    assert result.exit_code == 1, result.output
    assert f"DIFFERENT: lane {LANE} after block 30" in result.stdout
    assert f"  pages of paras: para {para}\n" in result.stdout, result.stdout
    told = json.loads(followed.verify("--json").stdout)
    differing = {check["what"] for check in told["checks"] if not check["same"]}
    assert not told["ok"]
    assert {"state root", "pages of paras", "fingerprints of records"} <= differing
    assert not {"executed block", "consumed", "accepted", "waiting records"} & differing


def test_a_record_that_was_lost_differs(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records, judged=followed.chain.records[:-1])
    kind = followed.chain.records[-1][0]
    followed.consumed[followed.prefix + kind, 0] += 1
    told = json.loads(followed.verify("--json").stdout)
    differing = {check["what"] for check in told["checks"] if not check["same"]}
    assert {"executed block", "consumed", "waiting records"} <= differing


def test_inputs_that_retention_has_removed_are_named(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    admin = AdminClient(admin_config(followed.chain.config.kafka))
    for future in admin.delete_records([TopicPartition(f"{followed.prefix}blocks", 0, 3)]).values():
        future.result()
    refused(followed.verify(), f"block 1 is missing, {followed.prefix}blocks begins with block 4")


def test_other_topics_than_the_job_has_read_are_noticed(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    place = (f"{followed.prefix}blocks", 0)
    followed.consumed[place] += 1
    refused(followed.verify(), f"{place[0]}[0] ends at offset 30, but the checkpoint's batch has consumed it up to 31")
    followed.consumed = {("other.blocks", 0): 30}
    refused(followed.verify(), "[topics] prefix: the checkpoint is of the topics other.blocks, expected ")


def test_a_lane_that_is_not_configured_cannot_be_verified(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    refused(followed.verify("--lane=kusama"), "--lane: no chain 'kusama' is configured")
    text = followed.chain.config_path.read_text(encoding="utf-8").replace("chains.polkadot", "chains.kusama")
    followed.chain.config_path.write_text(text, encoding="utf-8")
    result = followed.verify()
    assert result.exit_code == 2
    assert "lane polkadot is not configured" in result.stderr
    assert "none of the configured lanes is in the checkpoint" in result.stderr


def test_a_changed_configuration_is_told(job: Callable[..., Job]) -> None:
    followed = job()
    followed.follow(followed.chain.records)
    text = followed.chain.config_path.read_text(encoding="utf-8")
    followed.chain.config_path.write_text(
        text.replace("ump_default_weight = ", "ump_default_weight = 1"), encoding="utf-8"
    )
    result = followed.verify()
    # the lane is rebuilt under what it is stored under
    assert result.exit_code == 0, result.output
    assert "the configuration is not the one that its state was stored under" in result.stderr
